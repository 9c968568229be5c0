"""Differences between two runs in numbers.

Every number is exact: taken at the run's own setting, on its own text. Speeds are measured, and only if a run was
really decoded at that setting.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from mars_viz.analysis.metrics import Speed, Summary, speed, summary
from mars_viz.run import Run


class Stands(Enum):
    """Basis of a number in a comparison."""

    EXACT = "exact"  # from the setting's own text
    MEASURED = "measured"  # wall clock of the recorded decoding


class NumberFormat(Enum):
    """Format of a number."""

    COUNT = "count"
    SHARE = "share"  # in per cent; differences in percentage points


@dataclass(frozen=True, slots=True)
class Difference:
    """One number of two runs."""

    name: str
    meaning: str  # explanation in one line
    scale: NumberFormat
    stands: Stands
    left: float  # the reference's value; NaN if unknown
    right: float  # the other's value; NaN if unknown

    @property
    def change(self) -> float:
        """right - left."""
        return self.right - self.left


_NUMBERS = (
    ("τ", "tau", "Acceptance length: tokens / rounds"),
    ("tokens", "tokens", "Emitted tokens, corrections and bonuses included"),
    ("rounds", "rounds", "Draft-verify cycles: one target pass each, the one over the prompt excluded"),
    ("acceptance", "acceptance_rate", "Drafted tokens that reached the text"),
    ("relaxed", "relaxed", "Kept tokens that the rule's own strict end rejects"),
    ("rolled back", "rolled_back", "Drafted tokens that did not reach the text"),
    ("passes saved", "passes_saved_autoregressive", "Target passes spared against one pass a token"),
)
"""Name, field of `Summary`, and meaning."""
_CLOCKS = (
    ("tokens / s", "tokens_per_second", "Tokens / seconds of the decoding, prefill excluded"),
    ("ms / round", "milliseconds_per_round", "Milliseconds of a round"),
    ("drafting", "draft_share", "Drafting's part of the rounds' time"),
)
"""Name, field of `Speed`, and meaning."""
_SHARES = ("acceptance", "drafting")


def differences(left: Run, right: Run, *, timed: bool) -> tuple[Difference, ...]:
    """Return the differences of two runs; with speeds if `timed`, because both were really decoded."""
    parts: list[tuple[Stands, tuple[tuple[str, str, str], ...], tuple[Summary | Speed, Summary | Speed]]]
    parts = [(Stands.EXACT, _NUMBERS, (summary(left), summary(right)))]
    if timed:
        parts.append((Stands.MEASURED, _CLOCKS, (speed(left), speed(right))))
    rows = []
    for stands, numbers, sides in parts:
        for name, field, meaning in numbers:
            scale = NumberFormat.SHARE if name in _SHARES else NumberFormat.COUNT
            rows.append(Difference(name, meaning, scale, stands, *(float(getattr(side, field)) for side in sides)))
    return tuple(rows)
