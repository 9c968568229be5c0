"""Lesson 2: strict verification, and the cost of a rollback."""

from __future__ import annotations

from collections.abc import Iterable

from mars_viz.analysis.lesson_sums import Price, gain, prices, strict_run
from mars_viz.components.lesson import Kind, Knob
from mars_viz.figures.svg import QUIET, RED, stacked_bars
from mars_viz.run import Run
from mars_viz.ui.lessons import base
from mars_viz.ui.lessons.base import Lesson, LessonContext, LessonPicture
from mars_viz.words import counted, number


def picture(run: Run, other_runs: Iterable[Run]) -> LessonPicture | None:
    """Return the figure with the cost of every mapped block length; None if the strict text is unknown."""
    price_list = prices(run)
    if not price_list:
        return None
    price_data = [
        {
            "gamma": price.gamma,
            "kept": price.kept,
            "lost": price.rolled_back,
            "passes": price.passes,
            "title": heading(price),
            "words": _words(price, run),
        }
        for price in price_list
    ]
    gammas = tuple(price.gamma for price in price_list)
    knob = Knob("drafted", "γ, draft length", _own(run, gammas), stops=gammas)
    return LessonPicture(
        Kind.ROLLBACK, (knob,), {"prices": price_data}, "What strict verification keeps and rolls back"
    )


def _strict_steps(context: LessonContext) -> None:
    run, drafted = context.run, context.desk.view.knobs.get("drafted")
    gammas = base.once("learn-gammas", run, lambda: tuple(price.gamma for price in prices(run)))
    if gammas:
        gamma = int(drafted) if drafted in gammas else _own(run, gammas)
        strict = base.once("learn-strict", run, lambda: strict_run(run, gamma), gamma)
        base.watch(context, strict, f"strict-{context.run_id}-{gamma}")


def strict_text(run: Run) -> Run | None:
    """Return the strict run at the run's own block length; None if no strict text is known."""
    gammas = tuple(price.gamma for price in prices(run))
    return strict_run(run, _own(run, gammas)) if gammas else None


def heading(price: Price) -> str:
    """Return the result at one block length."""
    # nine decimals, so that 7 % is not written 7.00 %
    share = number(round(100 * price.wasted, 9)) if price.kept + price.rolled_back else "0"
    return (
        f"γ = {price.gamma}: {number(price.passes)} target {'pass' if price.passes == 1 else 'passes'} for "
        f"{counted(price.tokens, 'token')}, {share} % of drafted tokens rolled back (exact)"
    )


def _words(price: Price, run: Run) -> str:
    gains, time = gain(run), ""
    if gains.timed:
        spent = number(1000 * price.rolled_back * gains.draft_step)
        time = f": {spent} ms of drafting (modelled: measured step × count)"
    return (
        f"{counted(price.rolled_back, 'drafted token')} rolled back{time}. A target pass yields "
        f"{number(price.tokens / price.passes)} tokens on average, of {number(price.gamma + 1)} at most."
    )


def _own(run: Run, gammas: tuple[int, ...]) -> int:
    return run.settings.gamma if run.settings.gamma in gammas else gammas[-1]


def thumbnail(run: Run) -> str:
    """Return bars of accepted and rolled-back tokens at every block length."""
    return stacked_bars([((price.kept, QUIET), (price.rolled_back, RED)) for price in prices(run)])


LESSON = Lesson(
    name="Rollback",
    title="What a rollback costs",
    point="A draft is kept only where it is the target's own choice. All after the first rejection is rolled back.",
    text=(
        "The target verifies from left to right. In place of the **first** token that is not its own choice it writes "
        "its own, and everything drafted after that is discarded: it continues a token that is not in the text.",
        "The target had already read those tokens, and the drafter all but its last one, so both **caches** drop them. "
        "Move γ and see how much of the draft is rolled back; below, the text can be watched step by step.",
    ),
    question="After a rejection at the first position, was the target's pass wasted?",
    answer=(
        "No. The pass also says what the target writes **instead**, so every round yields at least one token that the "
        "target alone would have needed a pass for. In the worst case speculative decoding runs as many target passes "
        "as plain decoding; it loses the drafting, and what a pass over γ + 1 positions costs more than over one."
    ),
    sample="2-story-strict",
    needs=(base.CHAINS, base.GREEDY, base.ROUNDS, base.STRICT_KNOWN),
    thumbnail=thumbnail,
    steps=("Watch the strict text step by step", _strict_steps),
    picture=picture,
    played=strict_text,
)
