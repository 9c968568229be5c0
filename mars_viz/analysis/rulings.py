"""Combined rulings on one run: agreement, boundaries in a plane, equivalent dial values, and shifted logits.

R is the number of rules, P the number of drafted positions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum

import numpy as np

from mars_viz.analysis.judgements import Judgement, Ruling
from mars_viz.records import Speculation, Verdicts
from mars_viz.rules import Dial, Rule
from mars_viz.run import Run
from mars_viz.trace import Speculations


class Say(IntEnum):
    """A rule's verdict on a position."""

    KEEPS = 0  # kept, also by the rule's strict end
    RELAXES = 1  # kept although the strict end rejects
    REJECTS = 2


@dataclass(frozen=True, slots=True)
class Agreement:
    """Verdicts of many rules on the positions of one run."""

    rulings: tuple[Ruling, ...]  # each rule at its dial value, in order; R of them
    says: np.ndarray  # int8 [R, P]; each verdict as a `Say`, whether or not the rule's own walk reaches the position
    reached: np.ndarray  # bool [R, P]; the rule's walk reaches the position
    keepers: np.ndarray  # int64 [P]; number of rules that keep the position
    disputed: np.ndarray
    """bool [P]; some rule keeps the position and some other rejects it, and at least one of them reaches it."""

    def against(self, ruling: Ruling) -> np.ndarray:
        """Return the number of verdicts of each rule that differ from those of `ruling`, int64 [R]."""
        keeps = self.says != Say.REJECTS
        return np.count_nonzero(keeps != ruling.keeps, axis=1)


def agreement(rulings: Sequence[Ruling], positions: int) -> Agreement:
    """Combine rulings on one run with `positions` drafted positions."""
    verdicts = [(ruling.keeps, ruling.relaxes, ruling.reached) for ruling in rulings]
    keeps, relaxes, reached = np.array(verdicts, bool).reshape(len(rulings), 3, positions).swapaxes(0, 1)
    keepers = np.count_nonzero(keeps, axis=0)
    return Agreement(
        rulings=tuple(rulings),
        says=np.where(keeps, np.where(relaxes, Say.RELAXES, Say.KEEPS), Say.REJECTS).astype(np.int8),
        reached=reached,
        keepers=keepers,
        disputed=(keepers > 0) & (keepers < len(rulings)) & reached.any(axis=0),
    )


class LooseSide(Enum):
    """The loose side of a boundary."""

    LEFT = "left"  # kept if the horizontal quantity is smaller: a vertical line
    ABOVE = "above"  # kept if the vertical quantity is larger: a horizontal line


@dataclass(frozen=True, slots=True)
class Boundary:
    """A rule's boundary in a plane."""

    ruling: Ruling
    side: LooseSide
    value: float  # position of the line on its axis
    exceptions: int  # number of positions on the wrong side
    positions: int  # number of positions whose verdict the dial decides; the others are not divided


def boundary(ruling: Ruling, across: np.ndarray, up: np.ndarray) -> Boundary | None:
    """Return the ruling's boundary among positions at (`across`, `up`), float64 [P] each. None if there is nothing to
    divide: the dial decides no position, or all decided positions have the same verdict."""
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
    side = min(cuts, key=lambda side: cuts[side][:2])
    exceptions, _, value = cuts[side]
    return Boundary(ruling, side, value if side is LooseSide.LEFT else -value, exceptions, len(chosen))


def _cut(place: np.ndarray, at: np.ndarray, loose: np.ndarray, dial: float) -> tuple[int, float, float]:
    """Return the cut with the fewest exceptions, loose for smaller `place`: their number, minus the correlation of
    places and breakpoints, and its place. Between its two neighbours, breakpoints are interpolated linearly, and the
    cut is at the dial's value."""
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
    return int(wrong[cut]), -likeness, value


@dataclass(frozen=True, slots=True)
class Equivalent:
    """The setting of a rule that comes closest to a set of kept positions."""

    rule: Rule
    dial: float | None
    """A short value between `low` and `high`; None for a rule without a dial, or whose dial moves no verdict here."""
    low: float  # smallest dial value with the same verdicts on this run. NaN without a value.
    high: float  # dial value at which the verdicts change again; at the dial's end, just above it. NaN without a value.
    differing: int  # number of verdicts that still differ
    positions: int  # number of positions compared


def equivalent(opinion: Judgement, like: Ruling) -> Equivalent:
    """Return the setting whose kept positions differ least from those of `like`, a ruling on the same run. Of equally
    close settings, the one closest to the rule's strict end."""
    rule, verdicts, target = opinion.rule, opinion.verdicts, like.keeps
    if rule.dial is None or np.isnan(verdicts.breakpoints).all():
        differing = int(np.count_nonzero(verdicts.keeps(math.nan) != target))
        return Equivalent(rule, None, math.nan, math.nan, differing, len(target))
    at, differing_after = _differing(verdicts, target)
    lows = np.unique(np.concatenate([[rule.dial.low], at[(at > rule.dial.low) & (at <= rule.dial.high)]]))
    counts = differing_after[np.searchsorted(at, lows, side="right")]
    nearest = np.flatnonzero(counts == counts.min())
    chosen = int(nearest[-1] if rule.dial.strict_is_high else nearest[0])
    low = float(lows[chosen])
    high = float(lows[chosen + 1]) if chosen + 1 < len(lows) else math.nextafter(rule.dial.high, math.inf)
    same = like.dial if like.rule.dial == rule.dial else None
    value = short_value(rule.dial, low, high, same)
    return Equivalent(rule, value, low, high, int(counts[chosen]), len(target))


def _differing(verdicts: Verdicts, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the dial values at which verdicts flip, ascending [F], and the number that differ from `wanted`, [F + 1].

    The counts are those below the first flip, then from each flip on. A node with a gap flips twice: at the start of
    the gap, and at the breakpoint, its end.
    """
    gaps = verdicts.gaps
    moved, gapped = ~np.isnan(verdicts.breakpoints), ~np.isnan(gaps)
    below, above = (np.int64(1) * (side != wanted) for side in (verdicts.keep_below, verdicts.keep_above))
    first = np.where(gapped, ~wanted, below)
    at = np.concatenate([verdicts.breakpoints[moved], gaps[gapped]])
    change = np.concatenate([(above - below)[moved], (below - first)[gapped]])
    order = np.argsort(at)
    return at[order], first.sum() + np.concatenate([[0], np.cumsum(change[order])])


def short_value(dial: Dial, low: float, high: float, liked: float | None = None) -> float:
    """Return a value with low <= value < high that is short to write. Prefers `liked`, then the dial's default, if they
    are in the range."""
    for value in (liked, dial.default):
        if value is not None and low <= value < high:
            return value
    middle = (low + min(high, dial.high)) / 2
    for decimals in range(7):
        for near in (round(middle, decimals), math.ceil(low * 10**decimals) / 10**decimals):
            if low <= near < high and dial.low <= near <= dial.high:
                return near
    return low


@dataclass(frozen=True, slots=True)
class Shifted:
    """The effect of a shift on one rule's verdicts."""

    ruling: Ruling  # before the shift
    changed: np.ndarray  # bool [P]; the shift reverses the verdict on the position

    @property
    def keeps(self) -> np.ndarray:
        """bool [P]; the verdicts after the shift."""
        keeps: np.ndarray = self.ruling.keeps ^ self.changed
        return keeps

    @property
    def count(self) -> int:
        """Number of verdicts that change."""
        return int(np.count_nonzero(self.changed))


def shifted(speculation: Speculation, c: float) -> Speculation:
    """Return the speculation of a target whose logits are all larger by `c`. Logits become float64, because rounding to
    float32 would change their differences."""
    scale = speculation.temperature or 1.0
    by = dict.fromkeys(("z", "top_logits", "logsumexp", "emission_z"), c) | {"logsumexp_t": c / scale}
    columns = speculation.columns
    return speculation.with_columns(
        {name: columns[name].astype(np.float64) + by[name] for name in by if name in columns}
    )


def moved(run: Run, c: float) -> Speculations:
    """Return all of the run's speculations, shifted by `c`."""
    return Speculations.of([shifted(each, c) for each in run.trace.speculations])


def compared(ruling: Ruling, c: float, after: Speculations | None = None) -> Shifted:
    """Return the changes of the ruling's verdicts, at the same dial value, after `c` is added to every logit. `after`
    is the result of `moved` for their run; pass it to share it between several rules."""
    after = after or moved(ruling.opinion.run, c)
    verdicts = ruling.rule.judge_all(after)
    return Shifted(ruling, verdicts.keeps(np.nan if ruling.dial is None else ruling.dial) != ruling.keeps)
