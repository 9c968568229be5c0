"""What rulings on one run say together: who keeps what, where a rule divides a plane, which dial keeps what another
keeps, and what a shift of all logits changes.

Knows rulings; knows no figures and no browser. R is the number of rules, P that of drafted positions.
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

    KEEPS = 0
    """As its strict end does."""
    RELAXES = 1
    """Keeps what its strict end rejects."""
    REJECTS = 2
    """Does not keep."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Verdicts of many rules on the positions of one run."""

    rulings: tuple[Ruling, ...]
    """Each rule at its dial value, in order; R of them."""
    says: np.ndarray
    """int8 [R, P]; each verdict as a `Say`, whether or not the rule's own walk gets there."""
    reached: np.ndarray
    """bool [R, P]; the rule's walk gets there."""
    keepers: np.ndarray
    """int64 [P]; how many rules keep the position."""
    disputed: np.ndarray
    """bool [P]; some rule keeps the position and some other rejects it, and at least one of them gets there."""

    def against(self, ruling: Ruling) -> np.ndarray:
        """int64 [R]; verdicts of each rule that differ from those of `ruling`."""
        keeps = self.says != Say.REJECTS
        return np.count_nonzero(keeps != ruling.keeps, axis=1)


def agreement(rulings: Sequence[Ruling], positions: int) -> Agreement:
    """The rulings side by side; all are on the same run, of `positions` drafted positions."""
    shape = (len(rulings), positions)
    keeps = np.array([ruling.keeps for ruling in rulings], bool).reshape(shape)
    relaxes = np.array([ruling.relaxes for ruling in rulings], bool).reshape(shape)
    reached = np.array([ruling.reached for ruling in rulings], bool).reshape(shape)
    keepers = np.count_nonzero(keeps, axis=0)
    return Agreement(
        rulings=tuple(rulings),
        says=np.where(keeps, np.where(relaxes, Say.RELAXES, Say.KEEPS), Say.REJECTS).astype(np.int8),
        reached=reached,
        keepers=keepers,
        disputed=(keepers > 0) & (keepers < len(rulings)) & reached.any(axis=0),
    )


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


@dataclass(frozen=True, slots=True)
class Equivalent:
    """The setting of a rule that comes nearest to a set of kept positions."""

    rule: Rule
    """Whose setting."""
    dial: float | None
    """A short value between `low` and `high`; None for a rule without a dial, or whose dial moves no verdict here."""
    low: float
    """Smallest dial value with the very same verdicts on this run. NaN where there is no value."""
    high: float
    """From here on they are others again; at the dial's end, just above it. NaN where there is no value."""
    differing: int
    """Verdicts that still differ."""
    positions: int
    """Of so many."""


def equivalent(opinion: Judgement, like: Ruling) -> Equivalent:
    """The opinion's setting whose kept positions differ least from those of `like`, a ruling on the same run.

    Of settings that come equally near, the one closest to the rule's strict end.
    """
    rule, verdicts, wanted = opinion.rule, opinion.verdicts, like.keeps
    if rule.dial is None or np.isnan(verdicts.breakpoints).all():
        differing = int(np.count_nonzero(verdicts.keeps(math.nan) != wanted))
        return Equivalent(rule, None, math.nan, math.nan, differing, len(wanted))
    at, differing_after = _differing(verdicts, wanted)
    lows = np.unique(np.concatenate([[rule.dial.low], at[(at > rule.dial.low) & (at <= rule.dial.high)]]))
    counts = differing_after[np.searchsorted(at, lows, side="right")]
    nearest = np.flatnonzero(counts == counts.min())
    chosen = int(nearest[-1] if rule.dial.strict_is_high else nearest[0])
    low = float(lows[chosen])
    high = float(lows[chosen + 1]) if chosen + 1 < len(lows) else math.nextafter(rule.dial.high, math.inf)
    same = like.dial if like.rule.dial == rule.dial else None
    value = short_value(rule.dial, low, high, same)
    return Equivalent(rule, value, low, high, int(counts[chosen]), len(wanted))


def _differing(verdicts: Verdicts, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where verdicts flip, ascending [F], and how many differ from the wanted ones: at first, and from each on [F + 1].

    A node with a gap flips twice: where the gap begins, and at the breakpoint, where it ends.
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
    """A value from `low` up to, but not including, `high` that is short to write.

    It is `liked` if that is there, else the dial's default if that is.
    """
    for value in (liked, dial.default):
        if value is not None and low <= value < high:
            return value
    middle = (low + min(high, dial.high)) / 2
    for decimals in range(7):
        for near in (round(middle, decimals), math.ceil(low * 10**decimals) / 10**decimals):
            if low <= near < high and dial.low <= near <= dial.high:
                return near
    return low


_LOGITS = ("z", "top_logits", "logsumexp", "emission_z")


@dataclass(frozen=True, slots=True)
class Shifted:
    """What a shift does to one rule's verdicts."""

    ruling: Ruling
    """Before the shift."""
    changed: np.ndarray
    """bool [P]; the verdict on the position is the opposite after it."""

    @property
    def keeps(self) -> np.ndarray:
        """bool [P]; the verdicts after it."""
        found: np.ndarray = self.ruling.keeps ^ self.changed
        return found

    @property
    def count(self) -> int:
        """Verdicts that change."""
        return int(np.count_nonzero(self.changed))


def shifted(speculation: Speculation, c: float) -> Speculation:
    """The speculation as a target would have it whose logits are all larger by `c`.

    Logits become float64: rounded to float32, their differences would no longer be what they were.
    """
    scale = speculation.temperature or 1.0
    by = dict.fromkeys(_LOGITS, c) | {"logsumexp_t": c / scale}
    known = {name: speculation.columns[name] for name in by if name in speculation.columns}
    return speculation.with_columns({name: known[name].astype(np.float64) + by[name] for name in known})


def moved(run: Run, c: float) -> Speculations:
    """All of the run's speculations, shifted by `c`."""
    return Speculations.of([shifted(one, c) for one in run.trace.speculations])


def compared(ruling: Ruling, c: float, after: Speculations | None = None) -> Shifted:
    """The ruling's verdicts against the same rule's, at the same dial value, after `c` is added to every logit.

    Who asks this of several rules makes `after`, which is `moved` of their run, once for all of them.
    """
    after = after or moved(ruling.opinion.run, c)
    found = ruling.rule.judge_all(after)
    return Shifted(ruling, found.keeps(np.nan if ruling.dial is None else ruling.dial) != ruling.keeps)
