"""Gallery, the start page: what is this, where does one begin, and what is there to be seen? Layout and wiring."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import streamlit as st

from mars_viz.components.explorer import Look, explorer
from mars_viz.components.guide import guide
from mars_viz.escapes import Html, markdown
from mars_viz.ui import faults, gallery, library, links, navigation, theme
from mars_viz.ui.lessons.page_state import current_desk
from mars_viz.ui.library import RunCatalogue
from mars_viz.ui.live import races
from mars_viz.ui.live.page_state import NEXT, RACES
from mars_viz.ui.live.page_state import current_desk as live_desk
from mars_viz.ui.session import Session, current_session

NARROWEST = 300  # pixels of a card, below which fewer stand on a row
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
def page() -> None:
    """What this is, where to begin, then cards: runs, lessons, the race, the other pages."""
    navigation.through_app()
    session, asked = current_session(), st.query_params.to_dict()
    if links.asks_for_a_view(asked) and not session.arrived:  # a step back in the browser's history ends here
        session.arrive(asked)
        st.switch_page("pages/explore.py")
    theme.title("MARS Viz", gallery.HERO)
    theme.show(Html(f"<style>{STYLE}</style>"))
    shelf = library.shelf(session)
    hero(session, shelf)
    if shelf.error:
        theme.note(shelf.error)
    elif not shelf.samples:
        theme.note(gallery.nothing_yet(shelf))
    runs(session, shelf)
    theme.section("Seven lessons, each with one thing to move")
    in_cards("lessons", gallery.lesson_cards(shelf), "Open the lesson", lambda name: teach(session, int(name)))
    more()


def hero(session: Session, shelf: RunCatalogue) -> None:
    """A recorded run with its dial, and the guide to it; without one, the way to decode a prompt."""
    run_id = gallery.shown_first(shelf)
    if run_id:
        with st.container(key="first-minute"):
            first_minute(session, shelf, run_id)
    elif st.button("Decode a prompt on Explore", type="primary", key="begin"):
        st.switch_page("pages/explore.py")


@faults.fragment
def first_minute(session: Session, shelf: RunCatalogue, run_id: str) -> None:
    """The run's explorer, the guide, and the button that opens Explore where the reader has left the dial."""
    run = shelf.opened(run_id)
    seen, told = st.columns([8.4, 3.6])
    key = f"first-{run_id}"
    with seen:
        state = explorer(run, dial=None, overlay="outcome", selected=None, key=key, look=Look.HERO)
    with told:
        lesson = guide(key, gallery.played_values(run), key="guide")
        opens = st.button("Open this run in Explore", type="primary", key="begin")
        theme.small(shelf.line(run_id))
    if lesson is not None:
        teach(session, lesson)
    if opens:
        session.land(run_id)
        session.view = replace(session.view, dial=state.dial, selected=state.selected)
        st.switch_page("pages/explore.py")


def runs(session: Session, shelf: RunCatalogue) -> None:
    """The samples, then what else was recorded here; of very many the first, until all are asked for."""

    def row(kind: str, title: str, cards: Iterable[gallery.Card]) -> None:
        theme.section(title)
        in_cards(kind, cards, "Open", lambda name: see(session, name))

    if shelf.samples:
        row("runs", "Sample runs", gallery.run_cards(shelf, filter(shelf.samples.__contains__, shelf.recorded)))
    kept = shelf.kept
    if not kept:
        return
    every = st.session_state.get("all-runs", False)
    row("kept", shelf.kept_title, gallery.run_cards(shelf, kept, None if every else gallery.MOST))
    if len(kept) > gallery.MOST and not every:
        show_all = {"all-runs": True}
        st.button(f"Show all {len(kept)} runs", on_click=lambda: st.session_state.update(show_all), key="every-run")


def in_cards(kind: str, cards: Iterable[gallery.Card], verb: str, opened: Callable[[str], None]) -> None:
    """Cards in as many columns as fit, each with its button."""
    with st.grid(3, min_column_width=NARROWEST, key=f"grid-of-{kind}"):
        for card in cards:
            with st.container(border=True):
                theme.show(card.html)
                if st.button(markdown(verb), key=f"{kind}-{card.name}", width="stretch", disabled=not card.opens):
                    opened(card.name)


def see(session: Session, run_id: str) -> None:
    """Open a run on Explore."""
    session.land(run_id)
    st.switch_page("pages/explore.py")


def teach(session: Session, lesson: int) -> None:
    """Open a lesson."""
    session.arrives()  # the tab has a page now that says what it shows
    current_desk().turn_to(lesson)
    st.switch_page("pages/learn.py")


def watch_race(name: str) -> None:
    """Open the race on Live."""
    live_desk().shown = name
    st.session_state[NEXT] = RACES
    st.switch_page("pages/live.py")


def more() -> None:
    """The race, and the pages that no card leads to."""
    theme.section("Other pages")
    left, right = st.columns([4, 8], gap="large")
    card = gallery.race_card(races.course())
    if card is not None:
        with left.container(border=True):
            theme.show(card.html)
            if st.button("Watch the race", key="race", width="stretch"):
                watch_race(card.name)
    with right if card is not None else st.container():
        for other in gallery.ELSEWHERE:
            name, line = st.columns([1.4, 6.6], vertical_alignment="center")
            name.page_link(other.page, label=markdown(other.name))
            line.caption(markdown(other.line))


page()
