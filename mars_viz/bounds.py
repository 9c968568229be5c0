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


TEMPERATURE = real(0, 100)

NUMBERS: Mapping[str, Bounds] = {
    **dict.fromkeys(("eos_ids", "prompt_ids", "token_ids"), whole(0, VOCABULARY - 1)),
    **dict.fromkeys(("rounds", "tokens", "answers", "cache_length"), whole(0, TOKENS)),
    **dict.fromkeys(("passes", "prompts", "graded", "skipped", "later_turns", "repeats"), whole(0, COUNT)),
    **dict.fromkeys(("prefill_seconds", "turns", "clock"), real(0, SECONDS)),
    **dict.fromkeys(("low", "high", "seconds"), real(-SECONDS, SECONDS)),  # a cost's interval may be below zero
    **dict.fromkeys(("others", "passes_per_token"), real(0, 1e6)),
    "dial": real(-1e6, 1e6),
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


def check(record: Any, where: str) -> None:
    """Raise BadInput if a number or text of a record, or of a nested one, is out of bounds; `where` names the file."""
    for name, bounds, longest in _of_fields(type(record)):  # type: ignore[arg-type]
        _check(getattr(record, name), bounds, longest, where, name)


@cache
def _of_fields(kind: type) -> tuple[tuple[str, Bounds | None, int | None], ...]:
    """Return name, bounds of numbers and longest text of each field."""
    described = []
    for field in fields(kind):
        bounds = (OPTION in field.metadata and field.metadata[OPTION].bounds) or NUMBERS.get(field.name)
        longest = None if (kind.__name__, field.name) in OWN_LENGTHS else LONGEST_TEXT
        described.append((field.name, bounds, longest))
    return tuple(described)


def _check(value: Any, bounds: Bounds | None, longest: int | None, where: str, name: str) -> None:
    if isinstance(value, str):
        if longest is not None and len(value) > longest:
            size = f"{len(value):,} characters as {name}; {longest:,} are the most"
            raise RunFileError(f"{where} holds a text of {size}.")
    elif is_dataclass(value):
        check(value, where)
    elif isinstance(value, Mapping):
        if len(value) > MOST_NAMES:
            raise RunFileError(f"{where} lists {len(value):,} {name}; {MOST_NAMES} are the most.")
        for key, item in value.items():
            _check(key, None, longest, where, name)
            _check(item, bounds, longest, where, name)
    elif isinstance(value, tuple):
        numbers = bounds is not None and set(map(type, value)) == {int}  # their ends suffice, for long prompts
        for item in (min(value), max(value)) if numbers else value:
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
