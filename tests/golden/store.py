"""Columns as compact JSON, and what differs between two sets of them."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).parent / "data"
TOLERANCE = 1e-5  # absolute and relative, of floats
SHORT = 12  # values that are written as they are
LONGEST = 400  # values of a float column that are kept

Columns = dict[str, np.ndarray]
Golden = dict[str, Columns]


def flat(value: Any, name: str = "") -> Columns:
    """Return JSON-like data as columns: the values of equal keys in a list of dicts are one column."""
    if isinstance(value, Mapping):
        parts = [flat(item, f"{name}.{key}" if name else str(key)) for key, item in value.items()]
        return {key: column for part in parts for key, column in part.items()}
    if not isinstance(value, list | tuple):
        return {name: _array([value] if np.ndim(value) == 0 else value)}
    if not any(isinstance(item, Mapping | list | tuple) for item in value):
        return {name: _array(value)}
    parts = [flat(item, f"{name}[]") for item in value]
    keys = dict.fromkeys(key for part in parts for key in part)
    found = {key: [part[key] for part in parts if key in part] for key in keys}
    joined = {key: _array([item for column in columns for item in column.tolist()]) for key, columns in found.items()}
    lengths = {f"{key}#": _array([len(each) for each in columns]) for key, columns in found.items()}
    return (
        {f"{name}#": _array([len(value)])} | joined | {key: each for key, each in lengths.items() if (each != 1).any()}
    )


def _array(values: Any) -> np.ndarray:
    """Return integers as int64, floats as float64 (None as NaN), and all else as text."""
    array = np.asarray(values)
    if array.dtype == object and all(item is None or isinstance(item, int | float) for item in array.ravel()):
        array = array.astype(np.float64)
    if array.dtype.kind in "biu":
        return array.astype(np.int64).ravel()
    return array.astype(np.float64 if array.dtype.kind == "f" else str).ravel()


def packed(column: np.ndarray) -> Any:
    """Return the column as JSON: a short list, or its type, length and compressed bytes."""
    if column.dtype.kind == "U":
        words, codes = np.unique(column, return_inverse=True)
        return {"words": words.tolist(), "codes": packed(codes.astype(np.int64))}
    if column.dtype.kind == "f":
        sample = column[_kept(len(column))]
        data = sample.astype(np.float32)
        if len(column) <= SHORT:
            return {"floats": [float(f"{each:.9g}") for each in sample.tolist()]}
        return {"type": "f4", "length": len(column), "data": _compressed(data)}
    if len(column) <= SHORT:
        return column.tolist()
    kind = next(kind for kind in ("i1", "i2", "i4", "i8") if (column.astype(kind) == column).all())
    return {"type": kind, "length": len(column), "data": _compressed(column.astype(kind))}


def unpacked(value: Any) -> tuple[np.ndarray, int]:
    """Return a stored column and its whole length; of a long float column it has a sample."""
    if isinstance(value, list):
        return np.array(value, np.int64), len(value)
    if "words" in value:
        codes, length = unpacked(value["codes"])
        return (np.array(value["words"], str)[codes] if length else np.array([], str)), length
    if "floats" in value:
        return np.array(value["floats"], np.float64), len(value["floats"])
    kind = np.dtype(value["type"]).newbyteorder("<")
    data = np.frombuffer(zlib.decompress(base64.b64decode(value["data"])), kind)
    return data.astype(np.float64 if kind.kind == "f" else np.int64), value["length"]


def differences(expected: Mapping[str, Any], found: Columns) -> Iterator[str]:
    """Yield a line for each column that differs: its name, the first position, expected and got."""
    for name in sorted(expected.keys() | found.keys()):
        if name not in found or name not in expected:
            yield f"{name}: {'missing' if name not in found else 'new'}"
            continue
        stored, length = unpacked(expected[name])
        column = found[name]
        places = np.arange(len(column))
        if column.dtype.kind == "f" and len(column) == length:
            places = _kept(length)
        if stored.dtype.kind != column.dtype.kind and {stored.dtype.kind, column.dtype.kind} != {"i", "f"}:
            yield f"{name}: expected {stored[:3].tolist()}…, got {column[:3].tolist()}…"
            continue
        column = column[places]
        shared = min(len(stored), len(column))
        wrong = np.flatnonzero(~_equal(stored[:shared], column[:shared]))
        if len(wrong):
            at = int(wrong[0])
            told = f"first at {places[at]}: expected {_shown(stored[at])!r}, got {_shown(column[at])!r}"
            yield f"{name}: {len(wrong)} of {shared} differ, {told}" + _lengths(length, len(found[name]))
        elif length != len(found[name]):
            yield f"{name}:" + _lengths(length, len(found[name])).removeprefix(";")


def load(group: str) -> dict[str, dict[str, Any]]:
    """Return the stored columns of a group's goldens, still packed."""
    path = DATA / f"{group}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def save(group: str, goldens: Mapping[str, Mapping[str, Any]]) -> None:
    """Write a group's packed goldens, a column a line."""
    blocks = []
    for name, columns in goldens.items():
        lines = [f"  {json.dumps(key)}: {json.dumps(columns[key], separators=(',', ':'))}" for key in sorted(columns)]
        blocks.append(f" {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n }")
    (DATA / f"{group}.json").write_text("{\n" + ",\n".join(blocks) + "\n}\n", encoding="utf-8")


def _equal(stored: np.ndarray, column: np.ndarray) -> np.ndarray:
    if stored.dtype.kind == "f" or column.dtype.kind == "f":
        return np.isclose(column.astype(np.float64), stored, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
    return np.asarray(stored == column)


def _kept(length: int) -> np.ndarray:
    """Return the places of a float column that are stored."""
    return np.unique(np.linspace(0, length - 1, min(length, LONGEST)).astype(int)) if length else np.arange(0)


def _compressed(data: np.ndarray) -> str:
    return base64.b64encode(zlib.compress(data.astype(data.dtype.newbyteorder("<")).tobytes(), 9)).decode()


def _lengths(expected: int, found: int) -> str:
    return "" if expected == found else f"; expected {expected} values, got {found}"


def _shown(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
