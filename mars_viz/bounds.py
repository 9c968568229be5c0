"""Limits of numbers and texts in files, and the strict reader of JSON files that checks them.

Files are untrusted. The limits are above all real runs, and low enough that arithmetic and memory stay safe without
further checks.
"""

from __future__ import annotations

import json
import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from numbers import Integral, Real
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from mars_viz.errors import RunFileError, SettingError
from mars_viz.words import clipped

VOCABULARY = 1 << 20
"""Upper limit of token ids; the largest vocabularies have about 260,000 entries, a translation model's 900,000."""
TOKENS = 10_000_000  # tokens of a prompt or a text; the longest context that any model claims
LONGEST_DRAFT = 64  # largest γ
LONGEST_PIECE = 4096  # bytes of a vocabulary entry
WIDEST = 256  # listed candidates per position
HUGE = 1e30  # limit of logits, entropies and divergences; squares do not overflow a double, nor sums a float32
SECONDS = 1e9  # thirty years
COUNT = 10**9  # prompts, passes or measurements
LONGEST_TEXT = 10_000  # characters of a name, a title or a device
OPTION = "option"  # key of a field's metadata with its `options.Option`
MOST_NAMES = 200  # names in a mapping, such as library versions


@dataclass(frozen=True, slots=True)
class Bounds:
    """The range of a number."""

    kind: type  # Integral or Real
    low: float
    high: float  # largest value; NaN and infinity are always outside
    words: str  # for messages

    def holds(self, value: object) -> bool:
        """True for a number of that kind within the bounds; booleans are rejected."""
        return isinstance(value, self.kind) and not isinstance(value, bool) and bool(self.low <= value <= self.high)  # type: ignore[operator]

    def checked(self, value: Any, name: str) -> Any:
        """Return the number in Python's type. Raises SettingError with its name for another value."""
        if not self.holds(value):
            raise SettingError(f"{name} is {shortened(value)}; it must be {self.words}.")
        return int(value) if self.kind is Integral else float(value)


def whole(low: float, high: float, words: str = "") -> Bounds:
    """Return the range of integers."""
    return Bounds(Integral, low, high, words or f"a whole number from {low:,} to {high:,}")


def real(low: float, high: float, words: str = "") -> Bounds:
    """Return the range of numbers."""
    return Bounds(Real, low, high, words or f"a number from {low:g} to {high:g}")


TEMPERATURE = real(0, 100)

NUMBERS: Mapping[str, Bounds] = {
    **dict.fromkeys(("eos_ids", "prompt_ids", "token_ids"), whole(0, VOCABULARY - 1)),
    **dict.fromkeys(("rounds", "tokens", "answers", "cache_length"), whole(0, TOKENS)),
    **dict.fromkeys(("passes", "prompts", "graded", "skipped", "later_turns", "repeats", "exercises"), whole(0, COUNT)),
    **dict.fromkeys(("prefill_seconds", "turns", "clock"), real(0, SECONDS)),
    **dict.fromkeys(("low", "high", "seconds"), real(-SECONDS, SECONDS)),  # a cost's interval may be below zero
    **dict.fromkeys(("others", "passes_per_token"), real(0, 1e6)),
    "right": real(0, COUNT),
    **dict.fromkeys(("dial", "edges"), real(-1e6, 1e6)),
    "vocabulary_size": whole(0, VOCABULARY),
    "bytes": whole(0, 2**40),
    "gammas": whole(1, LONGEST_DRAFT),
    "sizes": whole(1, COUNT),
}
"""Bounds of fields that are not options, by name; they apply to each number of a list or mapping."""

OWN_LENGTHS = {
    *(("Manifest", "prompt"), ("History", "system"), ("Exchange", "prompt"), ("Exchange", "answer")),
    ("Settings", "stop"),
}
"""Texts with limits elsewhere: conversations by file size, stop strings in `Settings`."""


def shortened(value: object) -> str:
    """Return a value's repr for messages, cut to 40 characters."""
    try:
        text = repr(value)
    except ValueError:  # more digits than Python converts
        return "a number of thousands of digits"
    return clipped(text, 40)


LARGEST = 8 << 20  # bytes of a JSON file; a prompt token takes about 9, so hundreds of thousands fit
MOST_BRACKETS = 500_000
"""Opening brackets in a file, including those in strings; each list or dict takes 20 times its size as text."""

_RENAMED = {("Cost", "median"): "seconds"}  # fields that older files have under another name

T = TypeVar("T")


def headed(data: bytes, name: str, noun: str, newest: int, oldest: int | None = None) -> tuple[dict[str, Any], int]:
    """Return the other fields of a JSON file with format and schema, and the schema. Raises BadInput for another format
    and for a schema that is not from `oldest` (None: the newest) to `newest`."""
    fields = strict_json(data, name)
    if not isinstance(fields, dict) or fields.pop("format", None) != f"mars-viz-{noun}":
        raise RunFileError(f"{name} is not that of a {noun}. Choose a folder written by MARS Viz.")
    schema = fields.pop("schema", None)
    if type(schema) is not int or not (newest if oldest is None else oldest) <= schema <= newest:
        remedy = "it is newer; update" if type(schema) is int and schema > newest else f"record the {noun} again"
        raise RunFileError(f"{name} has the schema {shortened(schema)}, and this MARS Viz reads {newest}; {remedy}.")
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


@cache
def _fields(cls: type) -> dict[str, tuple[bool, Any, Bounds | None, float]]:
    """Return of each field whether it has a default, which older files may lack, type hint, bounds of numbers and most
    characters; cached, as it runs for every record."""
    hints, described = get_type_hints(cls), {}
    for field in fields(cls):
        bounds = (OPTION in field.metadata and field.metadata[OPTION].bounds) or NUMBERS.get(field.name)
        longest = math.inf if (cls.__name__, field.name) in OWN_LENGTHS else LONGEST_TEXT
        optional = field.default is not MISSING or field.default_factory is not MISSING
        described[field.name] = optional, hints[field.name], bounds, longest
    return described


def parsed(cls: type[T], value: object, where: str) -> T:
    """Build a dataclass from parsed JSON. Raises BadInput if fields without a default are missing, and if fields are
    unknown, mistyped or out of bounds."""
    described = _fields(cls)  # type: ignore[arg-type]
    found: dict[str, Any] = value if isinstance(value, dict) else {}
    found = {_RENAMED.get((cls.__name__, name), name): each for name, each in found.items()}
    needed = {name for name, (optional, *_) in described.items() if not optional}
    if not isinstance(value, dict) or not needed <= found.keys() <= described.keys():
        names = ", ".join(sorted(needed | (found.keys() & described.keys())))
        raise RunFileError(f"{where} does not hold exactly {names}. Take a fresh copy.")
    return cls(**{name: _typed(each, f"{where}: {name}", *described[name][1:]) for name, each in found.items()})


def _check(value: Any, where: str, bounds: Bounds | None, longest: float) -> None:
    if isinstance(value, str) and len(value) > longest:
        raise RunFileError(f"{where} has {len(value):,} characters; {longest:,} are the most.")
    if type(value) in (int, float) and not (bounds is not None and bounds.holds(value)):
        wanted = "no number" if bounds is None else bounds.words
        raise RunFileError(f"{where} is {shortened(value)}; it must be {wanted}.")


@cache
def _parts(hint: Any) -> tuple[Any, tuple[Any, ...], bool]:
    """Return origin, arguments and whether it is a dataclass; cached because it runs for every value."""
    return get_origin(hint), get_args(hint), is_dataclass(hint)


def _typed(value: object, where: str, hint: Any, *limits: Any) -> Any:
    """Convert parsed JSON to the annotated type; lists become tuples, and integers floats."""
    origin, arguments, is_record = _parts(hint)
    if is_record:
        return parsed(hint, value, where)
    if origin in (Union, types.UnionType):
        (inner,) = (argument for argument in arguments if argument is not type(None))
        return None if value is None else _typed(value, where, inner, *limits)
    if origin is tuple and isinstance(value, list | tuple):
        if arguments[0] is int and set(map(type, value)) == {int}:  # a long prompt, whose ends suffice
            for end in (min(value), max(value)):
                _check(end, where, *limits)
            return tuple(value)
        return tuple(_typed(item, where, arguments[0], *limits) for item in value)
    if origin is Mapping and isinstance(value, dict):
        if len(value) > MOST_NAMES:
            raise RunFileError(f"{where} has {len(value):,} names; {MOST_NAMES} are the most.")
        for key in value:
            _check(key, where, *limits)
        return {key: _typed(item, where, arguments[1], *limits) for key, item in value.items()}
    if isinstance(hint, type) and issubclass(hint, Enum) and value in [each.value for each in hint]:
        return hint(value)
    if hint is float and type(value) is int and abs(value) < 2**53:
        value = float(value)
    if type(value) is not hint:
        raise RunFileError(f"{where} is not of the expected kind. Take a fresh copy, or record the run again.")
    _check(value, where, *limits)
    return value
