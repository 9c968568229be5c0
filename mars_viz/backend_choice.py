"""Which models decode, and where: chosen once and read alike by the app, Python and the command line, from a small file
if need be. Knows names and the file; loads nothing until a backend is asked for."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from mars_viz.errors import BadInput, SettingError
from mars_viz.shapes import CHAIN, drafted_tokens, with_nodes
from mars_viz.speculators.names import check_names

if TYPE_CHECKING:
    from mars_viz.speculators.backend import Backend

FILE = "MARS_VIZ_BACKEND"
"""Names the file that the app begins with."""
MOST_BYTES = 65_536
"""Of such a file; it takes some hundred."""
_NAMES = ("target", "drafter", "tree", "device", "dtype")
AUTO = "auto"
"""The device that there is, the dtype that suits it."""


@dataclass(frozen=True, slots=True)
class BackendChoice:
    """A target and what drafts for it, in which shape, and where and how they are to run."""

    target: str = ""
    """Hub id, folder, GGUF file, 'smollm2' or a vLLM server's address; empty for the built-in one."""
    drafter: str = ""
    """Likewise; or one without a model of its own, such as 'ngram:n=3'."""
    device: str = AUTO
    """auto, cpu, cuda or mps."""
    dtype: str = AUTO
    """auto, float32, bfloat16 or float16."""
    folders: bool = False
    """True if whoever named the models may name folders of this machine; ids on the hub alone else."""
    tree: str = CHAIN
    """The shape of drafts where nobody asks for another: chain, or a tree such as 'dynamic:depth=6,topk=4,nodes=16'."""

    @property
    def in_short(self) -> tuple[str, str]:
        """Both names, without where on this machine a folder lies."""
        target, drafter = (PurePath(name).name if PurePath(name).is_absolute() else name for name in self.names)
        return target, drafter

    @property
    def names(self) -> tuple[str, str]:
        """Both."""
        return self.target, self.drafter

    @property
    def models(self) -> BackendChoice:
        """The same without the shape of drafts, which changes nothing of what is loaded."""
        return replace(self, tree=CHAIN)


BUILT_IN = BackendChoice()
"""The pair that comes with the product, drafting chains."""


def backend(
    file: str | PathLike[str] | None = None,
    *,
    target: str | PathLike[str] | None = None,
    drafter: str | PathLike[str] | None = None,
    tree: str | None = None,
    device: str | None = None,
    dtype: str | None = None,
) -> Backend:
    """Load a target and a drafter, once, for all that decodes: `record`, `dial_map`, `record_all`, sweeps.

    `file` is a backend.toml, of which each name that is given here takes the place: `target` is a hub id, a folder,
    a GGUF file, smollm2 or the address of a vLLM server (None: the built-in one); `drafter` too but for servers, or one
    without a model of its own, such as 'ngram:n=3' (None: the built-in one, smollm2's head, or for another
    target prompt lookup); `tree` the shape of drafts where nothing else is asked for. Raises BadInput, with the remedy,
    for anything that keeps them from working.
    """
    begun = BUILT_IN if file is None else read_backend_file(file)
    choice = checked_choice(
        replace(
            begun,
            target=begun.target if target is None else os.fspath(target),
            drafter=begun.drafter if drafter is None else os.fspath(drafter),
            tree=tree or begun.tree,
            device=device or begun.device,
            dtype=dtype or begun.dtype,
        )
    )
    from mars_viz.speculators.loading import load_backend

    made = load_backend(choice.target or None, choice.drafter or None, device=choice.device, dtype=choice.dtype)
    return replace(made, tree=choice.tree)


def read_backend_file(path: str | PathLike[str]) -> BackendChoice:
    """The choice that a backend.toml makes; a folder that begins with '.' is looked for beside the file. Raises
    SettingError, with the remedy, for a file that cannot be read or says what cannot be had."""
    path = Path(path)
    try:
        if path.stat().st_size > MOST_BYTES:
            raise SettingError(f"{path} is larger than {MOST_BYTES // 1024} kB, and so is no backend file.")
        said = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise SettingError(f"The backend file {path} cannot be read ({error.strerror}). Name one that can.") from error
    except ValueError as error:  # no UTF-8, or no TOML
        raise SettingError(f'{path} is no TOML: {error}. Write lines such as target = "org/name".') from error
    try:
        return checked_choice(replace(_choice_in(said, path), folders=True))
    except BadInput as error:
        raise SettingError(f"The backend file {path}: {error}") from error


def _choice_in(said: Mapping[str, Any], path: Path) -> BackendChoice:
    unknown = sorted(set(said) - set(_NAMES))
    if unknown:
        raise SettingError(f"It sets {', '.join(unknown)}; a backend file knows {', '.join(_NAMES)}.")
    for name, value in said.items():
        if not isinstance(value, str) or not value.isprintable():
            raise SettingError(f"{name} must be a text, such as {name} = {_toml(_EXAMPLES[name])}.")
    found = {name: value.strip() for name, value in said.items()}
    for name in ("target", "drafter"):
        if found.get(name, "").startswith("."):
            found[name] = str((path.parent / found[name]).resolve())
    if (head := found.get("drafter", "")).startswith("eagle3:."):
        found["drafter"] = f"eagle3:{(path.parent / head.removeprefix('eagle3:')).resolve()}"
    return BackendChoice(**found)


_EXAMPLES = {
    "target": "org/name",
    "drafter": "ngram:n=3",
    "tree": "dynamic:depth=6,topk=4,nodes=16",
    "device": AUTO,
    "dtype": "float32",
}


def checked_choice(choice: BackendChoice) -> BackendChoice:
    """The choice, its tree written out. Raises BadInput for names, a tree, a device or a dtype that there is not."""
    named = choice.target or None, choice.drafter or None
    check_names(*named, device=choice.device, dtype=choice.dtype, folders=True)
    return replace(choice, tree=checked_tree(choice.tree))


def checked_tree(tree: str) -> str:
    """The name of a shape of drafts, with its number of nodes. Raises SettingError where there is no such shape."""
    return tree if tree == CHAIN else with_nodes(tree, drafted_tokens(None, tree))


def backend_toml(choice: BackendChoice) -> str:
    """The choice as a file that `read_backend_file` reads; what is at its default is a comment."""
    default = BackendChoice()
    lines = ["# For mars-viz app, record, map and sweep as --backend FILE, and in Python as mars_viz.backend(FILE)."]
    for name in _NAMES:
        value = getattr(choice, name)
        line = f"{name} = {_toml(value or _EXAMPLES[name])}"
        lines.append(line if value != getattr(default, name) else f"# {line}")
    return "\n".join(lines) + "\n"


def _toml(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # which is TOML's basic string, for what is printable


def first_choice() -> BackendChoice:
    """What the app begins with: the file's that the environment names, else the built-in pair. Raises SettingError."""
    named = os.environ.get(FILE)
    return read_backend_file(named) if named else BUILT_IN
