"""Live page: decode, watch every round, and race three ways of decoding. Only layout."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from mars_viz.chat import History
from mars_viz.run import Settings
from mars_viz.ui import decode_form, faults, models_form, navigation, tab_jobs, theme
from mars_viz.ui.links import to_parameters
from mars_viz.ui.live import (
    NEXT,
    RACES,
    SAVED,
    TEXT,
    LivePageState,
    Show,
    Wanted,
    current_desk,
    device,
    race,
    released,
    stream,
)
from mars_viz.ui.session import current_session


@faults.drawn
def _page() -> None:
    navigation.through_app()
    page_state = current_desk()
    if st.query_params.get("view") == SAVED and current_session().arrives():
        st.switch_page("pages/runs.py")
    if page_state.arrive(current_session(), st.query_params.to_dict()):
        st.session_state["live-view"] = TEXT if page_state.link.show is Show.DECODE else RACES
    page_state.settle()
    theme.title("Live", "Decode now, and see each round as it is verified")
    busy = page_state.waits_for is not None
    settings, wanted = ask(page_state)
    theme.note(*page_state.notices)
    show = Show.DECODE if view(page_state) == TEXT else Show.RACE
    if show is Show.DECODE:
        faults.fragment(stream, run_every=tab_jobs.pace() if busy else None)(page_state, busy)
    else:
        if busy:
            faults.fragment(released, run_every=tab_jobs.pace())(page_state, busy)
        race(page_state)
    device(page_state, settings, wanted)
    navigation.write_link(to_parameters(page_state.address_of(show)))


def view(page_state: LivePageState) -> str:
    """Draw the switch between the decode and the races, and return the choice; without a decode there is no switch."""
    if page_state.job is None and page_state.recalled is None:
        return RACES
    st.session_state.setdefault("live-view", TEXT)
    choice = st.segmented_control("Show", [TEXT, RACES], key="live-view", required=True, label_visibility="collapsed")
    return choice or TEXT


def ask(page_state: LivePageState) -> tuple[Callable[[], Settings], Wanted]:
    """Draw the prompt, its settings and the two buttons.

    They stay enabled while a job runs, because on a busy server the rerun that would enable them may be lost.
    """
    models = current_session().models
    left, middle, right = st.columns([6.6, 1.8, 2.0], vertical_alignment="center")
    with left:
        text = decode_form.prompt_box(pair=models_form.not_built_in(models), start=page_state.opening)
        template = tab_jobs.has_template(models)
        chat, system = decode_form.chat_fields(template, page_state.link.chat, page_state.link.system)
    with middle, st.popover("Settings", width="stretch"):
        settings = decode_form.settings_fields(page_state.link.settings, page_state.decoded)
    wanted = Wanted(models, chat, History(system))
    page_state.remember(text, settings, wanted)
    with right:
        if st.button("Decode now", type="primary", width="stretch", help="Shows each round as soon as it is verified"):
            page_state.decode(text, settings, wanted)
            st.session_state[NEXT] = TEXT
            st.rerun()
        if st.button("Race now", width="stretch", help="Times the target alone, strict and relaxed on the same prompt"):
            page_state.run_race(text, settings, wanted)
            st.session_state[NEXT] = RACES
            st.rerun()
    following = st.session_state.pop(NEXT, None)
    if following is not None:
        st.session_state["live-view"] = following
    return settings, wanted


_page()
