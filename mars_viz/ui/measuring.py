"""Asking the server's worker what a pass costs, wherever a page models something from it: a button, how far it is, and
a way to stop it. Knows the session and the worker; how costs are measured is `jobs.tasks`' to know."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import streamlit as st

from mars_viz.costs import Costs
from mars_viz.escapes import markdown
from mars_viz.run import Settings
from mars_viz.ui import faults, tab_jobs, theme
from mars_viz.ui.jobs import tasks
from mars_viz.ui.jobs.costs_job import CostsJob
from mars_viz.ui.jobs.job import JobState
from mars_viz.ui.jobs.models import PairChoice
from mars_viz.ui.stop_button import stop_button

POLL = 0.5
"""Seconds between looks at a measurement under way."""


def measure_again(
    key: str, why: str, settings: Settings, choice: PairChoice, keep: Callable[[Costs], object] | None = None
) -> None:
    """Why costs are wanted, in a sentence, and the button that measures them with these models in blocks of these
    settings; `keep` writes them. `key` tells one place from another."""
    name = f"costs-job-{key}"
    job: CostsJob | None = st.session_state.get(name)
    if job is not None and not job.progress.state.finished:
        faults.fragment(_under_way, run_every=POLL)(job, key)
        return

    def start() -> None:
        asked = CostsJob(partial(tasks.measure, settings), choice, keep)
        st.session_state[name] = asked
        tab_jobs.shared_worker().submit(asked)

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


def _under_way(job: CostsJob, key: str) -> None:
    if job.progress.state.finished:
        st.rerun(scope="app")
    bar, button = st.columns([6, 1.4], vertical_alignment="center")
    ahead = tab_jobs.shared_worker().ahead(job)
    queued = job.progress.state is JobState.QUEUED and ahead
    words = f"Waiting for {ahead} other jobs on this server …" if queued else "Measuring what a pass costs …"
    bar.progress(job.progress.share, markdown(words))
    stop_button(button, "Stop", job, key=f"stop-{key}")
