"""The models on the Live page: what is loaded, where it runs, what it takes. Knows the desk and the worker."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from mars_viz.run import Settings
from mars_viz.ui import live, theme
from mars_viz.ui.jobs.worker import UnloadJob
from mars_viz.ui.watching import live_words
from mars_viz.ui.watching.desk import Desk
from mars_viz.ui.watching.pair_form import Wanted, in_words


def device(desk: Desk, settings: Callable[[], Settings], wanted: Callable[[], Wanted]) -> None:
    """What is loaded, where it runs, what it takes."""
    status = live.shared_worker().models.status
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
        with st.container(horizontal=True):
            if st.button("Measure passes", help="A few seconds: what a pass costs with this pair here"):
                desk.measure(settings, wanted)
                st.rerun()
            if st.button("Unload models", disabled=status.choice is None, help="Gives their memory back"):
                live.shared_worker().submit(UnloadJob())
        if desk.measuring is not None:
            st.fragment(measuring, run_every=live.pace())(desk)


def measuring(desk: Desk) -> None:
    """Waits for a measurement."""
    if desk.measuring is None or desk.measuring.progress.state.finished:
        st.rerun(scope="app")
    st.caption("Measuring what a pass costs …")
