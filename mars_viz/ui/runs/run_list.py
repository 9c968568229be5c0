"""The list of runs: search results, actions on selected runs, and deleted runs."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from mars_viz.errors import BadInput
from mars_viz.escapes import markdown, visible
from mars_viz.runlist import ListedRun, found
from mars_viz.runlist.listed import of_kept
from mars_viz.runlist.search import tags_among
from mars_viz.ui import faults, library, navigation, tab_jobs, theme, visitors
from mars_viz.ui.compare.compare_view import Across, Choice
from mars_viz.ui.compare.page_state import current_comparison
from mars_viz.ui.library import RunCatalogue
from mars_viz.ui.live import changing, live_words
from mars_viz.ui.runs import finder, several
from mars_viz.ui.runs.page_state import RunsPageState, Whose
from mars_viz.ui.runs.run_table import selected
from mars_viz.ui.session import Session
from mars_viz.words import counted, number

NOTHING = "There is no run here yet. Write a prompt on Explore or Live and press Decode: what it makes is saved here."
NONE_FOUND = "No run fits what is looked for. Press Clear all in Filter to see every run."
HINT = "Tick rows to open, compare, tag, download or delete their runs."


@faults.drawn
def listed(session: Session, state: RunsPageState, runs: Sequence[ListedRun]) -> None:
    """Draw the list."""
    deleted_items = in_bin()
    deleted_in_tab = [each for each in deleted_items if each.key in state.deleted]
    changing.lost(state, "run", deleted_items)
    deleted_here(state, deleted_in_tab)
    if not runs:
        theme.note(NOTHING)
    else:
        finder.finder(state, runs)
        matches = found(runs, state.view.query, state.view.order)
        if state.view.whose is Whose.MINE:
            matches = several.made_here(matches)
        filters = f", {counted(state.view.filters, 'filter')} set" if state.view.filters else ""
        st.caption(markdown(f"{number(len(matches))} of {counted(len(runs), 'run')}{filters}. {HINT}"))
        actions = st.container(horizontal=True, gap="xsmall", key="runs-deeds")
        selection = selected(matches) if matches else []
        if not matches:
            theme.note(NONE_FOUND)
        with actions:
            offer(session, state, selection, tags_among(runs))
    changing.bin_of(state, [each for each in deleted_items if deleted_in_tab != [each]])
    store = tab_jobs.run_store()
    st.caption(markdown(live_words.whose(store.folder if visitors.may_name_paths() else None)))


def offer(session: Session, state: RunsPageState, picked: Sequence[ListedRun], tags: Sequence[str]) -> None:
    """Draw the action buttons for the selected runs."""
    one = picked[0] if len(picked) == 1 else None
    st.button(
        "Show details", key="runs-details", disabled=one is None, on_click=details, args=(state, picked),
        help=None if one else "Tick one row",
    )  # fmt: skip
    if st.button("Explore", key="runs-explore", disabled=one is None or not one.opens) and one is not None:
        session.land(one.name)
        navigation.leave_for("pages/explore.py")
    two = len(picked) == 2 and all(run.opens for run in picked)
    if st.button("Compare", key="runs-compare", disabled=not two, help=None if two else "Tick two rows"):
        compare(session, picked)
    free, refused = several.changeable(picked)
    with st.popover("Tag", key="runs-tag", disabled=not free, help=markdown(refused) or None, on_change="rerun"):
        if free:
            tag_form(state, free, tags)
    download(session, picked)
    st.button(
        "Delete" if len(free) < 2 else f"Delete {len(free)}", key="runs-delete", disabled=not free,
        help=markdown(refused or live_words.BIN), on_click=several.delete, args=(state, free),
    )  # fmt: skip


def details(state: RunsPageState, picked: Sequence[ListedRun]) -> None:
    """Show the selected run's details."""
    state.look(run=picked[0].name)


def compare(session: Session, picked: Sequence[ListedRun]) -> None:
    """Open both runs side by side on Compare."""
    left, right = (run.name for run in picked)
    session.land(left)
    memory = current_comparison()
    memory.follow(left)
    memory.look(across=Across.RUNS, reference=Choice(left), shown=Choice(right), gamma=None)
    navigation.leave_for("pages/compare.py")


def tag_form(state: RunsPageState, runs: Sequence[ListedRun], tags: Sequence[str]) -> None:
    """Draw the form that adds and removes tags."""
    st.session_state.setdefault("runs-add", [])
    st.session_state.setdefault("runs-remove", [])
    st.multiselect(
        "Add", list(dict.fromkeys([*tags, *st.session_state["runs-add"]])), key="runs-add", format_func=visible,
        accept_new_options=True, placeholder="Choose or write tags",
    )  # fmt: skip
    current = tags_among(runs)
    st.session_state["runs-remove"] = [tag for tag in st.session_state["runs-remove"] if tag in current]
    st.multiselect(
        "Remove", current, key="runs-remove", format_func=visible, placeholder="Choose tags", disabled=not current
    )
    st.button(f"Tag {counted(len(runs), 'run')}", key="runs-tag-now", on_click=tag, args=(state, runs), width="stretch")


def tag(state: RunsPageState, runs: Sequence[ListedRun]) -> None:
    """Apply the chosen tags, and close the form."""
    add, remove = st.session_state["runs-add"], st.session_state["runs-remove"]
    if not (add or remove):
        state.notices[:] = ["No tag was chosen. Choose or write one under Tag."]
        return
    several.tag(state, runs, add, remove)
    if not state.notices:
        st.session_state["runs-add"] = st.session_state["runs-remove"] = []
        st.session_state["runs-tag"] = False


def download(session: Session, picked: Sequence[ListedRun]) -> None:
    """Draw the download button for the selected runs."""
    unread = not picked or not all(run.opens for run in picked)
    large = not unread and several.too_large(picked)
    problem = f"They take more than {several.MOST_BYTES >> 20} MB together; select fewer." if large else ""
    name = f"{picked[0].name}.zip" if len(picked) == 1 else "runs.zip"
    catalog = RunCatalogue({}, {}) if unread or large else library.shelf(session)
    st.download_button(
        "Download", lambda: several.zipped(picked, catalog), name, "application/zip", on_click="ignore",
        key="runs-zip", disabled=unread or large, help=markdown(problem) or None,
    )  # fmt: skip


def in_bin() -> list[changing.Item]:
    """Return deleted runs, newest first. If the bin cannot be read, show the error."""
    try:
        return [several.item(of_kept(kept)) for kept in tab_jobs.run_store().deleted()]
    except BadInput as error:
        theme.note(str(error))
        return []


def deleted_here(state: RunsPageState, here: Sequence[changing.Item]) -> None:
    """Draw the runs deleted in this tab, with an undo button for all of them."""
    if len(here) == 1:
        changing.deleted(state, here[0])
    if len(here) < 2:
        return
    with st.container(key="deleted-all"):
        words, button = st.columns(changing.COLUMNS, vertical_alignment="center")[::3]
        with words:
            refused = next(filter(None, (state.refused.get(each.key) for each in here)), "")
            theme.line(
                f"Deleted: {counted(len(here), 'run')}", refused or live_words.BIN.replace("It stays", "They stay")
            )
        button.button("Undo all", key="undo-all", on_click=several.restore, args=(state, here), width="stretch")
