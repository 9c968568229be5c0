"""Limits of numbers and texts in files: manifests and the ids, counts and floats of tables.

Files are untrusted. The limits are above all real runs, and low enough that arithmetic and memory stay safe without
further checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from mars_viz.errors import SettingError

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
    return text if len(text) <= 40 else f"{text[:39]}…"
