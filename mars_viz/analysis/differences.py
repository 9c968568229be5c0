"""Two runs in numbers, one beside the other. Knows metrics; knows no figures and no browser.

Every number is exact: each is taken at the run's own setting, on its own text. Only speeds are measured, and only where
a run was really decoded at that setting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from mars_viz.analysis.metrics import speed, summary
from mars_viz.run import Run


class Stands(Enum):
    """What a number of a comparison stands on."""

    EXACT = "exact"
    """On the setting's own text."""
    MEASURED = "measured"
    """Wall clock of the recorded decoding."""


class NumberFormat(Enum):
    """How a number is written."""

    COUNT = "count"
    """As it is."""
    SHARE = "share"
    """In per cent; a difference in percentage points."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One number of two runs."""

    name: str
    """In words."""
    meaning: str
    """What it is, in a line."""
    scale: NumberFormat
    """How it is written."""
    stands: Stands
    """What it stands on."""
    left: float
    """The reference's; NaN where it is not known."""
    right: float
    """The other's; likewise."""

    @property
    def change(self) -> float:
        """right - left."""
        return self.right - self.left


@dataclass(frozen=True, slots=True)
class _Number:
    name: str
    meaning: str
    read: Callable[[Any], float]
    """From a `Summary`, or a `Speed` where it is measured."""
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
    """Both runs in numbers; speeds only where `timed` says that both were really decoded."""
    ours, theirs = summary(left), summary(right)
    found = [_row(number, Stands.EXACT, number.read(ours), number.read(theirs)) for number in _NUMBERS]
    if timed:
        clocks = speed(left), speed(right)
        found += [_row(clock, Stands.MEASURED, *(clock.read(each) for each in clocks)) for clock in _CLOCKS]
    return tuple(found)


def _row(number: _Number, stands: Stands, left: float, right: float) -> Difference:
    return Difference(number.name, number.meaning, number.scale, stands, float(left), float(right))
