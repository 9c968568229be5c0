"""Gallery: what is there to be seen? Recorded runs as cards, and the other pages. Layout and wiring."""

from __future__ import annotations

import streamlit as st

from mars_viz.ui import gallery, library, navigation, theme
from mars_viz.ui.session import Session, current_session

NARROWEST = 300  # pixels of a card, below which fewer stand on a row
STYLE = """
.mv-card { display: flex; flex-direction: column; gap: .25rem; }
.mv-card .bars { height: 44px; }
.mv-card .bars img { display: block; width: 100%; height: 44px; }
.mv-card h3 { font-size: 1.05rem; font-weight: 600; padding: .3rem 0 0; margin: 0; line-height: 1.3;
  min-height: 2.9em; }
.mv-card h3, .mv-card p { overflow-wrap: anywhere; }
.mv-card p { margin: 0; font-size: .9rem; min-height: 3em; }
.mv-card .tau { font-variant-numeric: tabular-nums; opacity: .75; font-size: .9rem; }
"""


def page() -> None:
    """The cards, or what to do where there are none, and the way to every other page."""
    navigation.through_app()
    session = current_session()
    theme.title("MARS Viz", "Speculative decoding, token by token: choose a run, and turn its dial.")
    st.html(f"<style>{STYLE}</style>")
    shelf = library.shelf(session)
    if shelf.error:
        theme.note(shelf.error)
    elif not shelf.recorded:
        theme.note(gallery.EMPTY)
    with st.grid(3, min_column_width=NARROWEST, key="cards"):
        for card in gallery.cards(shelf):
            show(session, card)
    st.markdown("##### Elsewhere")
    for other in gallery.ELSEWHERE:
        left, right = st.columns([1.5, 8.5], vertical_alignment="center")
        left.page_link(other.page, label=other.name)
        right.caption(other.line)


def show(session: Session, card: gallery.Card) -> None:
    """A card, and the button that opens its run on Explore."""
    with st.container(border=True):
        st.html(card.html)
        if st.button("Open", key=f"open-{card.run_id}", width="stretch", disabled=not card.bars):
            session.land(card.run_id)
            st.switch_page("pages/explore.py")


page()
