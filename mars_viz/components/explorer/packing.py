"""Serialize nested dicts and lists with arrays: as JSON plus one block of bytes, or as JSON with base64.

`run.js` reads both formats.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

_ALIGNED = 8


@dataclass(frozen=True, slots=True)
class Packed:
    """A value as JSON and bytes."""

    head: Any  # JSON; an array is `{"type": numpy dtype, "at": first byte, "length": count}`
    data: np.ndarray  # uint8; the arrays in little-endian order, each aligned to eight bytes

    @property
    def digest(self) -> str:
        """Hexadecimal digest of head and data."""
        digest = hashlib.blake2b(json.dumps(self.head, sort_keys=True).encode(), digest_size=12)
        digest.update(self.data.data)
        return digest.hexdigest()


def packed(value: Any) -> Packed:
    """Separate the arrays from the value. Each array is copied once."""
    parts: list[np.ndarray] = []
    size = 0

    def aside(array: np.ndarray) -> dict[str, Any]:
        nonlocal size
        data = _little(array).view(np.uint8)
        parts.extend([data, np.zeros(-len(data) % _ALIGNED, np.uint8)])
        at, size = size, size + len(data) + len(parts[-1])
        return {"type": array.dtype.name, "at": at, "length": len(array)}

    head = _replaced(value, aside)
    return Packed(head, np.concatenate(parts) if parts else np.zeros(0, np.uint8))


def plain(value: Any) -> Any:
    """Return the value as JSON; an array is `{"type": numpy dtype, "data": base64}`."""
    return _replaced(
        value,
        lambda array: {"type": array.dtype.name, "data": base64.b64encode(_little(array).tobytes()).decode("ascii")},
    )


def identified(payload: dict[str, Any]) -> dict[str, Any]:
    """Return the payload with an `id` computed from its contents."""
    return {"id": packed(payload).digest, **payload}


def _replaced(value: Any, by: Callable[[np.ndarray], Any]) -> Any:
    if isinstance(value, np.ndarray):
        return by(value)
    if isinstance(value, dict):
        return {name: _replaced(item, by) for name, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, by) for item in value]
    return value


def _little(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
