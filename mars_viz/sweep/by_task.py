"""A sweep's results by task and together, to see for which tasks a setting is safe. A task is a prompt's category."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mars_viz.analysis.intervals import DEFAULT, Bootstrap, Interval
from mars_viz.sweep.figure_words import told
from mars_viz.sweep.measures import Among, Measure, measures, value_at
from mars_viz.sweep.result import SweepResult
from mars_viz.sweep.terms import Terms

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

    def facts(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        sides = {side: getattr(self, side) for side in ("strict", "chosen")}
        figures = {side: {name: asdict(interval) for name, interval in each.items()} for side, each in sides.items()}
        return {"task": self.task, "prompts": self.prompts, "graded": self.graded} | figures


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
    """Return the figures of the prompts marked by `own` [P], at one setting."""
    intervals = {}
    for name, measure in figures.items():
        rows = np.flatnonzero(own & result.graded if measure.graded else own)
        if len(rows):
            intervals[name] = value_at(result, measure, dial, how, Among(rows, result.units_of(rows)))
    return intervals
