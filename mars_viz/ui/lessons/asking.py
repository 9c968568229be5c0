"""Asking the server's worker for something a lesson needs: a button, how far it is, and a way to stop it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import streamlit as st

from mars_viz.escapes import markdown
from mars_viz.ui import faults, tab_jobs, theme
from mars_viz.ui.jobs.background_task import BackgroundTask, TaskStep
from mars_viz.ui.jobs.job import JobState
from mars_viz.ui.jobs.worker import LEFT
from mars_viz.ui.lessons.base import LessonContext
from mars_viz.ui.lessons.page_state import LessonPageState
from mars_viz.ui.under_way import progress_bar

POLL = 0.5
"""Seconds between looks at an errand under way."""


def asked(room: LessonContext, name: str, words: str, doing: str, find: Callable[[Any], Iterator[TaskStep]]) -> Any:
    """The result of the tab's errand of that name, None before there is one; with the button that asks for it.

    `words` are on the button, `doing` says what goes on meanwhile.
    """
    errand = room.desk.errands.get(name)
    if errand is not None and not errand.progress.state.finished:
        _waiting(room.desk, name, doing)
        return errand.progress.result
    report = None if errand is None else errand.progress

    def start() -> None:
        room.desk.errands[name] = BackgroundTask(find)
        tab_jobs.shared_worker().submit(room.desk.errands[name])

    st.button(markdown(words if report is None else f"{words} again"), on_click=start, key=f"ask-{name}")
    if report is not None and report.state is JobState.FAILED:
        theme.note(report.error)
    elif report is not None and report.abandoned and report.state is JobState.CANCELLED:
        theme.note(f"{LEFT}; what is shown is what it had found by then.")
    return None if report is None else report.result


@faults.fragment(run_every=POLL)
def _waiting(desk: LessonPageState, name: str, doing: str) -> None:
    errand = desk.errands[name]
    report = errand.progress
    if report.state.finished:
        st.rerun()
    ahead = tab_jobs.shared_worker().ahead(errand)
    if errand.stopping:
        words = "Stopping after this step …"
    elif report.state is JobState.QUEUED and ahead:
        words = f"Waiting for {ahead} other jobs on this server …"
    else:
        words = doing
    progress_bar(errand, report.share, words, "Stop", key=f"stop-{name}")
