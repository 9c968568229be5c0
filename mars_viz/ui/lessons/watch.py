"""The stepper on the run that a setting really makes: the page's own screen, and a part of every lesson."""

from __future__ import annotations

import streamlit as st

from mars_viz.components.stepper import stepper
from mars_viz.escapes import markdown
from mars_viz.rules import rule_named
from mars_viz.run import Run
from mars_viz.run_with_map import shown
from mars_viz.ui import theme
from mars_viz.ui.lessons.base import Fold, LessonContext
from mars_viz.ui.lessons.page_state import write_address
from mars_viz.words import setting

KEYS = (
    "Keys: ←\u00a0→ one step, ↑\u00a0↓ one round, space play or pause, x next rejection, k next relaxed keep, d next "
    "divergence from strict."
)


def watch(room: LessonContext, run: Run, key: str) -> None:
    """Play a run; where it stands becomes part of the address."""
    frame = stepper(run, frame=room.desk.view.frame or 0, key=f"stepper-{key}", large=room.large)
    if frame or room.desk.view.frame is not None:
        room.desk.change(frame=frame)
    write_address(room.desk)


def at_dial(room: LessonContext) -> tuple[Run, str]:
    """The run as the page's dial makes it; where that text is not known the recorded one, and a sentence about it."""
    run, dial = room.run, room.desk.view.dial
    if dial is None or dial == run.settings.dial:
        return run, ""
    made, _ = shown(run, dial, run.settings.gamma)
    if made is run:
        symbol = rule_named(run.settings.rule).dial.symbol  # type: ignore[union-attr]  # `fitted` saw to it
        return (
            run,
            f"The text at {setting(symbol, dial)} is not known here, so the recorded text is played.",
        )
    return made, ""


def caption(room: LessonContext) -> None:
    """What run it is, with the keys as its help."""
    run, _ = cached(room)
    rule, settings = rule_named(run.settings.rule), run.settings
    at = "" if rule.dial is None or settings.dial is None else f" at {setting(rule.dial.symbol, settings.dial)}"
    drafts = settings.draft if settings.drafts_trees else f"blocks of {settings.gamma} tokens"
    words = f"{rule.title}{at}, {drafts}, temperature {settings.temperature:g}. Exact: the decisions of this text."
    st.caption(markdown(words), help=KEYS)


def show(room: LessonContext) -> None:
    """The stepper on the run as the page's dial makes it."""
    run, complaint = cached(room)
    if complaint:
        theme.note(complaint)
    watch(room, run, room.run_id)


STEPS = Fold("Watch this run step by step", show)
"""The stepper, below a lesson."""


def cached(room: LessonContext) -> tuple[Run, str]:
    """`at_dial`, the same object as long as nothing changed: what is played would else be worked out again."""
    wanted = (room.run_id, room.desk.view.dial)
    known = st.session_state.get("learn-played")
    if known is None or known[0] != wanted or known[1] is not room.run:
        known = wanted, room.run, at_dial(room)
        st.session_state["learn-played"] = known
    return known[2]
