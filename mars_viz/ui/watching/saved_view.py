"""The kept runs on the Live page, each with what can be done with it. Knows the desk and the store."""

from __future__ import annotations

import streamlit as st

from mars_viz.errors import BadInput
from mars_viz.runstore import Kept, Standing
from mars_viz.ui import live, navigation, theme
from mars_viz.ui.session import current_session
from mars_viz.ui.watching.desk import Desk

LISTED = 30
"""Runs on the page, until all are asked for."""


def saved(desk: Desk) -> None:
    """The runs that were kept, each with what can be done with it."""
    store = live.run_store()
    try:
        kept = store.list()
    except BadInput as error:
        theme.note(str(error))
        return
    st.caption(f"In {store.folder}, for everyone who can open this page; MARS_VIZ_RUNS names another folder.")
    if not kept:
        theme.note("No run is kept yet. Press Decode now: what it makes is kept here.")
    every = st.session_state.get("all-saved", False)
    for entry in kept if every else kept[:LISTED]:
        one_saved(desk, entry)
    if len(kept) > LISTED and not every:
        show_all = {"all-saved": True}
        st.button(f"Show all {len(kept)} runs", on_click=lambda: st.session_state.update(show_all), key="every-saved")


def one_saved(desk: Desk, entry: Kept) -> None:
    """A line of the list."""
    words, first, second, third = st.columns([6, 1.2, 1.2, 1.2], vertical_alignment="center")
    whole = entry.standing in (Standing.WHOLE, Standing.INTERRUPTED) and not entry.error
    with words:
        standing = "" if entry.standing is Standing.WHOLE else f", {entry.standing.value}"
        theme.line(entry.title, entry.error or f"{entry.name}, {entry.tokens} tokens{standing}")
    if first.button("Explore", key=f"open-{entry.name}", disabled=not whole, width="stretch"):
        current_session().land(entry.name)
        navigation.leave_for("pages/explore.py")
    second.download_button(
        "Download", lambda: live.run_store().zipped(entry.name), f"{entry.name}.zip", "application/zip",
        on_click="ignore", key=f"zip-{entry.name}", disabled=not whole, width="stretch",
    )  # fmt: skip
    with third.popover("Change", width="stretch", disabled=entry.standing is Standing.GROWING):
        st.text_input("Name", entry.name, key=f"name-{entry.name}", max_chars=80)
        st.button("Rename", key=f"rename-{entry.name}", on_click=rename, args=(desk, entry.name))
        st.button("Delete for good", key=f"delete-{entry.name}", on_click=delete, args=(desk, entry.name))


def rename(desk: Desk, name: str) -> None:
    """Give a kept run the name that is written beside it; what is wrong becomes a notice."""
    desk.attempt(lambda: desk.renamed(name, live.run_store().rename(name, str(st.session_state[f"name-{name}"]))))


def delete(desk: Desk, name: str) -> None:
    """Delete a kept run; what is wrong becomes a notice."""

    def gone() -> None:
        live.run_store().delete(name)
        desk.renamed(name, "")

    desk.attempt(gone)
