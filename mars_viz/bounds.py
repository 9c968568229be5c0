"""Limits of numbers and texts in files: manifests and the ids, counts and floats of tables.

Files are untrusted. The limits are above all real runs, and low enough that arithmetic and memory stay safe without
further checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from numbers import Integral, Real
from typing import Any

from mars_viz.errors import RunFileError

VOCABULARY = 1 << 20
"""Upper limit of token ids; the largest vocabularies have about 260,000 entries, and one of translation models 900,000.
"""
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

    def plain(self, value: Any) -> float:
        """Convert NumPy numbers to Python's types."""
        return int(value) if self.kind is Integral else float(value)


def whole(low: int, high: int, words: str = "") -> Bounds:
    """Return the range of integers."""
    return Bounds(Integral, low, high, words or f"a whole number from {low:,} to {high:,}")


def real(low: float, high: float, words: str = "") -> Bounds:
    """Return the range of numbers."""
    return Bounds(Real, low, high, words or f"a number from {low:g} to {high:g}")


_TOKEN = whole(0, VOCABULARY - 1)
TEMPERATURE = real(0, 100)
_DIAL = real(-1e6, 1e6)
_TAKEN = real(0, SECONDS)
_COUNTED = whole(0, COUNT)
_COST = real(-SECONDS, SECONDS)

NUMBERS: Mapping[str, Mapping[str, Bounds]] = {
    "Settings": {"dial": _DIAL},  # the others are options
    "Provenance": {
        "eos_ids": _TOKEN,
        "vocabulary_size": whole(0, VOCABULARY),
        "seconds": _TAKEN,
        "prefill_seconds": _TAKEN,
    },
    "Manifest": {"prompt_ids": _TOKEN, "rounds": whole(0, TOKENS), "tokens": whole(0, TOKENS)},
    "Stamp": {"bytes": whole(0, 2**40)},
    "MapFacts": {"passes": _COUNTED, "seconds": _TAKEN, "answers": whole(0, TOKENS)},
    "Span": {"low": _DIAL, "high": _DIAL, "gammas": whole(1, LONGEST_DRAFT)},
    "RaceManifest": {"seconds": _TAKEN, "turns": _TAKEN},
    "Solo": {"token_ids": _TOKEN, "clock": _TAKEN},
    "Plan": {
        "low": _DIAL,
        "high": _DIAL,
        "prompts": _COUNTED,
        "graded": _COUNTED,
        "skipped": _COUNTED,
        "later_turns": _COUNTED,
    },
    "Costs": {
        "cache_length": whole(0, TOKENS),
        "repeats": _COUNTED,
        "others": real(0, 1e6),
        "passes_per_token": real(0, 1e6),
    },
    "Cost": {"seconds": _COST, "low": _COST, "high": _COST},
}
"""Bounds by record and field; they apply to each number of a list or mapping."""

OWN_LENGTHS = {
    *(("Manifest", "prompt"), ("History", "system"), ("Exchange", "prompt"), ("Exchange", "answer")),
    ("Settings", "stop"),
}
"""Texts with limits elsewhere: conversations by file size, stop strings in `Settings`."""


def check(record: Any, where: str) -> None:
    """Raise BadInput if a number or text of a record, or of a nested one, is out of bounds; `where` names the file."""
    for name, bounds, longest in _of_fields(type(record)):  # type: ignore[arg-type]
        _check(getattr(record, name), bounds, longest, where, name)


@cache
def _of_fields(kind: type) -> tuple[tuple[str, Bounds | None, int | None], ...]:
    """Return name, bounds of numbers and longest text of each field."""
    named = [field.name for field in fields(kind)]
    options = {field.name: field.metadata[OPTION].bounds for field in fields(kind) if OPTION in field.metadata}
    bounds_by_name = {**NUMBERS.get(kind.__name__, {}), **options}
    lengths = (None if (kind.__name__, name) in OWN_LENGTHS else LONGEST_TEXT for name in named)
    return tuple((name, bounds_by_name.get(name), longest) for name, longest in zip(named, lengths, strict=True))


def _check(value: Any, bounds: Bounds | None, longest: int | None, where: str, name: str) -> None:
    if isinstance(value, str):
        if longest is not None and len(value) > longest:
            raise RunFileError(
                f"{where} holds a text of {len(value):,} characters as {name}; {longest:,} are the most."
            )
    elif is_dataclass(value):
        check(value, where)
    elif isinstance(value, Mapping):
        if len(value) > MOST_NAMES:
            raise RunFileError(f"{where} lists {len(value):,} {name}; {MOST_NAMES} are the most.")
        for key, item in value.items():
            _check(key, None, longest, where, name)
            _check(item, bounds, longest, where, name)
    elif isinstance(value, tuple):
        if (
            bounds is not None
            and set(map(type, value)) == {int}
            and bounds.holds(min(value))
            and bounds.holds(max(value))
        ):
            return  # fast path for long prompts
        for item in value:
            _check(item, bounds, longest, where, name)
    elif isinstance(value, Real) and not isinstance(value, bool) and not (bounds is not None and bounds.holds(value)):
        expected = "no number" if bounds is None else bounds.words
        raise RunFileError(f"{where} says that {name} is {shortened(value)}; it must be {expected}.")


def shortened(value: object) -> str:
    """Return a value's repr for messages, cut to 40 characters."""
    try:
        text = repr(value)
    except ValueError:  # more digits than Python converts
        return "a number of thousands of digits"
    return text if len(text) <= 40 else f"{text[:39]}…"
