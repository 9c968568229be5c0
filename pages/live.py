"""Live: decode now, watch every round, race three ways to decode. Layout and wiring only."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from mars_viz.chat import History
from mars_viz.run import Settings
from mars_viz.ui import decode_form, faults, models_form, navigation, tab_jobs, theme
from mars_viz.ui.links import to_parameters
from mars_viz.ui.live.live_link import SAVED, Show
from mars_viz.ui.live.page_state import NEXT, RACES, TEXT, LivePageState, Wanted, current_desk
from mars_viz.ui.live.views import device, race, released, stream
from mars_viz.ui.session import current_session


@faults.drawn
def page() -> None:
    """The whole page."""
    navigation.through_app()
    desk = current_desk()
    if st.query_params.get("view") == SAVED and current_session().arrives():
        st.switch_page("pages/runs.py")
    if desk.arrive(current_session(), st.query_params.to_dict()):
        st.session_state["live-view"] = TEXT if desk.link.show is Show.DECODE else RACES
    desk.settle()
    theme.title("Live", "Decode now, and see each round as it is verified")
    busy = desk.waits_for is not None
    settings, wanted = ask(desk)
    for sentence in desk.notices:
        theme.note(sentence)
    show = Show.DECODE if view(desk) == TEXT else Show.RACE
    if show is Show.DECODE:
        faults.fragment(stream, run_every=tab_jobs.pace() if busy else None)(desk, busy)
    else:
        if busy:
            faults.fragment(released, run_every=tab_jobs.pace())(desk, busy)
        race(desk)
    device(desk, settings, wanted)
    navigation.write_link(to_parameters(desk.address_of(show)))


def view(desk: LivePageState) -> str:
    """Draw the switch between the decode and the races, and return the choice; without a decode there is none."""
    if not desk.has_decode:
        return RACES
    st.session_state.setdefault("live-view", TEXT)
    choice = st.segmented_control("Show", [TEXT, RACES], key="live-view", required=True, label_visibility="collapsed")
    return choice or TEXT


def ask(desk: LivePageState) -> tuple[Callable[[], Settings], Wanted]:
    """The prompt, its folded settings, and the two buttons.

    All stay open while something is under way: the page that would open them again may be lost on a busy server.
    """
    models = current_session().models
    left, middle, right = st.columns([6.6, 1.8, 2.0], vertical_alignment="center")
    with left:
        text = decode_form.prompt_box(pair=models_form.not_built_in(models), start=desk.opening)
        template = tab_jobs.has_template(models)
        chat, system = decode_form.chat_fields(template, desk.link.chat, desk.link.system)
    with middle, st.popover("Settings", width="stretch"):
        start = decode_form.drafting(desk.link.settings, models.tree)
        settings = decode_form.settings_fields(start, desk.decoded)
        decode_form.keep_shape(settings)
    wanted = Wanted(models, chat, History(system))
    desk.remember(text, settings, wanted)
    with right:
        if st.button("Decode now", type="primary", width="stretch", help="Shows each round as soon as it is verified"):
            desk.decode(text, settings, wanted)
            st.session_state[NEXT] = TEXT
            st.rerun()
        if st.button("Race now", width="stretch", help="Times the target alone, strict and relaxed on the same prompt"):
            desk.run_race(text, settings, wanted)
            st.session_state[NEXT] = RACES
            st.rerun()
    following = st.session_state.pop(NEXT, None)
    if following is not None:
        st.session_state["live-view"] = following
    return settings, wanted


page()
