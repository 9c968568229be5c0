"""Lesson 7: why drafts branch."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import numpy as np

from mars_viz.analysis.lesson_sums import expected_tokens, round_cost
from mars_viz.analysis.tree_gain import Choices, choices, tree_tokens
from mars_viz.components.lesson import Kind, Knob
from mars_viz.run import Run
from mars_viz.samples import recorded_costs
from mars_viz.ui.lessons import thumbs
from mars_viz.ui.lessons.base import Lesson, LessonContext, moving
from mars_viz.ui.lessons.needs import GREEDY, SECOND_CHOICE
from mars_viz.ui.lessons.pictures import LessonPicture
from mars_viz.words import counted, number

MOST = 32
"""Nodes of a draft."""
ALPHAS = tuple(round(0.05 * step, 2) for step in range(1, 20))
SECONDS = tuple(round(0.1 * step, 1) for step in range(11))
WIDEST = 0.2
"""Of a target pass over one position, what a further position costs at most."""


def show(room: LessonContext) -> None:
    """How much faster a tree and a chain of each number of nodes are, where three dials stand."""
    moving(room, picture(room.run, ()))


def picture(run: Run, beside: Iterable[Run]) -> LessonPicture:
    """The formula, with what the run says of its drafter."""
    found = choices(run)
    figure = {**theory(), "widest": WIDEST, "own": words(found)}
    return LessonPicture(Kind.BRANCHING, dials(found), figure, "Speed-up of trees and of chains")


@cache
def theory() -> dict[str, list[object]]:
    """Tokens per target pass for every α: of `chains` of 1, 2, … nodes, and of the best `trees` of as many for every
    chance of a second choice; and what a pass over them `costs` where a further position costs nothing, and as much as
    the dial can say, between which it is linear."""
    return {
        "alphas": list(ALPHAS),
        "seconds": list(SECONDS),
        "chains": [_short([float(expected_tokens(alpha, n)) for n in range(1, MOST + 1)]) for alpha in ALPHAS],
        "trees": [[_short(tree_tokens(alpha, second, MOST).tolist()) for second in SECONDS] for alpha in ALPHAS],
        "costs": [[round_cost(n, v) for v in (0.0, WIDEST)] for n in range(1, MOST + 1)],
    }


def dials(found: Choices) -> tuple[Knob, ...]:
    """α and the second choice begin where this run has them, as far as the dials' steps tell."""
    return (
        Knob("alpha", "α, first choice is right", _nearest(found.alpha, ALPHAS), stops=ALPHAS, digits=2),
        Knob("second", "b, else the second is", _nearest(found.rescued, SECONDS), stops=SECONDS, digits=1),
        Knob(
            "wider", "v, cost of a further node", measured(), high=WIDEST, step=0.005, digits=3,
            help="In target passes over one position",
        ),
    )  # fmt: skip


@cache
def measured() -> float:
    """v of the passes that come with the product; 0.02 without these."""
    costs = recorded_costs()
    if costs is None or len(costs.passes) < 2:
        return 0.02
    grown = (costs.passes[-1].seconds / costs.passes[0].seconds - 1) / (len(costs.passes) - 1)
    return min(WIDEST, max(0.0, round(grown, 3)))


def words(found: Choices) -> str:
    """What the run says of its drafter's choices."""
    missed = found.places - found.first
    said = (
        f"In this run the drafter's first choice was the target's token at {number(found.first)} of "
        f"{counted(found.places, 'place')}"
    )
    return f"{said}, its second at {number(found.second)} of the other {number(missed)} (exact)."


def _short(values: list[float]) -> list[float]:
    return [float(f"{each:.5g}") for each in values]


def _nearest(value: float, stops: tuple[float, ...]) -> float:
    return min(stops, key=lambda stop: abs(stop - (value if np.isfinite(value) else 0.0)))


def caution(run: Run) -> str:
    """That few places say little, where they are few."""
    places = choices(run).places
    return f"Only {counted(places, 'place')} of this run say how good its drafter is." if places < 20 else ""


LESSON = Lesson(
    name="Trees",
    title="Why drafts branch",
    point="A chain ends at its first wrong token. A branch has a second choice at hand, verified in the same pass.",
    text=(
        "In a **tree** every node is read in one target pass, and sees its own path alone. At most one path is kept. "
        "The drafter's first choice is right with probability α; where it is not, the second is with *b*. So a node is "
        "kept with the **product** along its path, and a pass yields 1 + the sum over all nodes.",
        "The best tree of *n* nodes takes the *n* largest products ([Sequoia](https://arxiv.org/abs/2402.12374)). What "
        "it costs: each node, of a tree or a chain, makes the pass dearer by *v*. Drafting is left out here.",
    ),
    question="With a drafter that is nearly always right, is a tree worth it?",
    answer=(
        "Hardly. With α = 0.9 and b = 0.5 a second child is kept with (1 − α)·b = 0.05 of what its parent is, and the "
        "28th token of a chain still with 0.9²⁸ = 0.052: the best tree is a **chain** up to 28 nodes. With α = 0.6 it "
        "branches from the fourth node on, since 0.6⁴ = 0.13 is below (1 − 0.6)·0.5 = 0.2. A tree pays where the "
        "drafter is unsure, and where further positions are cheap: on a GPU that waits for memory, at small batches."
    ),
    sample="1-story-mars",
    needs=(GREEDY, SECOND_CHOICE),
    caution=caution,
    show=show,
    thumbnail=thumbs.branches,
    picture=picture,
)
