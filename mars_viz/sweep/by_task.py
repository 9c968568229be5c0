"""A sweep's results task by task, and together: which task a setting is safe for.

Knows a sweep's figures and the tasks of its prompts; draws nothing. A task is a prompt's category.
"""

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

TOGETHER = "together"
"""The row of all tasks."""
FIGURES = ("accuracy_change", "accuracy", "tau", "speed_up_strict", "speed_up")
"""What is told of each task, in this order."""


@dataclass(frozen=True, slots=True)
class TaskResults:
    """One task's figures, or those of all together."""

    task: str
    """Its name; TOGETHER for all."""
    prompts: int
    """Of it that have results."""
    graded: int
    """How many of these are graded."""
    strict: Mapping[str, Interval]
    """By figure, at the strict end; a figure that stands on grades is not there where none is graded."""
    chosen: Mapping[str, Interval]
    """The same at the setting."""

    def facts(self) -> dict[str, Any]:
        """All of it in JSON's terms."""
        sides = {side: getattr(self, side) for side in ("strict", "chosen")}
        figures = {side: {name: asdict(found) for name, found in each.items()} for side, each in sides.items()}
        return {"task": self.task, "prompts": self.prompts, "graded": self.graded} | figures


def by_task(
    result: SweepResult, dial: float, how: Bootstrap = DEFAULT, known_strict: Sequence[TaskResults] = ()
) -> tuple[TaskResults, ...]:
    """A row a task, in the order in which the sweep met them, and one for all together; none where there is one task
    only. `known_strict` are the rows of another setting of this sweep, whose strict side is the same. Raises BadInput
    for a dial value that was not swept."""
    categories = result.prompts["category"].astype(str)
    tasks = list(dict.fromkeys(categories.tolist()))
    if len(tasks) < 2:
        return ()
    known = measures(result)
    figures = {name: known[name] for name in FIGURES if name in known}
    groups = [(task, categories == task) for task in tasks] + [(TOGETHER, np.ones(len(result), bool))]
    strict = [row.strict for row in known_strict] or [
        _side(result, figures, own, result.plan.strict, how) for _, own in groups
    ]
    return tuple(
        TaskResults(
            task, int(own.sum()), int((own & result.graded).sum()), side, _side(result, figures, own, dial, how)
        )
        for (task, own), side in zip(groups, strict, strict=True)
    )


def losing(rows: Sequence[TaskResults], terms: Terms, against: str) -> str:
    """A sentence where tasks lose more than is tolerated by themselves, whatever all together do: those whose whole
    interval lies beyond it. Empty where none does."""
    found = []
    for row in rows[:-1]:
        change = row.chosen.get("accuracy_change")
        if change is not None and 100 * change.high < -terms.points:
            found.append(f"{row.task} {told('accuracy_change', (change.estimate, change.low, change.high))}")
    if not found:
        return ""
    what = "one task loses" if len(found) == 1 else f"{len(found)} tasks lose"
    return f"By itself {what} more than is tolerated against {against}: {', '.join(found)}."


def _side(
    result: SweepResult, figures: Mapping[str, Measure], own: np.ndarray, dial: float, how: Bootstrap
) -> dict[str, Interval]:
    """The figures of the prompts that `own` [P] marks, at one setting."""
    found = {}
    for name, measure in figures.items():
        rows = np.flatnonzero(own & result.graded if measure.graded else own)
        if len(rows):
            found[name] = value_at(result, measure, dial, how, Among(rows, _units(result, rows)))
    return found


def _units(result: SweepResult, rows: np.ndarray) -> np.ndarray | None:
    return None if result.units is None else result.units[rows]
