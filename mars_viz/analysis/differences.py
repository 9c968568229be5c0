"""Differences between two runs in numbers.

Every number is exact: taken at the run's own setting, on its own text. Speeds are measured, and only if a run was
really decoded at that setting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from mars_viz.analysis.metrics import speed, summary
from mars_viz.run import Run


class Stands(Enum):
    """Basis of a number in a comparison."""

    EXACT = "exact"
    """From the setting's own text."""
    MEASURED = "measured"
    """Wall clock of the recorded decoding."""


class NumberFormat(Enum):
    """Format of a number."""

    COUNT = "count"
    SHARE = "share"
    """In per cent; differences in percentage points."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One number of two runs."""

    name: str
    meaning: str
    """Explanation in one line."""
    scale: NumberFormat
    stands: Stands
    left: float
    """The reference's value; NaN if unknown."""
    right: float
    """The other's value; NaN if unknown."""

    @property
    def change(self) -> float:
        """right - left."""
        return self.right - self.left


@dataclass(frozen=True, slots=True)
class _Number:
    name: str
    meaning: str
    read: Callable[[Any], float]
    """Reads a `Summary`, or a `Speed` for measured numbers."""
    scale: NumberFormat = NumberFormat.COUNT


_NUMBERS = (
    _Number("τ", "Acceptance length: tokens / rounds", lambda s: s.tau),
    _Number("tokens", "Emitted tokens, corrections and bonuses included", lambda s: s.tokens),
    _Number(
        "rounds", "Draft-verify cycles: one target pass each, the one over the prompt excluded", lambda s: s.rounds
    ),
    _Number("acceptance", "Drafted tokens that reached the text", lambda s: s.acceptance_rate, NumberFormat.SHARE),
    _Number("relaxed", "Kept tokens that the rule's own strict end rejects", lambda s: s.relaxed),
    _Number("rolled back", "Drafted tokens that did not reach the text", lambda s: s.rolled_back),
    _Number("passes saved", "Target passes spared against one pass a token", lambda s: s.passes_saved_autoregressive),
)
_CLOCKS = (
    _Number("tokens / s", "Tokens / seconds of the decoding, prefill excluded", lambda s: s.tokens_per_second),
    _Number("ms / round", "Milliseconds of a round", lambda s: s.milliseconds_per_round),
    _Number("drafting", "Drafting's part of the rounds' time", lambda s: s.draft_share, NumberFormat.SHARE),
)


def differences(left: Run, right: Run, *, timed: bool) -> tuple[Difference, ...]:
    """Return the differences of two runs; with speeds if `timed`, because both were really decoded."""
    ours, theirs = summary(left), summary(right)
    rows = [_row(number, Stands.EXACT, number.read(ours), number.read(theirs)) for number in _NUMBERS]
    if timed:
        clocks = speed(left), speed(right)
        rows += [_row(clock, Stands.MEASURED, *(clock.read(each) for each in clocks)) for clock in _CLOCKS]
    return tuple(rows)


def _row(number: _Number, stands: Stands, left: float, right: float) -> Difference:
    return Difference(number.name, number.meaning, number.scale, stands, float(left), float(right))
