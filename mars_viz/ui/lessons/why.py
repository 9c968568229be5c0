"""Lesson 1: why drafting pays."""

from __future__ import annotations

import math
from functools import partial

import streamlit as st

from mars_viz.analysis.gain import Gain, gain
from mars_viz.components.lesson import Kind, Knob
from mars_viz.costs import Costs
from mars_viz.devices import short_device
from mars_viz.figures.lesson_gain import pass_costs, run_times
from mars_viz.figures.words import number
from mars_viz.measurements import recorded_costs
from mars_viz.run import Run
from mars_viz.ui import theme
from mars_viz.ui.jobs.tasks import find_costs
from mars_viz.ui.lessons import thumbs
from mars_viz.ui.lessons.asking import asked
from mars_viz.ui.lessons.base import Lesson, Room
from mars_viz.ui.lessons.drawing import draw
from mars_viz.ui.lessons.moving import moving

LONGEST = 16
"""γ of the dial."""
MEASURED = 8
"""γ of the measured passes."""


def lacks(run: Run) -> str:
    """A run must have judged something."""
    if math.isnan(gain(run).alpha):
        return "No drafted token was judged in this run, so it says nothing of α. Choose another run."
    return ""


def show(room: Room) -> None:
    """The formula with three dials, and what this run and the others measured."""
    found = gain(room.run)
    runs = {run.title or run.prompt[:40]: gain(run) for run in room.others()} or {"this run": found}
    figure = {
        "runs": [
            {"name": name, "alpha": each.alpha, "gamma": each.gamma, "c": each.c, "speedUp": each.speed_up}
            for name, each in runs.items()
            if each.timed and math.isfinite(each.alpha)
        ],
        "own": f"This run counted {number(found.tau)} with α = {number(found.alpha)} and γ = {found.gamma} (exact).",
    }
    moving(room, Kind.DRAFTING, dials(found), figure, "What drafting is worth, by the formula and by recorded clocks")


def passes(room: Room) -> None:
    """What a pass costs: measured here and now, or as it comes with the product, or by the run's own clock."""
    place = st.container()
    here = asked(
        room,
        "costs",
        "Measure the passes on this device",
        "Timing passes of both models …",
        partial(find_costs, MEASURED),
    )
    costs = here if isinstance(here, Costs) else recorded_costs()
    with place:
        if costs is None:
            _own_times(room)
            return
        draw(room, pass_costs(costs, room.theme), "why-passes")
        whose = "Measured" if costs is here else "The built-in pair"
        more = f"{costs.device}, {costs.dtype}, caches of {costs.cache_length} positions"
        theme.small(f"{whose} on {short_device(costs.device)}; lines: range of {costs.repeats} repeats.", more)


def _own_times(room: Room) -> None:
    """A drafter's step and the target's pass over a block, by the run's own clock."""
    found, device = gain(room.run), room.run.provenance.device
    draw(room, run_times(found, room.theme), "why-passes")
    if found.timed:
        where = short_device(device) or "a device it does not name"
        theme.small(f"Measured when the run was made, on {where}.", device)


def dials(found: Gain) -> tuple[Knob, ...]:
    """α, γ and c; they begin where this run measured them."""
    known = min(1.0, round(found.c, 2)) if found.timed else 0.1
    return (
        Knob("alpha", "α, chance to keep", round(found.alpha, 2), step=0.01, digits=2),
        Knob("block", "γ, tokens per block", min(found.gamma, LONGEST), low=1, high=LONGEST),
        Knob("cost", "c, cost of a draft step", known, step=0.01, digits=2, help="In passes of the target"),
    )


LESSON = Lesson(
    name="Drafting",
    title="Why drafting pays",
    point="A large model reads several tokens at once in little more time than one. So let a small one guess.",
    text=(
        "The **drafter** guesses γ tokens one by one; each costs *c* target passes. The **target** reads them all in "
        "one pass and keeps each with chance α, up to the first that it rejects. If that pass costs what a pass over "
        "one token costs (see below), the speed-up is "
        r"$\dfrac{1-\alpha^{\gamma+1}}{(1-\alpha)(\gamma c+1)}$ "
        "([Leviathan et al.](https://arxiv.org/abs/2211.17192)).",
    ),
    question="With a very good drafter, why not draft a hundred tokens at once?",
    answer=(
        "Each further token is of use only if **all** before it are kept, which has chance α^γ and soon is next to "
        "nothing, while its price c stays. With α = 0.8 at most 1 / (1 − α) = 5 tokens per pass can be had, however "
        "long the block. Move γ to the right and watch the curve fall everywhere but near α = 1."
    ),
    lacks=lacks,
    show=show,
    thumbnail=thumbs.speed_up,
    beside=passes,
)
