"""Acceptance by every engine's definition: the same requests under each, as one table."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mars_viz.analysis.counts import AcceptanceCounts, Counts, Totals, position_rates, totals_by_step, totals_of
from mars_viz.analysis.definitions import DEFINITIONS, ByPosition, Definition, Pooling
from mars_viz.analysis.intervals import DEFAULT, Bootstrap, Interval, interval
from mars_viz.errors import SettingError

Formula = Callable[[Totals], np.ndarray]
MOST_DRAWN = 20_000
"""Number of requests or rounds that are resampled; more are combined at random into that many groups."""


_REPORTED = tuple(
    (formula, one.pooling) for one in DEFINITIONS for formula in (one.length, one.rate) if formula is not None
)
"""Every reported figure's formula and pooling, in the order of the table, lengths before rates."""


@dataclass(frozen=True, slots=True)
class Within:
    """Uncertainty of a figure."""

    interval: Interval | None  # None if there is no interval
    why: str = ""  # reason for a missing interval; empty for a figure that is not reported


@dataclass(frozen=True, slots=True)
class EngineRow:
    """One definition applied: a row of the table."""

    definition: Definition
    length: float  # all requests together. NaN if not reported or not defined.
    rate: float  # all requests together. NaN if not reported or not defined.
    lengths: tuple[float, ...]  # length of each request alone
    unconditional: np.ndarray | None  # float64 [γ]; None if not reported
    conditional: np.ndarray | None  # float64 [γ]; None if not reported
    joint: np.ndarray | None  # float64 [γ]; None if not reported
    length_within: Within  # the length's interval: over requests, or over the rounds of a single one
    rate_within: Within  # the rate's interval


def acceptance_table(
    requests: Sequence[Counts], *, units: np.ndarray | None = None, how: Bootstrap = DEFAULT
) -> tuple[EngineRow, ...]:
    """Return the requests under every definition, with intervals. Raises BadInput for no requests. `units`, whole
    numbers [P], are equal for the turns of one conversation, which are resampled together."""
    pool = tuple(requests)
    if not pool:
        raise SettingError("There is no run to describe. Choose at least one.")
    each, positions = totals_of(pool), position_rates(pool)
    withins = iter(_withins(pool, each, units, how))
    rows = []
    for definition in DEFINITIONS:
        length, rate = definition.length, definition.rate
        if definition.pooling is Pooling.MEAN and any(request.summed for request in pool):
            length = rate = None  # not known from sums over requests
        alone = np.full(len(pool), np.nan) if length is None else length(each)
        both = definition.by_position is ByPosition.CONDITIONAL_AND_JOINT
        rows.append(
            EngineRow(
                definition=definition,
                length=_together(definition, length, each),
                rate=_together(definition, rate, each),
                lengths=tuple(alone.tolist()),
                unconditional=positions.unconditional if definition.by_position is ByPosition.UNCONDITIONAL else None,
                conditional=positions.conditional if both else None,
                joint=positions.joint if both else None,
                length_within=Within(None) if definition.length is None else next(withins),
                rate_within=Within(None) if definition.rate is None else next(withins),
            )
        )
    return tuple(rows)


def resampled(requests: Sequence[Counts], units: np.ndarray | None = None) -> str:
    """Return the unit of the table's resampling, in words."""
    if len(requests) == 1 and not isinstance(requests[0], AcceptanceCounts):
        return "requests, of which a single one has none"
    if len(requests) == 1:
        return (
            "its rounds, taken as independent of one another: how sure this text's own number is, not how another "
            "prompt would do"
        )
    return "requests" if units is None else "questions, whose turns count together"


def _together(definition: Definition, formula: Formula | None, each: Totals) -> float:
    """Return the figure of all requests, pooled as in the definition."""
    if formula is None:
        return math.nan
    if definition.pooling is Pooling.POOLED:
        return float(formula(Totals(*(column.sum() for column in each.columns))))
    counted = formula(each)[each.steps != 0]  # engines report nothing for requests that had no step
    return float(counted.sum() / len(counted)) if len(counted) else math.nan


def _withins(pool: tuple[Counts, ...], each: Totals, units: np.ndarray | None, how: Bootstrap) -> list[Within]:
    """Return the uncertainty of every reported figure, in the order of the table."""
    single = len(pool) == 1
    if any(request.summed for request in pool):
        return [Within(None, "counters are sums over requests")] * len(_REPORTED)
    if single and not isinstance(pool[0], AcceptanceCounts):
        return [Within(None, "of a single request it takes the counts of its rounds")] * len(_REPORTED)
    drawn = totals_by_step(pool[0]) if single and isinstance(pool[0], AcceptanceCounts) else each
    count = len(drawn.steps)
    if count < 2:
        return [Within(None, "it takes at least two rounds")] * len(_REPORTED)
    if (single or units is None) and count > MOST_DRAWN:
        units = np.random.default_rng(0).permutation(count) % MOST_DRAWN
    intervals = [
        _interval(formula, drawn, units, how, summed=single or pooling is Pooling.POOLED)
        for formula, pooling in _REPORTED
    ]
    why = f"of {'its rounds' if single else 'some requests'} it is not known, or not defined"
    return [Within(None, why) if math.isnan(each.low) else Within(each) for each in intervals]


def _interval(formula: Formula, drawn: Totals, units: np.ndarray | None, how: Bootstrap, *, summed: bool) -> Interval:
    """Return the interval of sums over the rows of `drawn`, or of a mean over the requests that had a step."""
    if not summed:
        had = drawn.steps != 0
        each = np.where(had, formula(drawn), 0.0)
        return interval(lambda values, counted: values / counted, each, had.astype(np.float64), how=how, units=units)
    return interval(lambda *sums: formula(Totals(*sums)), *drawn.columns, how=how, units=units)
