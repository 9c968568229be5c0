"""Runs page: the list of all runs, and the details of one. Only layout."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from mars_viz import default_folders, samples
from mars_viz.errors import BadInput
from mars_viz.runlist import listed_runs
from mars_viz.runlist.search import of_tab
from mars_viz.ui import faults, library, navigation, theme
from mars_viz.ui.links import to_parameters
from mars_viz.ui.runs import RunsPageState, listed, shown
from mars_viz.ui.session import current_session


@faults.drawn
def page() -> None:
    """Draw the list, or the details of one run."""
    navigation.through_app()
    session, state = current_session(), RunsPageState.of_tab()
    state.arrive(session, st.query_params.to_dict())
    theme.title("Runs", "Every run here: what made it, and how it is made again")
    try:
        typing = st.session_state.get("runs-search", state.view.words) != state.view.words
        if state.listed is None or not typing:
            state.listed = listed_runs(default_folders.runs(), samples.runs_folder())
    except BadInput as error:
        theme.note(str(error))
        st.stop()
    own = [of_tab(name, run) for name, run in reversed(list(session.runs.items()))]
    runs = [*own, *library.seen(state.listed)]
    selected_run = next((run for run in runs if run.name == state.view.run), None)
    if state.view.run and selected_run is None:
        state.view = replace(state.view, run="")
        state.notices = state.notices or ["There is no run of that name here; choose another from the list."]
    theme.note(*state.notices)
    if selected_run is None:
        listed(session, state, runs)
    else:
        shown(session, state, selected_run, runs)
    navigation.write_link(to_parameters(state.view))


page()
