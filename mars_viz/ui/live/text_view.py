"""The decode on the Live page: its numbers, its text, and a way to stop it or to take it to Explore. Knows the desk."""

from __future__ import annotations

import streamlit as st

from mars_viz.components.race import growing
from mars_viz.escapes import markdown
from mars_viz.run import Run
from mars_viz.ui import navigation, tab_jobs, theme
from mars_viz.ui.jobs.job import JobState
from mars_viz.ui.live import live_words
from mars_viz.ui.live.page_state import LivePageState
from mars_viz.ui.session import current_session
from mars_viz.ui.under_way import stop_button


def stream(desk: LivePageState, busy: bool) -> None:
    """The decode: its numbers, its text, and a way to stop it; `busy` where the page was drawn while one went on."""
    job = desk.job
    if job is None and desk.recalled is not None:
        recalled(desk, desk.recalled)
        return
    if job is None:
        theme.note("Write a prompt and press Decode now: each round appears here as it is made.")
        released(desk, busy)
        return
    progress = job.progress
    state = progress.state
    words, button = st.columns([6, 1], vertical_alignment="center")
    if state in (JobState.QUEUED, JobState.LOADING):
        worker = tab_jobs.shared_worker()
        sentence = live_words.waiting(progress, worker.models.status, worker.ahead(job))
        words.progress(worker.models.status.share if state is JobState.LOADING else 0.0, markdown(sentence))
    else:
        sentence = live_words.decoding(progress, job.settings.max_new_tokens, job.stopping)
        done = state is JobState.DONE  # which a text may be before its limit
        words.progress(1.0 if done else min(1.0, progress.tokens / job.settings.max_new_tokens), markdown(sentence))
    if not state.finished:
        stop_button(button, "Cancel", job, keeps="Saves the rounds so far")
    elif progress.run is not None and button.button("Explore", width="stretch", help="Open this run in Explore"):
        explore(progress.saved and desk.run, progress.run)
    for problem in filter(None, [progress.error, progress.unsaved]):
        theme.note(problem)
    run = progress.so_far
    if run is not None or not state.finished:
        theme.numbers(live_words.tiles(run))
        growing(run, job.prompt, job=desk.run, key="live-stream")
    released(desk, busy)


def recalled(desk: LivePageState, run: Run) -> None:
    """A kept run that the link names, as the decode that it was."""
    words, button = st.columns([6, 1], vertical_alignment="center")
    words.caption(markdown(live_words.kept(run)))
    if button.button("Explore", width="stretch", help="Open this run in Explore"):
        explore(desk.run, run)
    theme.numbers(live_words.tiles(run))
    growing(run, run.prompt, job=desk.run, key="live-stream")


def released(desk: LivePageState, busy: bool) -> None:
    """Draws the page anew once nothing is waited for any more: what ended is told, and nothing polls."""
    if busy and desk.waits_for is None:
        st.rerun(scope="app")


def explore(name: str, run: Run) -> None:
    """Go to Explore with a run: the kept one of that name, or else this one."""
    session = current_session()
    session.land(name or session.keep(run, "live"))
    navigation.leave_for("pages/explore.py")
