"""Gallery, the start page: an introduction, and cards of everything that can be opened. Only layout."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, replace

import streamlit as st

from mars_viz.components.explorer.element import Look, explorer
from mars_viz.components.guide import guide
from mars_viz.escapes import Html, markdown
from mars_viz.ui import faults, gallery, library, live, navigation, theme
from mars_viz.ui.lessons.base import LessonPageState
from mars_viz.ui.library import RunCatalogue
from mars_viz.ui.links import View
from mars_viz.ui.session import Session, current_session

NARROWEST = 300  # minimum width of a card in pixels; a narrower page has fewer per row
STYLE = """
.stApp .mv-head p { display: block; }
@media (min-width: 641px) { /* a closed guide leaves its column to the run, and a row above it is enough */
  [data-guide=closed] [data-testid=stHorizontalBlock] { flex-direction: column-reverse; gap: .5rem; }
  [data-guide=closed] [data-testid=stColumn] { width: 100%; flex: none; }
  [data-guide=closed] [data-testid=stColumn]:last-child .stVerticalBlock { flex-flow: row wrap; align-items: center; }
  [data-guide=closed] [data-testid=stColumn]:last-child .stVerticalBlock > * { width: auto; }
}
.mv-card { display: flex; flex-direction: column; gap: .25rem; }
.mv-card .bars { height: 44px; }
.mv-card .bars:empty { display: none; }
.mv-card .bars img { display: block; width: 100%; height: 44px; }
.mv-card h3 { font-size: 1.05rem; font-weight: 600; padding: .3rem 0 0; margin: 0; line-height: 1.3; }
.mv-card .words { display: flex; flex-direction: column; gap: .25rem; }
.mv-card h3, .mv-card p { overflow-wrap: anywhere; }
.mv-card p { margin: 0; font-size: .9rem; line-height: 1.45; }
@media (min-width: 700px) {
  .mv-card .words { min-height: 6.1rem; } /* two lines each, so that what follows stands in a row */
}
.mv-card .fact { font-variant-numeric: tabular-nums; opacity: .75; font-size: .85rem; }
"""


@faults.drawn
def _page() -> None:
    navigation.through_app()
    session, parameters = current_session(), st.query_params.to_dict()
    # Explore once was the start page; the browser's Back also leads here
    if any(each.name in parameters for each in fields(View)) and not session.arrived:
        session.arrive(parameters)
        st.switch_page("pages/explore.py")
    theme.title("MARS Viz", gallery.HERO)
    theme.show(Html(f"<style>{STYLE}</style>"))
    catalog = library.shelf(session)
    _hero(session, catalog)
    if catalog.error:
        theme.note(catalog.error)
    elif not catalog.samples:
        theme.note(gallery.nothing_yet(catalog))
    _runs(session, catalog)
    theme.section("Seven lessons, each with one thing to move")
    _in_cards("lessons", gallery.lesson_cards(catalog), "Open the lesson", lambda name: _teach(session, int(name)))
    _more()


def _hero(session: Session, catalog: RunCatalogue) -> None:
    if run_id := gallery.shown_first(catalog):
        with st.container(key="first-minute"):
            _first_minute(session, catalog, run_id)
    elif st.button("Decode a prompt on Explore", type="primary", key="begin"):
        st.switch_page("pages/explore.py")


@faults.fragment
def _first_minute(session: Session, catalog: RunCatalogue, run_id: str) -> None:
    run = catalog.opened(run_id)
    left, right = st.columns([8.4, 3.6])
    key = f"first-{run_id}"
    with left:
        state = explorer(run, dial=None, overlay="outcome", selected=None, key=key, look=Look.HERO)
    with right:
        lesson = guide(key, gallery.played_values(run), key="guide")
        opens = st.button("Open this run in Explore", type="primary", key="begin")
        theme.small(catalog.line(run_id))
    if lesson is not None:
        _teach(session, lesson)
    if opens:
        session.land(run_id)
        session.view = replace(session.view, dial=state.dial, selected=state.selected)
        st.switch_page("pages/explore.py")


def _runs(session: Session, catalog: RunCatalogue) -> None:

    def row(kind: str, title: str, cards: Iterable[gallery.Card]) -> None:
        theme.section(title)
        _in_cards(kind, cards, "Open", lambda name: _see(session, name))

    if catalog.samples:
        row("runs", "Sample runs", gallery.run_cards(catalog, filter(catalog.samples.__contains__, catalog.recorded)))
    saved = catalog.kept
    if not saved:
        return
    every = st.session_state.get("all-runs", False)
    row("kept", catalog.kept_title, gallery.run_cards(catalog, saved, None if every else gallery.MOST))
    if len(saved) > gallery.MOST and not every:
        show_all = {"all-runs": True}
        st.button(f"Show all {len(saved)} runs", on_click=lambda: st.session_state.update(show_all), key="every-run")


def _in_cards(kind: str, cards: Iterable[gallery.Card], verb: str, opened: Callable[[str], None]) -> None:
    with st.grid(3, min_column_width=NARROWEST, key=f"grid-of-{kind}"):
        for card in cards:
            with st.container(border=True):
                theme.show(card.html)
                if st.button(markdown(verb), key=f"{kind}-{card.name}", width="stretch", disabled=not card.opens):
                    opened(card.name)


def _see(session: Session, run_id: str) -> None:
    session.land(run_id)
    st.switch_page("pages/explore.py")


def _teach(session: Session, lesson: int) -> None:
    session.arrives()  # the tab's first link is handled
    LessonPageState.of_tab().turn_to(lesson)
    st.switch_page("pages/learn.py")


def _more() -> None:
    theme.section("Other pages")
    left, right = st.columns([4, 8], gap="large")
    card = gallery.race_card(live.course())
    if card is not None:
        with left.container(border=True):
            theme.show(card.html)
            if st.button("Watch the race", key="race", width="stretch"):
                live.current_desk().shown = card.name
                st.session_state[live.NEXT] = live.RACES
                st.switch_page("pages/live.py")
    with right if card is not None else st.container():
        for page, name, line in gallery.ELSEWHERE:
            left, right = st.columns([1.4, 6.6], vertical_alignment="center")
            left.page_link(page, label=markdown(name))
            right.caption(markdown(line))


_page()
