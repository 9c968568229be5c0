"""Where another rule's dial must stand to keep the same positions, as nearly as it can.

Knows verdicts; knows no figures and no browser. Between two flips a rule keeps the same positions, so trying each
stretch between the flips of a run finds the best there is; nothing is sampled. P is the number of positions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mars_viz.analysis.judgements import Judgement, Ruling
from mars_viz.records import Verdicts
from mars_viz.rules import Dial, Rule


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
