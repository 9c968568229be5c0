"""The built-in exercises graded at every θ, as an errand. Knows no Streamlit; the model libraries are the caller's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mars_viz.analysis.map_grid import along_dial
from mars_viz.analysis.steps import Steps, total
from mars_viz.dialmap import DialMap, Segment, span_of
from mars_viz.prompts import PromptItem
from mars_viz.prompts.builtin import builtin_prompts
from mars_viz.prompts.items import grader_named
from mars_viz.rules import rule_named
from mars_viz.run import Settings
from mars_viz.samples import GradedExercises
from mars_viz.ui.jobs.background_task import TaskStep

PER_TASK = 20
"""Exercises of each of the three built-in kinds that are graded on request."""
LOW = 0.5
"""Smallest θ of those maps."""


def grade(pair: Any, per_task: int = PER_TASK) -> Iterator[TaskStep]:
    """Exact maps of the built-in exercises, `per_task` of each kind, one after the other, and how many are right at
    every θ."""
    from mars_viz.record_map import Mapping

    settings = Settings(rule="mars", max_new_tokens=96)
    span = span_of(rule_named("mars"), LOW, None, (settings.gamma,))
    items = sorted(builtin_prompts(per_task).items, key=lambda item: int(item.id.rsplit("-", 1)[1]))  # kinds in turn
    found: list[Steps] = []
    for done, item in enumerate(items, start=1):
        made = Mapping(pair, item.prompt, settings, span).finish()
        if made.complete:
            found.append(_along(made, item))
        yield TaskStep(done / len(items), GradedExercises(len(found), total(found)) if found else None)


def _along(made: DialMap, item: PromptItem) -> Steps:
    """1 where the text answers the exercise rightly, else 0, along the dial."""
    grader = grader_named(item.grader)

    def right(segment: Segment) -> float:
        return grader.grade(item.answer or "", made.frame.decode(segment.token_ids))

    return along_dial(made.segments, right)
