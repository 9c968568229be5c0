"""The stepper, alone and as a part of every lesson."""

from __future__ import annotations

import streamlit as st

from mars_viz.components.stepper import stepper
from mars_viz.escapes import markdown
from mars_viz.rules import rule_named
from mars_viz.run import Run
from mars_viz.run_with_map import shown
from mars_viz.ui import theme
from mars_viz.ui.lessons.base import LessonContext
from mars_viz.ui.lessons.page_state import write_address
from mars_viz.words import setting

KEYS = (
    "Keys: ←\u00a0→ one step, ↑\u00a0↓ one round, space play or pause, x next rejection, k next relaxed keep, d next "
    "divergence from strict."
)


def watch(context: LessonContext, run: Run, key: str) -> None:
    """Play a run, and write the stepper's frame to the address."""
    frame = stepper(run, frame=context.desk.view.frame or 0, key=f"stepper-{key}", large=context.large)
    if frame or context.desk.view.frame is not None:
        context.desk.change(frame=frame)
    write_address(context.desk)


def caption(context: LessonContext) -> None:
    """Draw a caption about the run, with the keys as its tooltip."""
    run, _ = cached(context)
    rule, settings = rule_named(run.settings.rule), run.settings
    at = "" if rule.dial is None or settings.dial is None else f" at {setting(rule.dial.symbol, settings.dial)}"
    drafts = settings.draft if settings.drafts_trees else f"blocks of {settings.gamma} tokens"
    words = f"{rule.title}{at}, {drafts}, temperature {settings.temperature:g}. Exact: the decisions of this text."
    st.caption(markdown(words), help=KEYS)


def show(context: LessonContext) -> None:
    """Draw the stepper of the run at the page's dial."""
    run, complaint = cached(context)
    if complaint:
        theme.note(complaint)
    watch(context, run, context.run_id)


STEPS = ("Watch this run step by step", show)


def cached(context: LessonContext) -> tuple[Run, str]:
    """Return the run at the page's dial and no message, cached so that the stepper's data need not be computed again.
    If that text is unknown, return the recorded run and a message."""
    run, dial = context.run, context.desk.view.dial
    cache = st.session_state.get("learn-played")
    if cache is None or cache[0] != (context.run_id, dial) or cache[1] is not run:
        played, message = run, ""
        if dial is not None and dial != run.settings.dial:
            played, _ = shown(run, dial, run.settings.gamma)
            if played is run:
                symbol = rule_named(run.settings.rule).dial.symbol  # type: ignore[union-attr]  # ensured by `fitted`
                message = f"The text at {setting(symbol, dial)} is not known here, so the recorded text is played."
        cache = st.session_state["learn-played"] = (context.run_id, dial), run, (played, message)
    return cache[2]
