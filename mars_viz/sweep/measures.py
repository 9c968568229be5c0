"""Figures of a sweep as functions of sums over prompts, exact along the dial and with intervals, and the terms on which
they are judged.

All are exact, on each setting's own text, except modelled ones, which use this device's measured costs instead of the
clock. The page, the command and the evidence pack state the terms once, in the same words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from mars_viz.analysis.intervals import (
    DEFAULT,
    Band,
    Bootstrap,
    Frontier,
    Interval,
    Method,
    Steps,
    band,
    combined,
    divided,
    plain_within,
    wilson,
)
from mars_viz.analysis.recommendation import Changed, loss_bound
from mars_viz.costs import Costs, Factor, at_ends, break_even, objection, per_token
from mars_viz.errors import SettingError
from mars_viz.shapes import shape_named
from mars_viz.sweep.result import SweepResult, spent_by_length
from mars_viz.words import counted, number, ranged, times

FEWEST = 5  # minimum number of prompts or questions for a bootstrap interval; with fewer it would be far too narrow
ROUGH = 30  # number of prompts below which intervals are called rough
METHODS = {method.value.lower(): method for method in (Method.BCA, Method.PERCENTILE)}
"""Selectable methods by name on the command line and in links."""
_MADE = {Method.BCA: "BCa bootstrap (corrected for bias and skew)", Method.PERCENTILE: "percentile bootstrap"}


@dataclass(frozen=True, slots=True)
class Terms:
    """Definition of safe settings and of the intervals in brackets."""

    points: float = 1.0  # tolerated accuracy loss in percentage points, above 0 and at most 100
    how: Bootstrap = DEFAULT  # the confidence, at least 0.5, and the method of intervals
    cut_off: float = 1.0  # tolerated increase of answers that the length limit cuts off, in points as for the loss
    looping: float = 1.0  # tolerated increase of answers that loop, in points

    def __post_init__(self) -> None:
        limits = (self.points, *self.increases.values())
        if not (all(0 < limit <= 100 for limit in limits) and 0.5 <= self.how.confidence < 1):
            raise SettingError(
                "A tolerated loss or increase is above 0 and at most 100 points, the confidence at least 0.5 and below "
                "1. Mend the values (--loss, --cut-off, --looping, --confidence)."
            )

    @property
    def confidence(self) -> float:
        """Confidence of the recommendation, one-sided, and of the intervals, two-sided."""
        return self.how.confidence

    @property
    def increases(self) -> dict[str, float]:
        return {"cut_off": self.cut_off, "looping": self.looping}

    @property
    def safe(self) -> str:
        lost, cut, looping = (
            f"{limit:.4g} point{'' if limit == 1 else 's'}" for limit in (self.points, *self.increases.values())
        )
        return (
            f"Safe: accuracy falls by at most {lost}, and answers that are cut off or loop increase by at most {cut} "
            f"and {looping}, each with {100 * self.confidence:.4g} % confidence."
        )

    def brackets(self, drawn: str, count: int) -> str:
        """Return sentences that define the brackets. `drawn` is the unit of resampling, 'prompts' or 'questions', and
        `count` their number."""
        words = (
            f"In brackets: {100 * self.confidence:.4g} % intervals, {_MADE[self.how.method]} over {drawn}, in pairs "
            f"where settings are compared. {ALL_AGREE}"
        )
        if count < FEWEST:
            return (
                f"{words} Of {counted(count, drawn.removesuffix('s'))} a bootstrap says nothing: shares alone have one."
            )
        return f"{words} Of fewer than {number(ROUGH)} {drawn} they are rough." if count < ROUGH else words

    def facts(self) -> dict[str, Any]:
        limits = {"loss_points": self.points} | {f"{name}_points": each for name, each in self.increases.items()}
        return limits | {"confidence": self.confidence, "method": self.how.method.value}


ALL_AGREE = (
    "Where all prompts agree, a share has Wilson's interval, and an accuracy change the wider of its score and exact "
    "binomial bounds."
)
"""Method of intervals if resampling shows no spread."""


ALONE = "the target alone"  # reference of a speed-up, in words
PLACES = 257  # maximum number of dial values of a band

RATIOS = frozenset(("answer", "answer_strict", "speed_up", "speed_up_strict", "length", "drafted_share"))
"""Figures that are ratios, shown relative to 1."""
PERCENT = frozenset(("accuracy", "accuracy_change", "cut_off", "looping", "relaxed", "same", "agreed", "acceptance"))
"""Figures that are shares, shown as percentages."""


Ends = tuple[float, float]  # the low and the high end of an interval
FigureEnds = Iterator[tuple[np.ndarray, np.ndarray]]
Agreed = Callable[[float, int, float], Ends]
"""From an estimate, the number of questions and the confidence to the ends of an interval."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure of a setting."""

    name: str  # name in files and on the command line
    title: str
    columns: tuple[str, ...]
    """Columns of the sweep's table; the prefix 'strict:' takes a column at the strict end, for every dial value."""
    of: Callable[..., np.ndarray]  # from the columns' means over prompts, each [..., S], to the figure [..., S]
    graded: bool = False  # True if only graded prompts count
    modelled: bool = False  # True if it uses measured costs instead of the clock
    agreed: Agreed | None = None
    """The interval if all prompts agree, because resampling then shows no spread. None keeps the estimate."""
    unchanged: Agreed | None = None  # the interval of a change between settings if it is equal for all prompts
    sure_at_strict: bool = False
    """True for comparisons of texts or grades with strict's, which are certain at the strict end."""
    factor: Factor | None = None
    """The measured cost of which the figure is a multiple; its interval is included. None if there is none."""
    costed: bool = False
    """True if it depends on measured costs. A multiple of a factor needs this for comparisons with figures without
    one."""

    @property
    def basis(self) -> str:
        """A name in `documents.BASES`."""
        return "modelled" if self.modelled else "exact"

    @property
    def of_graded(self) -> Measure:
        """The same figure of the graded prompts alone, without the intervals of costs: that of the frontier."""
        return Measure(self.name, self.title, self.columns, self.of, graded=True, modelled=self.modelled)

    @property
    def against_strict(self) -> bool:
        """True for figures that are known at the strict end without prompts: comparisons with strict, or counts of
        relaxed tokens."""
        at_strict = self.name != "answer" and any(column.startswith("strict:") for column in self.columns)
        return self.sure_at_strict or self.name in ("relaxed", "edits") or at_strict


def spread(found: Interval) -> str:
    """Return a ratio such as '1.20× (1.11 to 1.30)', without an interval if there is none."""
    return ranged(found.scaled(1), "×", words=times)


def cell(measure: Measure, found: Interval) -> str:
    """Return '12.3 (10.1 to 14.0)'; shares as percentages, their differences as points."""
    return told(measure.name, (found.estimate, found.low, found.high))


def told(name: str, values: Sequence[float], *, change: bool = False) -> str:
    """Return a figure's estimate with the ends of its interval in words, or with a note that it has none. A `change` of
    a figure has a sign, and points for percentages."""
    estimate, low, _ = values
    bare = math.isnan(low)
    note = " (no interval)" if bare and not math.isnan(estimate) else ""
    if bare and not change:
        return alone(name, estimate) + note
    scale, unit = (100, " points" if change else _unit(name)) if name in PERCENT else (1, "")
    words = times if name in RATIOS and not change else number
    return ranged([scale * value for value in values], unit, words=words, signed=change) + note


def alone(name: str, estimate: float) -> str:
    """Return a figure without its interval; percentages with at most two decimals."""
    words = number(100 * estimate, 2) if name in PERCENT else (times if name in RATIOS else number)(estimate)
    return words + _unit(name)


def _unit(name: str) -> str:
    return " points" if name == "accuracy_change" else " %" if name in PERCENT else ""


def _pace(tokens: np.ndarray, rounds: np.ndarray, other: np.ndarray, others: np.ndarray) -> np.ndarray:
    return divided(divided(tokens, rounds), divided(other, others))


def _times(factor: float, part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return factor * divided(part, whole)


def _share_ends(share: float, prompts: int, confidence: float) -> Ends:
    interval = wilson(round(share * prompts), prompts, confidence)
    return interval.low, interval.high


def _change_ends(change: float, prompts: int, confidence: float) -> Ends:
    """Return the recommendation's bounds, one on each side, if no question changed or all did in one way.

    Questions also agree if each loses the same part of its turns. A question's change is between -1 and 1. Among such
    changes the two ends vary most, so the interval of a share at the same relative place is at least as wide.
    """
    if change not in (-1, 0, 1):
        part = wilson((1 + change) / 2 * prompts, prompts, confidence)
        return 2 * part.low - 1, 2 * part.high - 1
    changed = Changed(lost=prompts * (change < 0), won=prompts * (change > 0), prompts=prompts)
    turned, each = Changed(changed.won, changed.lost, prompts), (1 + confidence) / 2
    return -loss_bound(changed, each), loss_bound(turned, each)


_EXACT = (
    Measure("tau", "tokens per target pass, τ", ("tokens", "rounds"), divided),
    Measure("passes", "target passes per prompt", ("rounds",), np.positive),
    Measure("tokens", "tokens per prompt", ("tokens",), np.positive),
    Measure("rolled_back", "rolled-back tokens per prompt", ("rolled_back",), np.positive),
    Measure("acceptance", "acceptance rate of drafted tokens", ("kept", "drafted"), divided),
    Measure("relaxed", "relaxed tokens, share of the text", ("relaxed", "tokens"), divided),
    Measure("same", "texts identical to strict", ("same",), np.positive, agreed=_share_ends, sure_at_strict=True),
    Measure("agreed", "strict's text before the first divergence, share", ("agreed", "strict:tokens"), divided),
    Measure("edits", "edit distance to strict, per token of it", ("edit_distance", "strict:tokens"), divided),
    Measure("length", "answer length relative to strict", ("tokens", "strict:tokens"), divided),
    Measure("cut_off", "answers cut off by the length limit", ("cut_off",), np.positive, agreed=_share_ends),
    Measure("looping", "answers that loop", ("looping",), np.positive, agreed=_share_ends),
)
_PACES = (
    Measure("answer_strict", "modelled speed-up of answers over strict", ("strict:rounds", "rounds"), divided),
    Measure(
        "speed_up_strict",
        "modelled speed-up per token over strict",
        ("tokens", "rounds", "strict:tokens", "strict:rounds"),
        _pace,
    ),
)
"""Time per answer, which ends when the text does, and time per token, which longer answers do not lower."""
_OVER_TARGET = {
    "answer": ("modelled speed-up of answers over the target alone", "strict:tokens"),
    "speed_up": ("modelled speed-up per token over the target alone", "tokens"),
}
"""The target alone writes strict's answer, or as many tokens as the setting did."""
DRAFTED = Measure("drafted", "drafted tokens per prompt", ("drafted",), np.positive)
"""The number that a controller reduces; without a controller it follows from the rounds."""
_CUT = (DRAFTED, Measure("drafted_share", "drafted tokens relative to strict", ("drafted", "strict:drafted"), divided))
"""Figures of sweeps with a controller."""
_GRADED = (
    Measure("accuracy", "accuracy", ("right",), np.positive, graded=True, agreed=_share_ends, unchanged=_change_ends),
    Measure(
        "accuracy_change",
        "accuracy change vs strict",
        ("right", "strict:right"),
        np.subtract,
        graded=True,
        agreed=_change_ends,
        sure_at_strict=True,
    ),
)


def measures(result: SweepResult) -> dict[str, Measure]:
    """Return every figure of this sweep by name.

    There is no accuracy without graded prompts, and no speed-up over the target alone without reliable costs. Without a
    controller a round costs the same at every setting, so the speed-up over strict needs no costs.
    """
    plan, settings, costs = result.plan, result.plan.settings, result.costs
    figures = [*_EXACT, *((replace(each, modelled=True) for each in _PACES) if plan.cut_by is None else _CUT)]
    if plan.cut_by is not None:
        figures += _cut_paces(result) if "modelled" in result.lines else ()
    elif costs is not None and costs.cover(settings.gamma, settings.tree) and not objection(costs):
        factor = per_token(costs, settings.gamma)
        of = partial(_times, factor.estimate)
        for name, (title, tokens) in _OVER_TARGET.items():
            figures.append(Measure(name, title, (tokens, "rounds"), of, modelled=True, factor=factor, costed=True))
    if result.graded.any():
        figures += _GRADED
        for name in plan.scores:  # a share if all values are 0 or 1
            share = _share_ends if np.isin(result.lines[name], (0, 1)).all() else None
            figures.append(Measure(name, name, (name,), np.positive, graded=True, agreed=share))
    if plan.over:
        figures = [replace(each, title=each.title.replace("strict", plan.against)) for each in figures]
    return {measure.name: measure for measure in figures}


def _cut_paces(result: SweepResult) -> list[Measure]:
    assert result.costs is not None
    of = partial(_times, result.costs.passes[0].seconds)
    paces = [
        replace(each, columns=tuple(column.replace("rounds", "modelled") for column in each.columns)) for each in _PACES
    ]
    paces += [Measure(name, title, (tokens, "modelled"), of) for name, (title, tokens) in _OVER_TARGET.items()]
    return [replace(each, modelled=True, costed=True) for each in paces]


def _with_costs(name: str, result: SweepResult, costs: Costs, dials: np.ndarray, rows: np.ndarray | None) -> np.ndarray:
    """Return a modelled figure [D] with these costs instead of the sweep's."""
    plan, gamma = result.plan, result.plan.settings.gamma

    def mean(column: str) -> np.ndarray:
        """Return the mean prompt's value, [D], or [1] with the prefix 'strict:'."""
        name, strict = _named(column)
        means: np.ndarray = result.at(name, np.array([plan.strict]) if strict else dials, rows).mean(axis=0)
        return means

    tokens = mean(_OVER_TARGET[name][1]) if name in _OVER_TARGET else mean("tokens")
    if plan.cut_by is None:
        return _times(per_token(costs, gamma).estimate, tokens, mean("rounds"))
    spent = spent_by_length(plan, costs)
    seconds = mean("lengths") @ spent
    if name in _OVER_TARGET:
        return _times(costs.passes[0].seconds, tokens, seconds)
    answers = divided(mean("strict:lengths") @ spent, seconds)
    return answers if name == "answer_strict" else answers * divided(tokens, mean("strict:tokens"))


def _at_ends(name: str, result: SweepResult, dials: np.ndarray, rows: np.ndarray | None) -> FigureEnds:
    """Yield a modelled figure [D] with one cost at the low and the high end of its interval, for each cost in turn."""
    assert result.costs is not None
    for costs in at_ends(result.costs):
        low, high = (_with_costs(name, result, each, dials, rows) for each in costs)
        yield low, high


def curve(result: SweepResult, measure: Measure) -> Steps:
    """Return the figure along the whole dial over all prompts: exact, and NaN if undefined. Raises BadInput if no
    prompt has results."""
    chosen = result.graded if measure.graded else None
    sums = []
    for column in measure.columns:
        name, strict = _named(column)
        pooled = result.summed(name, chosen)
        if strict:
            pooled = Steps(np.array([pooled.low, pooled.high]), np.atleast_1d(pooled.at(result.plan.strict)))
        sums.append(pooled)
    count = len(result) if chosen is None else int(chosen.sum())
    return combined(lambda *values: measure.of(*(value / count for value in values)), *sums).simplified()


def places(result: SweepResult, most: int = PLACES) -> np.ndarray:
    """Return ascending dial values for a band, float64 [D]: places of change, and both ends. Too many are thinned, half
    of them evenly by count and half evenly along the dial, so that no setting is far from its place."""
    inner, half = result.edges[:-1], max(2, most // 2)
    if len(inner) > most - 1:
        along = np.linspace(inner[0], result.plan.high, most - half + 1)  # both ends are also in the other half
        by_count = np.linspace(0, len(inner) - 1, half).round().astype(int)
        inner = inner[np.union1d(by_count, np.searchsorted(inner, along, side="right") - 1)]
    return np.unique(np.append(inner, result.plan.high))


def named_places(result: SweepResult, most: int = PLACES) -> np.ndarray:
    """Return `places` with each value moved within its stretch to the one that is shortest to print; the ends stay."""
    values = places(result, most)
    after = result.edges[np.searchsorted(result.edges, values, side="right")]
    inner = [plain_within(low, high) for low, high in zip(values[1:-1].tolist(), after[1:-1].tolist(), strict=True)]
    return np.unique(np.concatenate([values[:1], inner, values[-1:]]))


def band_at(
    result: SweepResult,
    measure: Measure,
    dials: np.ndarray,
    how: Bootstrap = DEFAULT,
    rows: np.ndarray | None = None,
    units: np.ndarray | None = None,
) -> Band:
    """Return the figure with its interval at these dial values.

    `rows` are indices of prompts, or bool for each (None: all that count, and their `units`). `units` [P] are equal for
    prompts that are drawn together; None if each is drawn separately.

    Prompts are resampled, in pairs for a comparison, with the turns of a conversation together. If all prompts agree, a
    share gets Wilson's interval, and a change of accuracy the recommendation's bounds, the wider of score and exact
    binomial; also Wilson's if all questions lose a part of their turns. For fewer than `FEWEST` prompts only these
    figures have an interval; the others' ends are NaN, except for values that the strict end has by definition.
    """
    if rows is None:
        rows = result.graded if measure.graded else None
        units = result.units_of(rows)
    columns = columns_at(result, measure, dials, rows)
    interval, count = band(measure.of, *columns, how=how, units=units), drawn(columns, units)
    at_strict = dials == result.plan.strict
    if measure.factor is not None:
        return _of_few(costed(interval, (interval.estimate, measure.factor)), count)
    if measure.costed:
        moved = widened(interval, _at_ends(measure.name, result, dials, rows))
        return _of_few(moved, count, at_strict & measure.against_strict)
    sure = measure.sure_at_strict & at_strict
    interval = _of_few(interval, count, at_strict & measure.against_strict)
    return _not_too_sure(interval, measure.agreed, count, sure)


def scaled(found: Interval, factor: float) -> Band:
    """Return an interval times a factor as a band of one segment."""
    estimate, low, high = (np.array([end]) for end in found.scaled(factor))
    return Band(estimate, low, high, found.confidence, found.method)


def costed(found: Band, *parts: tuple[np.ndarray, Factor]) -> Band:
    """Return the band of a sum of parts, each a multiple of its factor, with the factors' intervals included. Prompts
    are drawn and costs measured independently, so their errors add in quadrature."""
    below, above = (found.estimate - found.low) ** 2, (found.high - found.estimate) ** 2
    for part, factor in parts:
        ends = [part * end / factor.estimate - part for end in (factor.low, factor.high)]
        below, above = below + np.minimum(*ends) ** 2, above + np.maximum(*ends) ** 2
    return replace(found, low=found.estimate - np.sqrt(below), high=found.estimate + np.sqrt(above))


def widened(found: Band, moved: Iterable[tuple[np.ndarray, np.ndarray]]) -> Band:
    """Return the band widened by its values at either end of each cost's interval, in quadrature."""
    below, above = (found.estimate - found.low) ** 2, (found.high - found.estimate) ** 2
    for ends in moved:
        changes = [each - found.estimate for each in ends]
        below = below + np.minimum(0, np.minimum(*changes)) ** 2
        above = above + np.maximum(0, np.maximum(*changes)) ** 2
    return replace(found, low=found.estimate - np.sqrt(below), high=found.estimate + np.sqrt(above))


def _of_few(found: Band, count: int, sure: np.ndarray | None = None) -> Band:
    """Return the band without intervals if `count` prompts or questions are too few for a bootstrap. Places that are
    `sure`, bool [S], keep theirs."""
    if count >= FEWEST:
        return found
    kept = np.zeros(found.estimate.shape, bool) if sure is None else np.broadcast_to(sure, found.estimate.shape)
    low, high = (np.where(kept, found.estimate, np.nan) for _ in range(2))
    return replace(found, low=low, high=high)


def _not_too_sure(found: Band, agreed: Agreed | None, count: int, sure: np.ndarray | None = None) -> Band:
    """Return the band with `agreed`'s intervals if resampling `count` prompts or questions shows no spread. Places that
    are `sure`, bool [S], are unchanged."""
    bare = (found.low == found.high) | (np.isnan(found.low) & (count < FEWEST))
    bare = np.flatnonzero(bare & np.isfinite(found.estimate) & (True if sure is None else ~sure))
    if agreed is None or not len(bare):
        return found
    low, high, by_estimate = found.low.copy(), found.high.copy(), dict[float, Ends]()
    for place in bare.tolist():
        estimate = float(found.estimate[place])
        if estimate not in by_estimate:
            by_estimate[estimate] = agreed(estimate, count, found.confidence)
        low[place], high[place] = by_estimate[estimate]
    return replace(found, low=low, high=high)


def value_at(
    result: SweepResult, measure: Measure, dial: float, how: Bootstrap = DEFAULT, *prompts: np.ndarray | None
) -> Interval:
    """Return the figure with its interval at one dial value; `prompts` are rows and units as in `band_at`."""
    return band_at(result, measure, np.array([dial]), how, *prompts).only


ComparedFigure = tuple[SweepResult, Measure, float, np.ndarray]
"""One of two compared figures: a sweep's figure at a dial value, for some of its prompts."""


def change(
    sides: tuple[ComparedFigure, ComparedFigure], how: Bootstrap, units: np.ndarray | None, *, sure: bool = False
) -> Interval:
    """Return the second figure minus the first, paired by resampled prompts. `sure` is True if both are one setting."""
    before, after = (measure for _, measure, *_ in sides)
    first, second = (columns_at(result, measure, np.array([dial]), rows) for result, measure, dial, rows in sides)
    count, drawn_count, same = len(first), drawn(first, units), np.array([sure])
    interval = band(
        lambda *means: after.of(*means[count:]) - before.of(*means[:count]), *first, *second, how=how, units=units
    )
    one, other = before.of(*(each.mean(axis=0) for each in first)), after.of(*(each.mean(axis=0) for each in second))
    if before.factor is not None and after.factor is not None:
        parts = [(interval.estimate, before.factor)]  # all of it depends on a cost that both figures share
        if before.factor != after.factor:
            parts = [(-one, before.factor), (other, after.factor)]
        return _of_few(costed(interval, *parts), drawn_count, same).only
    if before.costed and after.costed:
        ours, theirs = (
            list(_at_ends(measure.name, result, np.array([dial]), rows)) for result, measure, dial, rows in sides
        )
        if sides[0][0].costs == sides[1][0].costs:  # then both move together
            moved = [(high[0] - low[0], high[1] - low[1]) for low, high in zip(ours, theirs, strict=True)]
        else:
            moved = [(other - low, other - high) for low, high in ours]
            moved += [(low - one, high - one) for low, high in theirs]
        return _of_few(widened(interval, moved), drawn_count, same).only
    return _not_too_sure(_of_few(interval, drawn_count, same), before.unchanged, drawn_count, same).only


def columns_at(
    result: SweepResult, measure: Measure, dials: np.ndarray, rows: np.ndarray | None = None
) -> list[np.ndarray]:
    """Return the figure's arguments for these prompts (None: all), float64 [P, D], or [P, 1] without a dial."""
    strict = np.array([result.plan.strict])
    named = (_named(column) for column in measure.columns)
    return [result.at(name, strict if fixed else dials, rows).astype(np.float64) for name, fixed in named]


def drawn(columns: Sequence[np.ndarray], units: np.ndarray | None) -> int:
    """Return the number of resampling units: prompts, or `units` if given."""
    return len(columns[0]) if units is None else len(np.unique(units))


def _named(column: str) -> tuple[str, bool]:
    name = column.removeprefix("strict:")
    return name, name != column


def frontier(result: SweepResult, how: Bootstrap = DEFAULT, most: int = PLACES, *, paired: bool = False) -> Frontier:
    """Return the sweep's path. Raises BadInput if no prompt is graded."""
    by_name, dials = measures(result), named_places(result, most)
    if "accuracy" not in by_name:
        raise SettingError("No prompt of the set is graded, so there is no accuracy to plot. Use a set with answers.")
    alone = None if paired else by_name.get("answer")
    if "answer_strict" not in by_name:
        raise SettingError(f"There is no speed-up to plot. {objection(result.costs)} Measure the costs again.")
    pace = alone or by_name["answer_strict"]
    right = by_name["accuracy_change" if paired else "accuracy"]
    accuracy, speed_up = (band_at(result, measure, dials, how) for measure in (right, pace.of_graded))
    return Frontier(dials, accuracy, speed_up, result.plan.against if alone is None else ALONE, paired)


def relaxed_at(result: SweepResult, dial: float, how: Bootstrap = DEFAULT) -> dict[str, tuple[np.ndarray, Band]]:
    """Return how many tokens a setting relaxes, int64, and their shares, resampled over prompts; NaN if there are none.

    By the target's 'rank' in the bins of `columns.RANKS`, and by 'share', p(x) / p(v1), in those of `columns.SHARES`.
    Raises BadInput outside the span.
    """
    where, found = np.array([dial]), {}
    relaxed = result.at("relaxed", where).astype(np.float64)  # [P, 1]
    for what in ("rank", "share"):
        counts = result.at(f"relaxed_by_{what}", where)[:, 0].astype(np.float64)  # [P, bins]
        shares = band(divided, counts, relaxed, how=how, units=result.units)
        found[what] = counts.sum(axis=0).astype(np.int64), shares
    return found


def positions_at(result: SweepResult, dial: float, how: Bootstrap = DEFAULT) -> dict[str, list[Interval]]:
    """Return shares by position in the draft at a setting, [γ] each, or [depth] for trees: conditional and joint
    acceptance, as in `analysis.engines.position_rates`, and the break-even.

    That is the conditional acceptance from which drafting pays: `costs.break_even` times τ, with the intervals of both,
    over the joint acceptance before. It takes reliable costs, and chains of one length. Raises BadInput outside the
    span.
    """
    plan, costs, at = result.plan, result.costs, np.array([dial])
    gamma, shape = plan.length_at(dial), shape_named(plan.settings.tree).within(plan.settings.gamma)
    depth = shape.depth or gamma or plan.settings.gamma
    accepted = result.at("accepted", at)[:, 0].astype(np.float64)  # [P, γ + 1]
    reached = np.cumsum(accepted[:, ::-1], axis=1)[:, ::-1][:, : depth + 1]
    if "lengths" in result.lines:  # rounds without a drafted token are no drafts
        reached[:, 0] -= result.at("lengths", at)[:, 0, 0]
    count, kinds = drawn([reached], result.units), dict[str, list[Interval]]()
    for name, before in (("conditional", reached[:, :-1]), ("joint", reached[:, :1])):
        found = _of_few(band(divided, reached[:, 1:], before, how=how, units=result.units), count)
        kinds[name] = list(map(_not_too_sure(found, _share_ends, count).at, range(depth)))
    if costs is not None and gamma is not None and costs.cover(gamma, plan.settings.tree) and not objection(costs):
        tau = value_at(result, measures(result)["tau"], dial, how)
        moved = ([np.array([tau.estimate * break_even(each, gamma)]) for each in ends] for ends in at_ends(costs))
        even = widened(scaled(tau, break_even(costs, gamma)), ((low, high) for low, high in moved)).only
        shares = [1.0, *(each.estimate for each in kinds["joint"][:-1])]
        kinds[EVEN] = [scaled(even, 1 / share if share else math.nan).only for share in shares]
    return kinds


EVEN = "break-even (modelled)"  # name of that share


def tau_of_lengths(result: SweepResult, dial: float, lengths: Sequence[int], how: Bootstrap = DEFAULT) -> Band:
    """Return the tokens per target pass if a setting drafts these numbers of tokens, [S].

    Counted if the draft length itself was swept. Otherwise a shorter draft accepts the first of the tokens that the
    setting's rounds accept, as if they began at the same places. Raises BadInput outside the span.
    """
    at = np.array([dial])
    if result.plan.cut_by is not None:
        return band_at(result, measures(result)["tau"], np.array(lengths, np.float64), how)
    accepted = result.at("accepted", at)[:, 0].astype(np.float64)  # [P, γ + 1]
    beyond = accepted @ np.maximum(np.arange(accepted.shape[1])[:, None] - np.array(lengths), 0)
    tokens, rounds = (result.at(name, at).astype(np.float64) for name in ("tokens", "rounds"))
    found = band(lambda a, b, c: divided(a - b, c), tokens, beyond, rounds, how=how, units=result.units)
    return _of_few(found, drawn([tokens], result.units))
