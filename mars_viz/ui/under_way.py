"""Progress and stop buttons of running jobs, and the measurement of passes' costs, which several pages offer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import ref

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mars_viz.backend_choice import BackendChoice
from mars_viz.costs import Costs
from mars_viz.escapes import markdown
from mars_viz.run import Settings
from mars_viz.ui import faults, tab_jobs, theme
from mars_viz.ui.jobs import tasks
from mars_viz.ui.jobs.job import CostsJob, Job, JobState
from mars_viz.ui.session import Session
from mars_viz.words import counted

POLL = 0.5  # seconds between polls of a measurement


def stop_button(place: DeltaGenerator, words: str, job: Job[Any], *, keeps: str = "", key: str | None = None) -> None:
    """Draw the button that stops a job; `keeps` describes the results that are kept.

    The button holds only a weak reference: Streamlit never forgets a widget's callback, and a job holds all its
    results.
    """
    reference = ref(job)

    def stop() -> None:
        running = reference()
        if running is not None:
            running.cancel()

    place.button(
        markdown(words),
        key=key,
        on_click=stop,
        disabled=job.stopping,
        width="stretch",
        help=markdown(keeps) or None,
    )


def progress_bar(
    job: Job[Any], share: float, sentence: str, stop: str = "Cancel", *, keeps: str = "", key: str | None = None
) -> None:
    """Draw the progress of a job, from 0 to 1, with a sentence and a stop button."""
    bar, button = st.columns([6, 1], vertical_alignment="center")
    bar.progress(min(1.0, share), markdown(sentence))
    stop_button(button, stop, job, keeps=keeps, key=key)


def decoding(session: Session) -> None:
    """Draw the progress of this tab's decode, with its text."""
    faults.fragment(_decoding, run_every=tab_jobs.pace())(session)


def _decoding(session: Session) -> None:
    job = session.job
    if job is None or job.progress.state.readable:
        st.rerun()
    progress, limit = job.progress, job.settings.max_new_tokens
    words = tab_jobs.what_goes_on(progress, limit, tab_jobs.shared_worker().ahead(job), job.stopping)
    progress_bar(job, progress.tokens / limit, words, keeps="Keeps what was decoded")
    theme.live_text(job.prompt, progress.text)


def measure_again(
    key: str, why: str, settings: Settings, choice: BackendChoice, keep: Callable[[Costs], object] | None = None
) -> None:
    """Draw the reason for measuring costs and the button that starts it with these models and settings. `keep` stores
    the costs. `key` is unique on the page."""
    name = f"costs-job-{key}"
    job: CostsJob | None = st.session_state.get(name)
    if job is not None and not job.progress.state.finished:
        faults.fragment(_measuring, run_every=POLL)(job, key)
        return

    def start() -> None:
        new_job = CostsJob(partial(tasks.measure, settings), choice, keep)
        st.session_state[name] = new_job
        tab_jobs.shared_worker().submit(new_job)

    words, button = st.columns([6, 1.4], vertical_alignment="center")
    with words:
        theme.small(why)
        if job is not None and job.progress.error:
            theme.note(job.progress.error)
    first = job is None or job.progress.state is JobState.DONE
    button.button(
        "Measure costs" if first else "Measure again",
        key=f"measure-{key}",
        on_click=start,
        width="stretch",
        help="Some seconds: what a pass costs here, until its interval is small",
    )


def _measuring(job: CostsJob, key: str) -> None:
    if job.progress.state.finished:
        st.rerun(scope="app")
    ahead = tab_jobs.shared_worker().ahead(job)
    queued = job.progress.state is JobState.QUEUED and ahead
    words = f"Waiting for {counted(ahead, 'other job')} on this server …" if queued else "Measuring what a pass costs …"
    progress_bar(job, job.progress.share, words, "Stop", key=f"stop-{key}")
