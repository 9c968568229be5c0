"""A value of dicts, lists and arrays as one small base64 text, for a page that has nothing but itself.

Knows arrays and compression; knows nothing of what is sent. The text is base64 of a gzip of: four bytes that say how
long the JSON is, the JSON `{"value": ..., "arrays": [...]}`, the arrays' bytes. In the value an array is
`{"$array": index}`. Equal arrays are sent once; an array's bytes are sent plane by plane, all first bytes, then all
second ones, which compresses far better than number by number. `parcel.js` reads it.
"""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

UNKNOWN, INFINITE = -(2**15), 100
"""Mantissa that stands for NaN, exponent that makes infinity of 1 and -1."""


@dataclass(frozen=True, slots=True)
class Decimals:
    """Numbers as mantissa times a power of ten: few digits, few bytes."""

    mantissas: np.ndarray
    """int16 [n] or [n, m]."""
    exponents: np.ndarray
    """int8, likewise."""


def as_shown(values: np.ndarray) -> Decimals:
    """The values with exactly the digits that the explorer writes: three significant ones, at most three decimals.

    From 32 768 on, where logits and probabilities never are, only four digits are kept.
    """
    size = np.abs(np.where(np.isfinite(values), values, 0).astype(np.float64))
    exponents = np.select(
        [size >= 99.95, size >= 9.995, size >= 0.9995, size >= 0.0005, size > 0], [0, -1, -2, -3, -99]
    )
    tiny = exponents == -99  # written as 1.2e-5
    exponents[tiny] = np.maximum(np.floor(np.log10(size[tiny])) - 1, -50)
    return _decimals(values, exponents)


def to_decimals(values: np.ndarray, decimals: int) -> Decimals:
    """The values with so many decimals."""
    return _decimals(values, np.full(np.shape(values), -decimals))


def _decimals(values: np.ndarray, exponents: np.ndarray) -> Decimals:
    exact = values.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        mantissas = np.rint(exact / 10.0**exponents)
    far = np.isfinite(exact) & (np.abs(mantissas) >= 2**15)
    exponents = np.where(far, np.ceil(np.log10(np.maximum(np.abs(exact), 1))) - 4, exponents)
    mantissas = np.where(far, np.rint(exact / 10.0**exponents), mantissas)
    endless = np.isinf(exact)
    mantissas = np.select([endless, np.isnan(exact)], [np.sign(exact), UNKNOWN], mantissas)
    return Decimals(mantissas.astype("<i2"), np.where(endless, INFINITE, exponents).astype(np.int8))


def parcel(value: Any) -> str:
    """The value as text. NumPy arrays and `Decimals` may stand anywhere in it; the rest is JSON's."""
    packer = _Packer()
    plain = packer.plain(value)
    text = json.dumps(
        {"value": plain, "arrays": packer.about}, ensure_ascii=False, allow_nan=False, separators=(",", ":")
    ).encode()
    data = b"".join([len(text).to_bytes(4, "little"), text, *packer.bytes])
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode("ascii")


class _Packer:
    """Gathers the arrays of a value."""

    def __init__(self) -> None:
        self.about: list[dict[str, Any]] = []
        self.bytes: list[bytes] = []
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
            shape = {} if value.ndim < 2 else {"shape": list(value.shape)}
            return {"$array": self._index(value.ravel())} | shape
        if isinstance(value, Decimals):
            shape = {} if value.mantissas.ndim < 2 else {"shape": list(value.mantissas.shape)}
            parts = (value.mantissas, value.exponents)
            return {"$decimals": [self._index(part.ravel()) for part in parts]} | shape
        return value.item() if isinstance(value, np.generic) else value

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
        self.bytes.append(sent.reshape(-1, array.itemsize).T.tobytes())
        self._arrays.append(array)
        self._latest[kind] = index
        return index
