"""Strict JSON files as dataclasses. Files are untrusted: fields have types, and numbers and texts have bounds."""

from __future__ import annotations

import json
import math
import types
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from mars_viz.bounds import LONGEST_TEXT, MOST_NAMES, NUMBERS, OPTION, OWN_LENGTHS, Bounds, shortened
from mars_viz.errors import RunFileError

LARGEST = 8 << 20  # bytes of a JSON file; a prompt token takes about 9, so hundreds of thousands fit
MOST_BRACKETS = 500_000
"""Opening brackets in a file, including those in strings; each list or dict takes 20 times its size as text."""

_ADDED: Mapping[str, frozenset[str]] = {
    "Settings": frozenset({"tree", "controller"}),
    "Provenance": frozenset({"chat"}),
    "Span": frozenset({"over"}),
    "Manifest": frozenset({"tags", "history"}),
    "Costs": frozenset({"others", "passes_per_token", "tree", "drafting"}),
}
"""Fields by record that older files may lack; they get the default."""
_RENAMED = {("Cost", "median"): "seconds"}  # fields that older files have under another name

T = TypeVar("T")


def headed(data: bytes, name: str, noun: str, newest: int, oldest: int | None = None) -> tuple[dict[str, Any], int]:
    """Return the other fields of a JSON file with format and schema, and the schema. Raises BadInput for another format
    and for a schema that is not from `oldest` (None: the newest) to `newest`."""
    fields = strict_json(data, name)
    if not isinstance(fields, dict) or fields.pop("format", None) != f"mars-viz-{noun}":
        raise RunFileError(f"{name} is not that of a {noun}. Choose a folder written by MARS Viz.")
    schema = fields.pop("schema", None)
    if type(schema) is int and schema > newest:
        raise RunFileError(f"It was made by a newer MARS Viz (schema {schema}, this one reads {newest}); update.")
    if type(schema) is not int or schema < (newest if oldest is None else oldest):
        reads = f"{shortened(schema)}; this MARS Viz reads {newest}"
        raise RunFileError(f"{name} has the schema {reads}. Record the {noun} again.")
    return fields, schema


def strict_json(data: bytes, name: str) -> Any:
    """Parse JSON. Raises BadInput if it is invalid or far too large; size is checked before parsing."""
    if len(data) > LARGEST or data.count(b"[") + data.count(b"{") > MOST_BRACKETS:
        raise RunFileError(f"{name} is far too large. Take a fresh copy, or record the run again.")
    try:
        value = json.loads(data.decode(), parse_constant=_finite, parse_float=_finite)
        if b"\\u" in data:  # UTF-8 cannot contain half of a surrogate pair, but escapes can
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise RunFileError(f"{name} is damaged or no JSON. Take a fresh copy, or record the run again.") from error
    return value


def _finite(text: str) -> float:
    """Parse a number; NaN and Infinity are not JSON."""
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text} is no number")
    return value


@dataclass(frozen=True, slots=True)
class _Limits:
    """The bounds of a field's numbers and texts; they apply to each one of a list or mapping."""

    numbers: Bounds | None
    longest: float  # characters

    def check(self, value: Any, where: str) -> None:
        if isinstance(value, str) and len(value) > self.longest:
            raise RunFileError(f"{where} has {len(value):,} characters; {self.longest:,} are the most.")
        if type(value) in (int, float) and not (self.numbers is not None and self.numbers.holds(value)):
            wanted = "no number" if self.numbers is None else self.numbers.words
            raise RunFileError(f"{where} is {shortened(value)}; it must be {wanted}.")


@cache
def _fields(cls: type) -> dict[str, tuple[Any, _Limits]]:
    """Return type hint and limits of each field; cached because it runs for every record."""
    hints, described = get_type_hints(cls), {}
    for field in fields(cls):
        bounds = (OPTION in field.metadata and field.metadata[OPTION].bounds) or NUMBERS.get(field.name)
        longest = math.inf if (cls.__name__, field.name) in OWN_LENGTHS else LONGEST_TEXT
        described[field.name] = hints[field.name], _Limits(bounds, longest)
    return described


@cache
def _parts(hint: Any) -> tuple[Any, tuple[Any, ...], bool]:
    """Return origin, arguments and whether it is a dataclass; cached because it runs for every value."""
    return get_origin(hint), get_args(hint), is_dataclass(hint)


def parsed(cls: type[T], value: object, where: str) -> T:
    """Build a dataclass from parsed JSON. Raises BadInput if fields are missing, unknown, of another type, or out of
    bounds."""
    described = _fields(cls)  # type: ignore[arg-type]
    names = set(described)
    if isinstance(value, dict):
        value = {_RENAMED.get((cls.__name__, name), name): value[name] for name in value}
        names -= _ADDED.get(cls.__name__, frozenset()) - value.keys()
    if not isinstance(value, dict) or value.keys() != names:
        raise RunFileError(f"{where} does not hold exactly {', '.join(sorted(names))}. Take a fresh copy.")
    return cls(
        **{name: _typed(described[name][0], value[name], f"{where}: {name}", described[name][1]) for name in names}
    )


def _typed(hint: Any, value: object, where: str, limits: _Limits) -> Any:
    """Convert parsed JSON to the annotated type; lists become tuples, and integers floats."""
    origin, arguments, is_record = _parts(hint)
    if is_record:
        return parsed(hint, value, where)
    if origin in (Union, types.UnionType):
        (inner,) = (argument for argument in arguments if argument is not type(None))
        return None if value is None else _typed(inner, value, where, limits)
    if origin is tuple and isinstance(value, list | tuple):
        if arguments[0] is int and set(map(type, value)) == {int}:  # a long prompt, whose ends suffice
            for end in (min(value), max(value)):
                limits.check(end, where)
            return tuple(value)
        return tuple(_typed(arguments[0], item, where, limits) for item in value)
    if origin is Mapping and isinstance(value, dict):
        if len(value) > MOST_NAMES:
            raise RunFileError(f"{where} has {len(value):,} names; {MOST_NAMES} are the most.")
        for key in value:
            limits.check(key, where)
        return {key: _typed(arguments[1], item, where, limits) for key, item in value.items()}
    if isinstance(hint, type) and issubclass(hint, Enum) and value in [each.value for each in hint]:
        return hint(value)
    if hint is float and type(value) is int and abs(value) < 2**53:
        value = float(value)
    if type(value) is not hint:
        raise RunFileError(f"{where} is not of the expected kind. Take a fresh copy, or record the run again.")
    limits.check(value, where)
    return value
