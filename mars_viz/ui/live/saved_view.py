"""The kept runs on the Live page, each with what can be done with it. Knows the desk and the store."""

from __future__ import annotations

import streamlit as st

from mars_viz.errors import BadInput
from mars_viz.escapes import markdown
from mars_viz.figures.words import counted
from mars_viz.runstore import KeptRun, RunStatus, by_age
from mars_viz.ui import faults, navigation, tab_jobs, theme, visitors
from mars_viz.ui.live import changing, live_words
from mars_viz.ui.live.page_state import LivePageState
from mars_viz.ui.session import current_session

LISTED = 30
"""Runs on the page, until all are asked for."""


def saved(desk: LivePageState) -> None:
    """The runs that were kept, each with what can be done with it."""
    store = tab_jobs.run_store()
    try:
        kept, deleted = store.list(), store.deleted()
    except BadInput as error:
        theme.note(str(error))
        return
    st.caption(markdown(live_words.whose(store.folder if visitors.may_name_paths() else None)))
    here = [entry for entry in deleted if item(entry).key in desk.deleted]
    rows = by_age([*kept, *here])
    changing.lost(desk, "run", [item(entry) for entry in (*kept, *deleted)])
    if not rows:
        theme.note("No run is saved yet. Press Decode now: what it makes is saved here.")
    changing.settle(desk)
    every = st.session_state.get("all-saved", False)
    for entry in rows if every else rows[:LISTED]:
        one_saved(desk, entry)
    if len(rows) > LISTED and not every:
        show_all = {"all-saved": True}
        st.button(f"Show all {len(rows)} runs", on_click=lambda: st.session_state.update(show_all), key="every-saved")
    changing.bin_of(desk, [item(entry) for entry in deleted if entry not in here])


@faults.drawn
def one_saved(desk: LivePageState, entry: KeptRun) -> None:
    """A line of the list."""
    if entry.standing is RunStatus.DELETED:
        changing.deleted(desk, item(entry))
        return
    with st.container(key=f"saved-{entry.name}"):
        words, first, second, third = st.columns(changing.COLUMNS, vertical_alignment="center")
    whole = entry.standing in (RunStatus.WHOLE, RunStatus.INTERRUPTED) and not entry.error
    with words:
        standing = "" if entry.standing is RunStatus.WHOLE else f", {entry.standing.value}"
        theme.line(entry.title, entry.error or f"{entry.name}, {counted(entry.tokens, 'token')}{standing}")
    if first.button("Explore", key=f"open-{entry.name}", disabled=not whole, width="stretch"):
        current_session().land(entry.name)
        navigation.leave_for("pages/explore.py")
    second.download_button(
        "Download", lambda: tab_jobs.run_store().zipped(entry.name), f"{entry.name}.zip", "application/zip",
        on_click="ignore", key=f"zip-{entry.name}", disabled=not whole, width="stretch",
    )  # fmt: skip
    growing = "It is being decoded; cancel it first, or wait for its end." * (entry.standing is RunStatus.GROWING)
    changing.popover(third, desk, item(entry), growing, width="stretch")


def item(entry: KeptRun) -> changing.Item:
    """The run, as something to rename and to delete."""
    title = "" if entry.manifest is None else " ".join(entry.manifest.title.split())
    return changing.Item(
        tab_jobs.run_store(), entry.name, entry.title, title, readable=entry.manifest is not None and not entry.error
    )
