"""How arrays travel: end to end in one block of bytes, beside JSON that says where each begins; or inside the JSON.

Knows dicts, lists and arrays, and not what they mean. `run.js` reads both.
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
    """A value in two parts."""

    head: Any
    """JSON; an array is `{"type": numpy dtype, "at": first byte, "length": numbers}`."""
    data: np.ndarray
    """uint8; the arrays, little endian, each at a multiple of eight bytes."""

    @property
    def digest(self) -> str:
        """Of all of it, in hexadecimal."""
        found = hashlib.blake2b(json.dumps(self.head, sort_keys=True).encode(), digest_size=12)
        found.update(self.data.data)
        return found.hexdigest()


def packed(value: Any) -> Packed:
    """The value with its arrays aside. They are copied once, whatever their number."""
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
    """The value as JSON; an array is `{"type": numpy dtype, "data": base64}`."""
    return _replaced(
        value,
        lambda array: {"type": array.dtype.name, "data": base64.b64encode(_little(array).tobytes()).decode("ascii")},
    )


def identified(payload: dict[str, Any]) -> dict[str, Any]:
    """The payload with an `id` that tells it from any other."""
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
