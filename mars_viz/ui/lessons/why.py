"""Lesson 1: why drafting pays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import numpy as np

from mars_viz.analysis.lesson_sums import Gain, expected_tokens, gain, round_cost
from mars_viz.components.lesson import Kind, Knob
from mars_viz.costs import disturbance
from mars_viz.figures import Theme
from mars_viz.figures.engines import pass_costs
from mars_viz.run import Run, Settings
from mars_viz.samples import recorded_costs
from mars_viz.ui.jobs import tasks
from mars_viz.ui.jobs.models import TaskStep
from mars_viz.ui.lessons import base
from mars_viz.ui.lessons.base import Lesson, LessonAside, LessonPicture, texts
from mars_viz.words import number, short_device

LONGEST = 16  # maximum γ of the control
STEPS = 100  # number of steps of α's control
MEASURED = 8  # γ of the measured passes


def _measure(pair: Any) -> Iterator[TaskStep]:  # a named function, so that it can be pickled with its job
    return tasks.measure(Settings(rule="strict", gamma=MEASURED), pair)


def picture(run: Run, other_runs: Iterable[Run]) -> LessonPicture:
    """Return the figure with the formula and the gain of each run. Timings of other runs may have been disturbed."""
    gains = gain(run)
    runs = {each.title or each.prompt[:40]: gain(each) for each in other_runs}
    figure = {
        "runs": [
            {"name": name, "alpha": each.alpha, "gamma": each.gamma, "c": each.c, "speedUp": each.speed_up}
            for name, each in runs.items()
            if each.timed and math.isfinite(each.alpha)
        ],
        "theory": theory(),
        "own": f"This run: τ = {number(gains.tau)} with α = {number(gains.alpha)} and γ = {gains.gamma} (exact).",
    }
    return LessonPicture(Kind.DRAFTING, dials(gains), figure, "Speed-up by the formula, and of the sample runs")


@cache
def theory() -> dict[str, list[list[float]]]:
    """Return the formula's values for each γ: `tokens` per target pass over α from 0 to 1, and the `cost` of a round in
    target passes at c = 0 and c = 1; it is linear in between."""
    alphas, lengths = np.linspace(0, 1, STEPS + 1), range(1, LONGEST + 1)
    return {
        "tokens": [[float(f"{each:.6g}") for each in expected_tokens(alphas, gamma)] for gamma in lengths],
        "cost": [[round_cost(gamma, c) for c in (0.0, 1.0)] for gamma in lengths],
    }


def _passes(
    run: Run, colours: Theme, dial: float | None = None, measured: Any = None, models: str = base.BUILT_IN_PAIR
) -> LessonAside | None:
    costs = measured or recorded_costs()
    if costs is None:
        return None
    whose = f"{models}, measured here" if measured else models
    words = f"{whose}, {short_device(costs.device)}; 95 % intervals, n = {costs.repeats}"
    more = f"{costs.device}, {costs.dtype}, caches of {costs.cache_length} positions"
    return LessonAside(pass_costs(costs, colours), words, more, disturbance(costs))


def dials(gains: Gain) -> tuple[Knob, ...]:
    """Return the controls of α, γ and c, initially at the run's values."""
    initial_cost = min(1.0, round(gains.c, 2)) if gains.timed else 0.1
    return (
        Knob("alpha", "α, acceptance rate", round(gains.alpha, 2), step=1 / STEPS, digits=2),
        Knob("block", "γ, draft length", min(gains.gamma, LONGEST), low=1, high=LONGEST),
        Knob("cost", "c, cost of a draft step", initial_cost, step=0.01, digits=2, help="In target passes"),
    )


LESSON = Lesson(
    **texts("why"),
    needs=(base.CHAINS, base.JUDGED),
    picture=picture,
    aside=_passes,
    measured=("Measure the passes on this device", "Timing passes of both models …", _measure),
)
