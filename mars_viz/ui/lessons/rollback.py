"""Lesson 2: strict verification, and the price of a rollback."""

from __future__ import annotations

from collections.abc import Iterable

import streamlit as st

from mars_viz.analysis.lesson_sums import gain
from mars_viz.analysis.rollback import Price, prices, strict_run
from mars_viz.components.lesson import Kind, Knob
from mars_viz.run import Run
from mars_viz.ui import theme
from mars_viz.ui.lessons import thumbs
from mars_viz.ui.lessons.base import Fold, Lesson, LessonContext, moving
from mars_viz.ui.lessons.needs import CHAINS, GREEDY, ROUNDS, STRICT_KNOWN
from mars_viz.ui.lessons.pictures import LessonPicture
from mars_viz.ui.lessons.watch import watch
from mars_viz.words import counted, number


def show(room: LessonContext) -> None:
    """The block length to move, and its price."""
    shown = _pictured(room.run, _prices(room.run))
    if shown is None:
        theme.note("The dial map of this run was cut short before its strict text. Choose another run.")
        return
    moving(room, shown)


def picture(run: Run, beside: Iterable[Run]) -> LessonPicture | None:
    """The price of every known block length."""
    return _pictured(run, prices(run))


def _pictured(run: Run, known: tuple[Price, ...]) -> LessonPicture | None:
    if not known:
        return None
    prices_told = [
        {
            "gamma": price.gamma,
            "kept": price.kept,
            "lost": price.rolled_back,
            "passes": price.passes,
            "title": heading(price),
            "words": words(price, run),
        }
        for price in known
    ]
    gammas = tuple(price.gamma for price in known)
    knob = Knob("drafted", "γ, draft length", _own(run, gammas), stops=gammas)
    return LessonPicture(
        Kind.ROLLBACK, (knob,), {"prices": prices_told}, "What strict verification keeps and rolls back"
    )


def strict_steps(room: LessonContext) -> None:
    """The strict text step by step, at the block length that was chosen."""
    gammas = tuple(price.gamma for price in _prices(room.run))
    if gammas:
        asked = room.desk.view.knobs.get("drafted")
        gamma = int(asked) if asked in gammas else _own(room.run, gammas)
        watch(room, _strict(room, gamma), f"strict-{room.run_id}-{gamma}")


def strict_text(run: Run) -> Run | None:
    """The strict text at the run's own block length; None where nobody knows it at any."""
    gammas = tuple(price.gamma for price in prices(run))
    return strict_run(run, _own(run, gammas)) if gammas else None


def heading(price: Price) -> str:
    """The finding at one block length."""
    share = number(round(100 * price.wasted, 9)) if price.kept + price.rolled_back else "0"  # 9: of 7 %, not 7.00 %
    return (
        f"γ = {price.gamma}: {number(price.passes)} target {'pass' if price.passes == 1 else 'passes'} for "
        f"{counted(price.tokens, 'token')}, {share} % of drafted tokens rolled back (exact)"
    )


def words(price: Price, run: Run) -> str:
    """The price in a sentence."""
    found, time = gain(run), ""
    if found.timed:
        time = (
            f": {number(1000 * price.rolled_back * found.draft_step)} ms of drafting (modelled: measured step × count)"
        )
    return (
        f"{counted(price.rolled_back, 'drafted token')} rolled back{time}. A target pass yields "
        f"{number(price.tokens / price.passes)} tokens on average, of {number(price.gamma + 1)} at most."
    )


def _own(run: Run, gammas: tuple[int, ...]) -> int:
    """The run's own block length, or the longest that is known."""
    return run.settings.gamma if run.settings.gamma in gammas else gammas[-1]


def _prices(run: Run) -> tuple[Price, ...]:
    known = st.session_state.get("learn-prices")
    if known is None or known[0] is not run:
        known = st.session_state["learn-prices"] = (run, prices(run))
    found: tuple[Price, ...] = known[1]
    return found


def _strict(room: LessonContext, gamma: int) -> Run:
    """The strict text, one and the same object as long as nothing changes: what is played would be made again."""
    known = st.session_state.setdefault("learn-strict", {})
    key = (id(room.run), gamma)
    if key not in known:
        known[key] = (room.run, strict_run(room.run, gamma))
    return known[key][1]


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
    needs=(CHAINS, GREEDY, ROUNDS, STRICT_KNOWN),
    show=show,
    thumbnail=thumbs.kept_and_lost,
    steps=Fold("Watch the strict text step by step", strict_steps),
    picture=picture,
    played=strict_text,
)
