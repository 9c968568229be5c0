"""A value of dicts, lists and arrays as one small text, for a page that has nothing but itself.

Knows arrays and compression; knows nothing of what is sent. The text stands for a deflated: four bytes that say how
long the JSON is, the JSON `{"value": ..., "arrays": [...]}`, the arrays' bytes. In the value an array is
`{"$array": index}`. Equal arrays are sent once; an array's bytes are sent plane by plane, all first bytes, then all
second ones, which compresses far better than number by number; of an array that is mostly NaN the others alone, and
where they stand. Each plane is compressed in the way that suits it: what repeats itself as strings, what is noise by
the frequency of its bytes alone; the parts are one deflate stream. `parcel.js` reads it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any

import numpy as np

from mars_viz.report.shown import Scaled
from mars_viz.report.text import to_text

SPARSE = 0.5
"""Share of NaN from which on an array is sent without."""
MOST_FIRST_BITS = 4
"""Of a mantissa, at most so many are told with its class; the others, which are noise, stand bit by bit."""

LARGE = 4096
"""Bytes or numbers from which on a part is looked at by itself; smaller ones repeat what stands in others."""
_WAYS = (zlib.Z_DEFAULT_STRATEGY, zlib.Z_HUFFMAN_ONLY)


def packed_text(*parts: bytes) -> str:
    """Bytes, compressed, as text."""
    return to_text(b"".join([*_deflated(parts), zlib.compress(b"", 9, -15)]))


def parcel(value: Any) -> str:
    """The value as text. NumPy arrays and `Scaled` may stand anywhere in it; the rest is JSON's."""
    packer = _Packer()
    plain = packer.plain(value)
    text = json.dumps(
        {"value": plain, "arrays": packer.about}, ensure_ascii=False, allow_nan=False, separators=(",", ":")
    ).encode()
    return packed_text(len(text).to_bytes(4, "little") + text, *packer.planes)


def _deflated(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The parts one after the other, each flushed, so that they can stand in one stream."""
    together: list[bytes] = []
    for part in parts:
        if len(part) >= LARGE and _smaller_as_noise(part):
            yield _part(b"".join(together), zlib.Z_DEFAULT_STRATEGY)
            yield _part(part, zlib.Z_HUFFMAN_ONLY)
            together = []
        else:
            together.append(part)
    yield _part(b"".join(together), zlib.Z_DEFAULT_STRATEGY)


def _smaller_as_noise(part: bytes) -> bool:
    strings, noise = (len(_part(part, way)) for way in _WAYS)
    return noise < strings


def _part(data: bytes, strategy: int) -> bytes:
    if not data:
        return b""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15, 9, strategy)
    return deflate.compress(data) + deflate.flush(zlib.Z_FULL_FLUSH)


def _planes(data: np.ndarray, width: int) -> list[bytes]:
    """The bytes [n · width] of numbers, all first ones, then all second ones."""
    return [plane.tobytes() for plane in data.reshape(-1, width).T]


def _mostly_nan(value: np.ndarray) -> bool:
    return value.ndim == 1 and value.dtype.kind == "f" and len(value) > 0 and float(np.isnan(value).mean()) > SPARSE


class _Packer:
    """Gathers the arrays of a value."""

    def __init__(self) -> None:
        self.about: list[dict[str, Any]] = []
        self.planes: list[bytes] = []
        self._known: dict[bytes, int] = {}
        self._latest: dict[tuple[str, int], int] = {}
        self._arrays: list[np.ndarray] = []

    def plain(self, value: Any) -> Any:
        """The value with an index in place of each array."""
        if isinstance(value, dict):
            return {str(key): self.plain(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.plain(item) for item in value]
        if isinstance(value, np.ndarray):
            return self._array(value)
        if isinstance(value, Scaled):
            shape = {} if value.mantissas.ndim < 2 else {"shape": list(value.mantissas.shape)}
            return self._scaled(value) | shape
        return value.item() if isinstance(value, np.generic) else value

    def _array(self, value: np.ndarray) -> dict[str, Any]:
        if _mostly_nan(value):
            there = ~np.isnan(value)
            return {"$some": [self._index(part) for part in (np.packbits(there), value[there])], "length": len(value)}
        shape = {} if value.ndim < 2 else {"shape": list(value.shape)}
        return {"$array": self._index(value.ravel())} | shape

    def _scaled(self, value: Scaled) -> dict[str, Any]:
        """By classes, or as it is: what repeats itself is smaller so, and what is short."""
        plain = (value.mantissas.ravel(), value.exponents.ravel())
        small = np.abs(plain[0]).max(initial=0) < 1 << 15
        plain = (plain[0].astype(np.int16 if small else np.int32), plain[1])
        parts, first = _classes(value) if len(plain[0]) >= LARGE else (plain, 0)
        if parts is plain or _size(plain) <= _size(parts):
            return {"$scaled": [self._index(part) for part in plain], "base": value.base}
        return {"$scaled": [self._index(part) for part in parts], "base": value.base, "first": first}

    def _index(self, array: np.ndarray) -> int:
        array = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        digest = blake2b(array.dtype.name.encode() + b":" + array.tobytes(), digest_size=16).digest()
        if digest not in self._known:
            self._known[digest] = self._add(array)
        return self._known[digest]

    def _add(self, array: np.ndarray) -> int:
        """Send an array; as its difference from the latest one of its kind where they mostly agree."""
        index, kind = len(self._arrays), (array.dtype.name, len(array))
        about: dict[str, Any] = {"type": array.dtype.name, "length": len(array)}
        sent = array.view(np.uint8)
        before = self._latest.get(kind)
        if before is not None and len(array):
            difference = sent ^ self._arrays[before].view(np.uint8)
            if np.mean(difference == 0) > 0.6:
                about["from"], sent = before, difference
        self.about.append(about)
        self.planes.extend(_planes(sent, array.itemsize))
        self._arrays.append(array)
        self._latest[kind] = index
        return index


def _size(arrays: Iterable[np.ndarray]) -> int:
    return sum(
        min(len(_part(plane, way)) for way in _WAYS)
        for array in arrays
        for plane in _planes(array.view(np.uint8), array.itemsize)
    )


def _classes(value: Scaled) -> tuple[tuple[np.ndarray, ...], int]:
    """A class for each number, a table of the classes, and the bits that a class does not tell; and how many first bits
    of a mantissa it tells."""
    mantissas, exponents = value.mantissas.ravel().astype(np.int64), value.exponents.ravel()
    size = np.abs(mantissas)
    length = np.frexp(size.astype(np.float64))[1].astype(np.int8)  # bits
    signed = np.where(mantissas < 0, -length, length)
    for first in range(MOST_FIRST_BITS, -1, -1):
        left = np.maximum(length - first, 0)
        kinds = np.stack([exponents, signed, size >> left], axis=1)
        table, classes = np.unique(kinds, axis=0, return_inverse=True)
        if len(table) <= 1 << 8:
            break
    kind = np.uint8 if len(table) <= 1 << 8 else np.uint16
    parts = (
        classes.ravel().astype(kind),
        table[:, 0].astype(np.int8),
        table[:, 1].astype(np.int8),
        table[:, 2].astype(np.int32),
        np.packbits(_low_bits(size, left)),
    )
    return parts, first


def _low_bits(numbers: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """uint8 0 or 1; of each number its last so many bits, one after the other, the highest first."""
    if not counts.sum():
        return np.zeros(0, np.uint8)
    ends = np.cumsum(counts)
    places = np.repeat(ends, counts) - np.arange(int(ends[-1])) - 1
    return (np.repeat(numbers, counts) >> places & 1).astype(np.uint8)
