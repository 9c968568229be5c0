"""A sweep in words and rows: figures with their intervals at its settings, by task, and along the dial.

A task is a prompt's category. Between the ends of a stretch of the dial every printed figure is equal at all settings,
not only at sampled ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mars_viz.analysis.intervals import DEFAULT, Bootstrap, Interval
from mars_viz.analysis.steps import Steps
from mars_viz.costs import Costs, objection
from mars_viz.strict_formats import csv_of
from mars_viz.sweep.measures import PERCENT, RATIOS, Measure, Terms, curve, measures, value_at
from mars_viz.sweep.result import SweepResult
from mars_viz.words import number, ranged, times


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


TOLD = ("accuracy", "accuracy_change", "tau", "speed_up", "speed_up_strict", "drafted_share", "same")
"""Figures of a table along the dial; settings with equal printed values share a row."""
COUNTS = ("tokens", "rounds", "drafted", "kept", "rolled_back", "relaxed", "same")
"""Sums over all prompts in `stretches_csv`."""


@dataclass(frozen=True, slots=True)
class DialStretch:
    """Settings with equal printed figures."""

    low: float
    high: float  # start of the next stretch; for the last one its largest value
    dial: float  # a setting in it, at which its figures were taken
    last: bool  # True if it includes its high end

    @property
    def shown(self) -> tuple[float, float]:
        """Both ends with the fewest decimals (at least three) that keep them inside."""
        for decimals in range(3, 17):
            scale = 10.0**decimals
            low = math.ceil(self.low * scale) / scale
            high = (math.floor(self.high * scale) if self.last else math.ceil(self.high * scale) - 1) / scale
            if self.low <= low <= high <= self.high and (self.last or high < self.high):
                return low, high
        return self.dial, self.dial


def stretches(
    result: SweepResult, dials: Sequence[float] | np.ndarray, names: Sequence[str]
) -> tuple[DialStretch, ...]:
    """Return the stretches that contain any of these dial values, ascending. Each of the named figures prints equally
    over a stretch. A stretch's `dial` is the last given value in it, so give important values last."""
    by_name, edges = measures(result), result.edges
    lows = edges[:-1]
    words = np.stack([_words(result, by_name[name], lows) for name in names if name in by_name])  # [names, S]
    begins = np.append(True, (words[:, 1:] != words[:, :-1]).any(axis=0))
    starts = lows[begins]
    dial_of: dict[int, float] = {}
    for dial in np.asarray(dials, np.float64).tolist():
        dial_of[int(np.searchsorted(starts, dial, side="right")) - 1] = dial
    ends = np.append(starts[1:], result.plan.high)
    return tuple(
        DialStretch(float(starts[place]), float(ends[place]), dial_of[place], place == len(starts) - 1)
        for place in sorted(dial_of)
    )


def _words(result: SweepResult, measure: Measure, lows: np.ndarray) -> np.ndarray:
    """Return the printed figure from each of these dial values on, [S]."""
    steps = curve(result, measure)
    values = np.atleast_1d(steps.values)[np.searchsorted(steps.edges, lows, side="right") - 1]
    distinct, places = np.unique(values, return_inverse=True)
    return np.array([alone(measure.name, float(value)) for value in distinct])[places]


def stretches_csv(result: SweepResult) -> str:
    """Return a line per stretch of unchanged texts: sums over all prompts and the number of right ones. A stretch is
    `dial_from` <= dial < `dial_to`; the last one includes its end."""
    edges = result.edges
    sums = {name: _on(result.summed(name), edges) for name in COUNTS}
    if result.graded.any():
        sums["right"] = _on(result.summed("right", result.graded), edges)
    ends = np.append(edges[1:-1], result.plan.high)
    lines = zip(edges[:-1].tolist(), ends.tolist(), *(values.tolist() for values in sums.values()), strict=True)
    return csv_of(["dial_from", "dial_to", *sums], [list(line) for line in lines])


def _on(steps: Steps, edges: np.ndarray) -> np.ndarray:
    return np.asarray(steps.on(edges).round().astype(np.int64))


TOGETHER = "together"  # the row of all tasks
FIGURES = ("accuracy_change", "accuracy", "tau", "speed_up_strict", "speed_up")  # figures of each task, in order


@dataclass(frozen=True, slots=True)
class TaskResults:
    """The figures of one task, or of all together."""

    task: str  # its name; TOGETHER for all
    prompts: int  # number of prompts with results
    graded: int  # number of these that are graded
    strict: Mapping[str, Interval]
    """By figure, at the strict end; figures that need grades are absent if no prompt is graded."""
    chosen: Mapping[str, Interval]  # by figure, at the chosen setting


def by_task(
    result: SweepResult, dial: float, how: Bootstrap = DEFAULT, known_strict: Sequence[TaskResults] = ()
) -> tuple[TaskResults, ...]:
    """Return a row per task in the sweep's order and one for all together; empty for a single task.

    `known_strict` are the rows of another setting of this sweep, with the same strict side. Raises BadInput for a dial
    value that was not swept.
    """
    categories = result.prompts["category"].astype(str)
    tasks = list(dict.fromkeys(categories.tolist()))
    if len(tasks) < 2:
        return ()
    by_name = measures(result)
    figures = {name: by_name[name] for name in FIGURES if name in by_name}
    groups = [(task, categories == task) for task in tasks] + [(TOGETHER, np.ones(len(result), bool))]
    strict: list[Mapping[str, Interval]] = [row.strict for row in known_strict]
    strict = strict or [_side(result, figures, members, result.plan.strict, how) for _, members in groups]
    rows = []
    for (task, members), side in zip(groups, strict, strict=True):
        graded, chosen = int((members & result.graded).sum()), _side(result, figures, members, dial, how)
        rows.append(TaskResults(task, int(members.sum()), graded, side, chosen))
    return tuple(rows)


def losing(rows: Sequence[TaskResults], terms: Terms, against: str) -> str:
    """Return a sentence about tasks whose complete interval exceeds the tolerated loss; empty if there are none."""
    losses = []
    for row in rows[:-1]:
        change = row.chosen.get("accuracy_change")
        if change is not None and 100 * change.high < -terms.points:
            losses.append(f"{row.task} {told('accuracy_change', (change.estimate, change.low, change.high))}")
    if not losses:
        return ""
    what = "one task loses" if len(losses) == 1 else f"{len(losses)} tasks lose"
    return f"By itself {what} more than is tolerated against {against}: {', '.join(losses)}."


def _side(
    result: SweepResult, figures: Mapping[str, Measure], own: np.ndarray, dial: float, how: Bootstrap
) -> dict[str, Interval]:
    intervals = {}
    for name, measure in figures.items():
        rows = np.flatnonzero(own & result.graded if measure.graded else own)
        if len(rows):
            intervals[name] = value_at(result, measure, dial, how, rows, result.units_of(rows))
    return intervals


DEFAULT_TERMS = Terms()  # one point, 95 %, BCa


def settings_of(result: SweepResult, dial: float) -> dict[str, float]:
    """Return a table's settings by label: strict, the chosen one, and the loosest swept one."""
    return {"strict": result.plan.strict, "chosen": dial, "loosest": result.plan.loosest}


def drawn(result: SweepResult) -> str:
    """Return the unit of resampling in words."""
    return "prompts" if result.units is None else "questions"


def missing(costs: Costs | None, folder: Path) -> str:
    """Return why a sweep has no modelled speed-up over the target alone, with a remedy; empty if it has one."""
    why = objection(costs)
    return why and (
        f"No speed-up over the target alone. {why} Measure again on a quiet machine: the same command with --resume "
        f"({folder})."
    )
