"""Lesson 7: why drafts branch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache

from mars_viz.analysis.branching import chances, choices, tree_tokens
from mars_viz.analysis.lesson_sums import expected_tokens, round_cost
from mars_viz.components.lesson import Kind, Knob
from mars_viz.run import Run
from mars_viz.samples import recorded_costs
from mars_viz.ui.lessons.base import GREEDY, SECOND_CHOICE, Lesson, LessonPicture, texts
from mars_viz.words import counted, number

MOST = 32  # maximum number of nodes in a draft
ALPHAS = tuple(round(0.05 * step, 2) for step in range(1, 20))
SECONDS = tuple(round(0.1 * step, 1) for step in range(11))
WIDEST = 0.2  # maximum cost of an additional position, in target passes over one position


def picture(run: Run, other_runs: Iterable[Run]) -> LessonPicture:
    """Return the figure, with the run's own values as initial ones."""
    ranks = choices(run)
    figure = {**theory(), "widest": WIDEST, "own": _words(ranks)}
    return LessonPicture(Kind.BRANCHING, dials(ranks), figure, "Speed-up of trees and of chains")


@cache
def theory() -> dict[str, list[object]]:
    """Return tokens per target pass for every α: `chains` by number of nodes, and the best `trees` by chance of the
    second choice and number of nodes. `costs` has the cost of a pass at zero and at maximum cost per position; it is
    linear in between."""
    return {
        "alphas": list(ALPHAS),
        "seconds": list(SECONDS),
        "chains": [_short([float(expected_tokens(alpha, n)) for n in range(1, MOST + 1)]) for alpha in ALPHAS],
        "trees": [[_short(tree_tokens(alpha, second, MOST).tolist()) for second in SECONDS] for alpha in ALPHAS],
        "costs": [[round_cost(n, v) for v in (0.0, WIDEST)] for n in range(1, MOST + 1)],
    }


def dials(ranks: Counter[int]) -> tuple[Knob, ...]:
    """Return the controls; α and the second choice start at the run's values, rounded to the steps."""
    alpha, second = chances(ranks)
    return (
        Knob("alpha", "α, first choice is right", _nearest(alpha, ALPHAS), stops=ALPHAS, digits=2),
        Knob("second", "b, else the second is", _nearest(second, SECONDS), stops=SECONDS, digits=1),
        Knob(
            "wider", "v, cost of a further node", measured(), high=WIDEST, step=0.005, digits=3,
            help="In target passes over one position",
        ),
    )  # fmt: skip


@cache
def measured() -> float:
    """Return v from the included measurements; 0.02 without them."""
    costs = recorded_costs()
    if costs is None or len(costs.passes) < 2:
        return 0.02
    increase = (costs.passes[-1].seconds / costs.passes[0].seconds - 1) / (len(costs.passes) - 1)
    return min(WIDEST, max(0.0, round(increase, 3)))


def _words(ranks: Counter[int]) -> str:
    missed = ranks.total() - ranks[0]
    return (
        f"In this run the drafter's first choice was the target's token at {number(ranks[0])} of "
        f"{counted(ranks.total(), 'place')}, its second at {number(ranks[1])} of the other "
        f"{number(missed)} (exact)."
    )


def _short(values: list[float]) -> list[float]:
    return [float(f"{each:.5g}") for each in values]


def _nearest(value: float, stops: tuple[float, ...]) -> float:
    return min(stops, key=lambda stop: abs(stop - value))


LESSON = Lesson(
    **texts("trees"),
    needs=(GREEDY, SECOND_CHOICE),
    caution=lambda run: (
        f"Only {counted(n, 'place')} of this run say how good its drafter is."
        if (n := choices(run).total()) < 20
        else ""
    ),
    picture=picture,
)
