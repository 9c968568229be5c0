"""Lesson 1: why drafting pays."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache, partial

import numpy as np
import streamlit as st

from mars_viz.analysis.lesson_sums import Gain, expected_speed_up, expected_tokens, gain, round_cost
from mars_viz.components.lesson import Kind, Knob
from mars_viz.costs import Costs, disturbance
from mars_viz.figures import Theme
from mars_viz.figures.lessons import pass_costs, run_times
from mars_viz.figures.svg import BLUE, QUIET, lines
from mars_viz.run import Run, Settings
from mars_viz.samples import recorded_costs
from mars_viz.ui import theme
from mars_viz.ui.jobs import tasks
from mars_viz.ui.lessons import base
from mars_viz.ui.lessons.base import Lesson, LessonAside, LessonContext, LessonPicture
from mars_viz.words import number, short_device

LONGEST = 16  # maximum γ of the control
STEPS = 100  # number of steps of α's control
MEASURED = 8  # γ of the measured passes


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


def passes(context: LessonContext) -> None:
    """Draw the costs of passes: measured now, included with the product, or from the run's own timings."""
    place = st.container()
    find = partial(tasks.measure, Settings(rule="strict", gamma=MEASURED))
    words = "Measure the passes on this device"
    here = base.asked(context, "costs", words, "Timing passes of both models …", find)
    costs = here if isinstance(here, Costs) else recorded_costs()
    with place:
        if costs is None:
            gains, device = gain(context.run), context.run.provenance.device
            base.draw(context, run_times(gains, context.theme), "why-passes")
            if gains.timed:
                device_name = short_device(device) or "a device it does not name"
                theme.small(f"Measured when the run was made, on {device_name}.", device)
            return
        base.draw(context, pass_costs(costs, context.theme), "why-passes")
        measured = f"{base.whose(context, 'costs')}, measured here" if costs is here else base.whose(context, "")
        more = f"{costs.device}, {costs.dtype}, caches of {costs.cache_length} positions"
        theme.small(_stands_on(costs, measured), more)
        if warning := disturbance(costs):
            theme.note(warning)


def _stands_on(costs: Costs, measured: str) -> str:
    return f"{measured}, {short_device(costs.device)}; 95 % intervals, n = {costs.repeats}"


def thumbnail(run: Run) -> str:
    """Return the speed-up formula's curve over α, at the run's own γ and cost."""
    run_gain = gain(run)
    alpha = np.linspace(0, 1, 61)
    curve = expected_speed_up(alpha, run_gain.gamma, run_gain.c if run_gain.timed else 0.1)
    top = 1.1 * max(1.0, float(curve[-1]))
    return lines([(alpha, np.ones(61), QUIET, True), (alpha, curve, BLUE, False)], top)


def _recorded_passes(run: Run, colours: Theme) -> LessonAside | None:
    costs = recorded_costs()
    return None if costs is None else LessonAside(pass_costs(costs, colours), _stands_on(costs, base.BUILT_IN_PAIR))


def dials(gains: Gain) -> tuple[Knob, ...]:
    """Return the controls of α, γ and c, initially at the run's values."""
    initial_cost = min(1.0, round(gains.c, 2)) if gains.timed else 0.1
    return (
        Knob("alpha", "α, acceptance rate", round(gains.alpha, 2), step=1 / STEPS, digits=2),
        Knob("block", "γ, draft length", min(gains.gamma, LONGEST), low=1, high=LONGEST),
        Knob("cost", "c, cost of a draft step", initial_cost, step=0.01, digits=2, help="In target passes"),
    )


LESSON = Lesson(
    name="Drafting",
    title="Why drafting pays",
    point="A large model's pass over several tokens takes little longer than over one, so a small model drafts them.",
    text=(
        "The **drafter** proposes γ tokens; each costs *c* target passes. The **target** scores them in one pass and "
        "keeps each with probability α, up to the first rejection. If that pass costs what one over a single token "
        "costs (see below), the speed-up is "
        r"$\dfrac{1-\alpha^{\gamma+1}}{(1-\alpha)(\gamma c+1)}$ "
        "([paper](https://arxiv.org/abs/2211.17192)).",
    ),
    question="With a very good drafter, why not draft a hundred tokens at once?",
    answer=(
        "A further token counts only if **all** before it are kept, which has probability α^γ, while its cost c stays. "
        "With α = 0.8 a pass yields at most 1 / (1 − α) = 5 tokens on average, however long the block. Move γ to the "
        "right: wherever c > 0 and α < 1, the speed-up falls from some γ on."
    ),
    sample="1-story-mars",
    needs=(base.CHAINS, base.JUDGED),
    thumbnail=thumbnail,
    beside=passes,
    picture=picture,
    aside=_recorded_passes,
)
