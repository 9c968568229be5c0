"""The models on the Live page: what is loaded, where it runs, what it takes. Knows the desk and the worker."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from mars_viz.costs import disturbance
from mars_viz.escapes import markdown
from mars_viz.run import Settings
from mars_viz.ui import faults, tab_jobs, theme
from mars_viz.ui.jobs.worker import UnloadJob
from mars_viz.ui.live import live_words
from mars_viz.ui.live.page_state import LivePageState
from mars_viz.ui.live.pair_form import Wanted, in_words
from mars_viz.ui.under_way import progress_bar


def device(desk: LivePageState, settings: Callable[[], Settings], wanted: Callable[[], Wanted]) -> None:
    """What is loaded, where it runs, what it takes."""
    status = tab_jobs.shared_worker().models.status
    with st.expander("Models and device", expanded=status.device is not None):
        if status.choice is None or status.device is None:
            st.caption("No models are loaded; the first decode loads them.")
        else:
            theme.small(in_words(status.choice))
            theme.numbers(live_words.device_tiles(status.device))
            for sentence in status.device.notes:
                theme.note(sentence)
        if status.costs is not None:
            theme.numbers(live_words.cost_tiles(status.costs, status.costs.gamma))
            if said := disturbance(status.costs):
                theme.note(said)
        with st.container(horizontal=True):
            again = status.costs is not None or desk.measured
            words = "Measure again" if again else "Measure passes"
            if st.button(
                markdown(words), help="Times the passes of this pair here; takes a few seconds", key="measure-passes"
            ):
                desk.measure(settings, wanted)
                st.rerun()
            if st.button("Unload models", disabled=status.choice is None, help="Frees their memory"):
                desk.unloading = UnloadJob()
                tab_jobs.shared_worker().submit(desk.unloading)
                st.rerun()
        if desk.measuring is not None:
            faults.fragment(measuring, run_every=tab_jobs.pace())(desk)
        if desk.unloading is not None:
            faults.fragment(unloading, run_every=tab_jobs.pace())(desk)


def unloading(desk: LivePageState) -> None:
    """Waits until the models are gone."""
    if desk.unloading is None or desk.unloading.progress.state.finished:
        desk.unloading = None
        st.rerun(scope="app")
    st.caption("Unloading the models, once the jobs before it are done …")


def measuring(desk: LivePageState) -> None:
    """Waits for a measurement."""
    if desk.measuring is None or desk.measuring.progress.state.finished:
        st.rerun(scope="app")
    job, words = desk.measuring, "Measuring what a pass costs, until its interval is small …"
    progress_bar(job, job.progress.share, words, "Stop", key="stop-measuring")
