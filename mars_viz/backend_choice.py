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
from typing import TYPE_CHECKING

from mars_viz.errors import BadInput, SettingError
from mars_viz.shapes import CHAIN, drafted_tokens, with_nodes
from mars_viz.speculators.names import check_names

if TYPE_CHECKING:
    from mars_viz.speculators.backend import Backend

FILE = "MARS_VIZ_BACKEND"  # environment variable with the path of the app's backend file
MOST_BYTES = 65_536  # maximum size of a backend file; usual ones have a few hundred bytes
AUTO = "auto"  # the available device, and the dtype that suits it
_ENTRIES = {  # of a backend file, with an example each
    "target": "org/name",
    "drafter": "ngram:n=3",
    "tree": "dynamic:depth=6,topk=4,nodes=16",
    "device": AUTO,
    "dtype": "float32",
}


@dataclass(frozen=True, slots=True)
class BackendChoice:
    """Names of a target and a drafter, with the shape of drafts, device and dtype."""

    target: str = ""  # Hub id, folder, GGUF file, 'smollm2' or a vLLM server's address; empty for the built-in one
    drafter: str = ""  # like `target`, or a drafter without a model such as 'ngram:n=3'
    device: str = AUTO  # auto, cpu, cuda or mps
    dtype: str = AUTO  # auto, float32, bfloat16 or float16
    folders: bool = False  # True if local folders may be named; otherwise only ids on the hub
    tree: str = CHAIN  # default shape of drafts: chain, or a tree such as 'dynamic:depth=6,topk=4,nodes=16'

    @property
    def in_short(self) -> tuple[str, str]:
        """Both names, with folders shortened to their last part."""
        target, drafter = (PurePath(name).name if PurePath(name).is_absolute() else name for name in self.names)
        return target, drafter

    @property
    def names(self) -> tuple[str, str]:
        """Target and drafter."""
        return self.target, self.drafter

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
    base = BUILT_IN if file is None else read_backend_file(file)
    choice = checked_choice(
        replace(
            base,
            target=base.target if target is None else os.fspath(target),
            drafter=base.drafter if drafter is None else os.fspath(drafter),
            tree=tree or base.tree,
            device=device or base.device,
            dtype=dtype or base.dtype,
        )
    )
    from mars_viz.speculators.loading import load_backend

    models = load_backend(choice.target or None, choice.drafter or None, device=choice.device, dtype=choice.dtype)
    return replace(models, tree=choice.tree)


def read_backend_file(path: str | PathLike[str]) -> BackendChoice:
    """Return the choice in a backend.toml; a folder that starts with '.' is relative to the file. Raises SettingError
    with a remedy for a file that cannot be read or has invalid entries."""
    path = Path(path)
    try:
        if path.stat().st_size > MOST_BYTES:
            raise SettingError(f"{path} is larger than {MOST_BYTES // 1024} kB, and so is no backend file.")
        entries = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise SettingError(f"The backend file {path} cannot be read ({error.strerror}). Name one that can.") from error
    except ValueError as error:  # no UTF-8, or no TOML
        raise SettingError(f'{path} is no TOML: {error}. Write lines such as target = "org/name".') from error
    try:
        if unknown := sorted(set(entries) - set(_ENTRIES)):
            raise SettingError(f"It sets {', '.join(unknown)}; a backend file knows {', '.join(_ENTRIES)}.")
        for name, value in entries.items():
            if not isinstance(value, str) or not value.isprintable():
                raise SettingError(f"{name} must be a text, such as {name} = {_toml(_ENTRIES[name])}.")
        names = {name: value.strip() for name, value in entries.items()}
        for name in ("target", "drafter"):
            if names.get(name, "").startswith("."):
                names[name] = str((path.parent / names[name]).resolve())
        if (head := names.get("drafter", "")).startswith("eagle3:."):
            names["drafter"] = f"eagle3:{(path.parent / head.removeprefix('eagle3:')).resolve()}"
        return checked_choice(BackendChoice(**names, folders=True))
    except BadInput as error:
        raise SettingError(f"The backend file {path}: {error}") from error


def checked_choice(choice: BackendChoice) -> BackendChoice:
    """Return the choice with its tree written out. Raises BadInput for invalid names, tree, device or dtype."""
    named = choice.target or None, choice.drafter or None
    check_names(*named, device=choice.device, dtype=choice.dtype, folders=True)
    return replace(choice, tree=checked_tree(choice.tree))


def checked_tree(tree: str) -> str:
    """Return the name of a shape of drafts with its number of nodes. Raises SettingError for an unknown shape."""
    return tree if tree == CHAIN else with_nodes(tree, drafted_tokens(None, tree))


def backend_toml(choice: BackendChoice) -> str:
    """Return the choice as text for `read_backend_file`; entries at their default are comments."""
    default = BackendChoice()
    lines = ["# For mars-viz app, record, map and sweep as --backend FILE, and in Python as mars_viz.backend(FILE)."]
    for name in _ENTRIES:
        value = getattr(choice, name)
        line = f"{name} = {_toml(value or _ENTRIES[name])}"
        lines.append(line if value != getattr(default, name) else f"# {line}")
    return "\n".join(lines) + "\n"


def _toml(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # which is TOML's basic string, for what is printable


def first_choice() -> BackendChoice:
    """Return the app's initial choice: from the file named in the environment, or the built-in pair. Raises
    SettingError."""
    named = os.environ.get(FILE)
    return read_backend_file(named) if named else BUILT_IN
