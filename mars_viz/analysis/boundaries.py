"""Where a rule at its dial value divides a plane of two quantities: the straight line that its verdicts follow best.

Knows rulings; knows no figures and no browser. The line is found from the verdicts on the run, never from a rule's
formula: a rule that reads the quantity of an axis divides the plane exactly there, at its dial value; one that reads
something else is given the line with the fewest exceptions, and their number. P is the number of drafted positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from mars_viz.analysis.judgements import Ruling


class LooseSide(Enum):
    """Where the loose side of a boundary lies."""

    LEFT = "left"
    """Kept where the horizontal quantity is smaller: a vertical line."""
    ABOVE = "above"
    """Kept where the vertical quantity is larger: a horizontal line."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """A rule's boundary in a plane."""

    ruling: Ruling
    """Whose."""
    side: LooseSide
    """Which way it divides."""
    value: float
    """Where the line stands, on its own axis."""
    exceptions: int
    """Positions that lie on the wrong side of it."""
    positions: int
    """Positions whose verdict the dial decides; no others are divided."""


@dataclass(frozen=True, slots=True)
class _Cut:
    value: float
    exceptions: int
    likeness: float


def boundary(ruling: Ruling, across: np.ndarray, up: np.ndarray) -> Boundary | None:
    """The ruling's boundary among positions at (`across`, `up`), float64 [P] each.

    None where there is nothing to divide: the dial decides no position, or all that it decides fall the same way.
    """
    dial, verdicts = ruling.rule.dial, ruling.opinion.verdicts
    if dial is None or ruling.dial is None:
        return None
    chosen = np.flatnonzero(~np.isnan(verdicts.breakpoints) & np.isfinite(across) & np.isfinite(up))
    at = verdicts.breakpoints[chosen]
    loose = ruling.dial < at if dial.strict_is_high else ruling.dial >= at
    if verdicts.gap_from is not None:
        loose |= ruling.dial < verdicts.gap_from[chosen]  # kept there too
    if loose.all() or not loose.any():
        return None
    cuts = {
        LooseSide.LEFT: _cut(across[chosen], at, loose, ruling.dial),
        LooseSide.ABOVE: _cut(-up[chosen], at, loose, ruling.dial),
    }
    side = min(cuts, key=lambda side: (cuts[side].exceptions, -cuts[side].likeness))
    value = cuts[side].value if side is LooseSide.LEFT else -cuts[side].value
    return Boundary(ruling, side, value, cuts[side].exceptions, len(chosen))


def _cut(place: np.ndarray, at: np.ndarray, loose: np.ndarray, dial: float) -> _Cut:
    """The cut with the fewest exceptions, loose where `place` is smaller.

    Between its two neighbours it stands where the breakpoints, taken as straight between them, equal the dial's value.
    """
    order = np.argsort(place, kind="stable")
    place, at, loose = place[order], at[order], loose[order]
    wrong = np.concatenate([[0], np.cumsum(~loose)]) + np.concatenate([np.cumsum(loose[::-1])[::-1], [0]])
    wrong[1:-1][place[1:] == place[:-1]] = len(place) + 1  # equals are not divided
    cut = int(np.argmin(wrong))
    if cut in (0, len(place)):
        value = float(place[min(cut, len(place) - 1)])
    else:
        left, right = place[cut - 1], place[cut]
        span = at[cut] - at[cut - 1]
        share = np.clip((dial - at[cut - 1]) / span, 0.0, 1.0) if span else 0.5
        value = float(left + share * (right - left))
    straight = len(place) > 2 and np.ptp(place) > 0 and np.ptp(at) > 0
    likeness = abs(float(np.corrcoef(place, at)[0, 1])) if straight else 0.0
    return _Cut(value, int(wrong[cut]), likeness)
