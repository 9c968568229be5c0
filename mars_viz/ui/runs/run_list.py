"""The list of runs: search field and filters, the selectable table, actions on selected runs, and deleted runs. All
text is escaped."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import TypeVar

import pandas as pd
import streamlit as st

from mars_viz.errors import BadInput
from mars_viz.escapes import markdown, visible
from mars_viz.rules import rule_named
from mars_viz.runlist import ListedRun, Order, RunOrigin, found, search
from mars_viz.runlist.listed import of_kept
from mars_viz.runlist.search import tags_among
from mars_viz.runstore import RunStatus
from mars_viz.ui import faults, library, navigation, tab_jobs, theme, visitors
from mars_viz.ui.compare.page_state import Across, Choice, Comparison
from mars_viz.ui.library import RunCatalogue
from mars_viz.ui.links import clipped
from mars_viz.ui.runs import page_state
from mars_viz.ui.runs.page_state import RunsPageState, RunsView, Whose
from mars_viz.ui.session import Session
from mars_viz.words import counted, exactly, number, number_in

T = TypeVar("T")
ORDERS = {
    Order.NEWEST: "Newest first",
    Order.OLDEST: "Oldest first",
    Order.TITLE: "By title",
    Order.TAU: "Largest τ first",
    Order.TOKENS: "Longest first",
    Order.RULE: "By rule and dial",
}
WHOSE = {Whose.ALL: "All", Whose.SAMPLES: "Samples", Whose.SAVED: "Saved here", Whose.MINE: "Mine"}
ANY = "Any"
_KEYS = ("search", "sort", "rule", "drafter", "tree", "temperature", "tags", "whose")


def typing(state: RunsPageState) -> bool:
    """Return True while the user types in the search field."""
    return bool(st.session_state.get("runs-search", state.view.words) != state.view.words)


def _finder(state: RunsPageState, runs: Sequence[ListedRun]) -> None:
    left, middle, right = st.columns([6, 2.2, 2.6], vertical_alignment="bottom")
    view = state.view
    with left:
        st.session_state.setdefault("runs-search", view.words)
        words = st.text_input(
            "Search", key="runs-search", type="search", live="100ms", placeholder="Words in title, prompt, tags or id",
            label_visibility="collapsed",
        )  # fmt: skip
    with middle.popover("Filter", width="stretch", key="runs-filter"):
        filtered = replace(_filters(view, runs), words=words)
        st.button(
            "Clear all", key="runs-clear", on_click=_clear, args=(state,), disabled=filtered == _cleared(filtered)
        )
    with right:
        order = _choice("Sort", "sort", list(Order), view.order, ORDERS.__getitem__, hidden=True)
    state.view = replace(filtered, order=order)


def _filters(view: RunsView, runs: Sequence[ListedRun]) -> RunsView:
    whose = _choice("From", "whose", list(Whose), view.whose, WHOSE.__getitem__)
    rule = _choice("Rule", "rule", ["", *search.rules_among(runs)], view.rule, _rule_title)
    drafter = _choice("Drafter", "drafter", ["", *search.drafters_among(runs)], view.drafter, lambda name: name or ANY)
    tree = _choice("Draft", "tree", ["", *search.shapes_among(runs)], view.tree, _shape)
    temperatures = ["", *map(exactly, search.temperatures_among(runs))]
    current = "" if view.temperature is None else exactly(view.temperature)
    temperature = _choice("Temperature", "temperature", temperatures, current, lambda name: name or ANY)
    tags = list(dict.fromkeys([*tags_among(runs), *view.tags]))
    st.session_state.setdefault("runs-tags", list(view.tags))
    chosen = st.multiselect("Tags", tags, key="runs-tags", format_func=visible, placeholder="Any")
    return replace(
        view, whose=whose, rule=rule, drafter=drafter, tree=tree, temperature=number_in(temperature), tags=tuple(chosen)
    )


def _choice(
    label: str, name: str, options: Sequence[T], value: T, words: Callable[[T], str], *, hidden: bool = False
) -> T:
    """Draw a select box. `value` is added to the options if it is missing, because a link may have a value that no run
    has."""
    key = f"runs-{name}"
    offered = options if value in options else [*options, value]
    if st.session_state.get(key, value) not in offered:
        st.session_state[key] = value
    st.session_state.setdefault(key, value)
    chosen: T = st.selectbox(
        markdown(label), offered, key=key, format_func=lambda option: visible(words(option)),
        label_visibility="collapsed" if hidden else "visible",
    )  # fmt: skip
    return chosen


def _cleared(view: RunsView) -> RunsView:
    return RunsView(run=view.run, order=view.order)


def _clear(state: RunsPageState) -> None:
    state.look()
    state.view = _cleared(state.view)
    for name in _KEYS:
        st.session_state.pop(f"runs-{name}", None)
    st.session_state["runs-search"] = ""


def _rule_title(name: str) -> str:
    try:
        return rule_named(name).title if name else ANY
    except BadInput:
        return name


def _shape(name: str) -> str:
    return {"": ANY, search.CHAINS: "Chains", search.TREES: "Trees"}.get(name, name)


ROWS = 12  # number of visible rows
ROW = 35  # height of a row in pixels
LONGEST = 200  # maximum number of characters in a cell
_COLUMNS = {
    "rule": "rule and dial",
    "temperature": "sampling",
    "draft": "draft",
    "models": "models",
    "stop": "stop",
    "device": "device",
}
_FROM = {RunOrigin.SAMPLE: "sample", RunOrigin.SAVED: "saved", RunOrigin.TAB: "this tab"}


def frame(runs: Sequence[ListedRun]) -> pd.DataFrame:
    """Return a table with a row per run. Unknown values are empty, or NaN in columns of numbers."""
    return pd.DataFrame([_row(run) for run in runs])


def _row(run: ListedRun) -> dict[str, object]:
    facts, parts = run.facts, {} if run.facts is None else run.facts.parts
    is_complete = run.standing is RunStatus.WHOLE
    cells = {name: _cell(parts.get(part, "")) for part, name in _COLUMNS.items()}
    first = {name: cells.pop(name) for name in ("rule and dial", "sampling", "draft", "models")}
    return {
        "title": _cell(run.heading),
        "tags": _cell(", ".join(run.tags)),
        **first,
        "tokens": math.nan if facts is None else facts.tokens,
        "τ": math.nan if facts is None else facts.tau,
        "made, UTC": "" if facts is None or not facts.date else _cell(facts.provenance.created[:16].replace("T", " ")),
        "from": _FROM[run.origin] if is_complete else run.standing.value,
        "seed": math.nan if facts is None else facts.settings.seed,
        "limit": math.nan if facts is None else facts.settings.max_new_tokens,
        **cells,
        "prompt": _cell(visitors.told(run.error) if facts is None else " ".join(facts.prompt[: 2 * LONGEST].split())),
        "id": _cell(run.name),
    }


def _cell(text: str) -> str:
    return visible(clipped(text, LONGEST))


def selected_runs(runs: Sequence[ListedRun]) -> list[ListedRun]:
    """Draw the table and return the runs in selected rows. The key depends on the runs, because the browser stores
    selected rows by position."""
    names = sha256("\0".join(run.name for run in runs).encode()).hexdigest()[:12]
    state = st.dataframe(
        frame(runs),
        hide_index=True,
        height=38 + ROW * min(ROWS, len(runs)),
        row_height=ROW,
        key=f"runs-{names}",
        on_select="rerun",
        selection_mode="multi-row",
        column_config={
            "title": st.column_config.TextColumn(width=300),
            "tags": st.column_config.TextColumn(width=110),
            "rule and dial": st.column_config.TextColumn(width=170),
            "draft": st.column_config.TextColumn(width=90),
            "seed": st.column_config.NumberColumn(format="%d"),
            "limit": st.column_config.NumberColumn(format="%d", help="Tokens at most"),
            "models": st.column_config.TextColumn(width=150),
            "tokens": st.column_config.NumberColumn(format="%d"),
            "τ": st.column_config.NumberColumn(format="%.2f", help="Tokens per target pass; exact"),
            "prompt": st.column_config.TextColumn(width=300),
        },
        alt="All runs that are found: a row a run, with what made it",
    )
    return [runs[place] for place in state["selection"]["rows"] if place < len(runs)]


NOTHING = "There is no run here yet. Write a prompt on Explore or Live and press Decode: what it makes is saved here."
NONE_FOUND = "No run matches. Press Clear all in Filter to see every run."
HINT = "Tick rows to open, compare, tag, download or delete their runs."


@faults.drawn
def listed(session: Session, state: RunsPageState, runs: Sequence[ListedRun]) -> None:
    """Draw the list."""
    deleted_items = in_bin()
    deleted_in_tab = [each for each in deleted_items if each.key in state.deleted]
    page_state.lost(state, "run", deleted_items)
    _deleted_here(state, deleted_in_tab)
    if not runs:
        theme.note(NOTHING)
    else:
        _finder(state, runs)
        matches = found(runs, state.view.query, state.view.order)
        if state.view.whose is Whose.MINE:
            matches = page_state.made_here(matches)
        filters = f", {counted(state.view.filters, 'filter')} set" if state.view.filters else ""
        st.caption(markdown(f"{number(len(matches))} of {counted(len(runs), 'run')}{filters}. {HINT}"))
        actions = st.container(horizontal=True, gap="xsmall", key="runs-deeds")
        selection = selected_runs(matches) if matches else []
        if not matches:
            theme.note(NONE_FOUND)
        with actions:
            _offer(session, state, selection, tags_among(runs))
    page_state.bin_of(state, [each for each in deleted_items if deleted_in_tab != [each]])
    store = tab_jobs.run_store()
    st.caption(markdown(page_state.whose(store.folder if visitors.may_name_paths() else None)))


def _offer(session: Session, state: RunsPageState, picked: Sequence[ListedRun], tags: Sequence[str]) -> None:
    one = picked[0] if len(picked) == 1 else None
    st.button(
        "Show details", key="runs-details", disabled=one is None, on_click=_details, args=(state, picked),
        help=None if one else "Tick one row",
    )  # fmt: skip
    if st.button("Explore", key="runs-explore", disabled=one is None or not one.opens) and one is not None:
        session.land(one.name)
        navigation.leave_for("pages/explore.py")
    two = len(picked) == 2 and all(run.opens for run in picked)
    if st.button("Compare", key="runs-compare", disabled=not two, help=None if two else "Tick two rows"):
        _compare(session, picked)
    free, refused = page_state.changeable(picked)
    with st.popover("Tag", key="runs-tag", disabled=not free, help=markdown(refused) or None, on_change="rerun"):
        if free:
            _tag_form(state, free, tags)
    _download(session, picked)
    st.button(
        "Delete" if len(free) < 2 else f"Delete {len(free)}", key="runs-delete", disabled=not free,
        help=markdown(refused or page_state.BIN), on_click=page_state.delete_runs, args=(state, free),
    )  # fmt: skip


def _details(state: RunsPageState, picked: Sequence[ListedRun]) -> None:
    state.look(run=picked[0].name)


def _compare(session: Session, picked: Sequence[ListedRun]) -> None:
    left, right = (run.name for run in picked)
    session.land(left)
    memory = Comparison.of_tab()
    memory.follow(left)
    memory.look(across=Across.RUNS, reference=Choice(left), shown=Choice(right), gamma=None)
    navigation.leave_for("pages/compare.py")


def _tag_form(state: RunsPageState, runs: Sequence[ListedRun], tags: Sequence[str]) -> None:
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
    st.button(
        f"Tag {counted(len(runs), 'run')}", key="runs-tag-now", on_click=_tag_now, args=(state, runs), width="stretch"
    )


def _tag_now(state: RunsPageState, runs: Sequence[ListedRun]) -> None:
    add, remove = st.session_state["runs-add"], st.session_state["runs-remove"]
    if not (add or remove):
        state.notices[:] = ["No tag was chosen. Choose or write one under Tag."]
        return
    page_state.tag_runs(state, runs, add, remove)
    if not state.notices:
        st.session_state["runs-add"] = st.session_state["runs-remove"] = []
        st.session_state["runs-tag"] = False


def _download(session: Session, picked: Sequence[ListedRun]) -> None:
    unread = not picked or not all(run.opens for run in picked)
    large = not unread and page_state.too_large(picked)
    problem = f"They take more than {page_state.MOST_BYTES >> 20} MB together; select fewer." if large else ""
    name = f"{picked[0].name}.zip" if len(picked) == 1 else "runs.zip"
    catalog = RunCatalogue({}, {}) if unread or large else library.shelf(session)
    st.download_button(
        "Download", lambda: page_state.zipped(picked, catalog), name, "application/zip", on_click="ignore",
        key="runs-zip", disabled=unread or large, help=markdown(problem) or None,
    )  # fmt: skip


def in_bin() -> list[page_state.Item]:
    """Return deleted runs, newest first. If the bin cannot be read, show the error."""
    try:
        return [page_state.item_of(of_kept(kept)) for kept in tab_jobs.run_store().deleted()]
    except BadInput as error:
        theme.note(str(error))
        return []


def _deleted_here(state: RunsPageState, here: Sequence[page_state.Item]) -> None:
    if len(here) == 1:
        page_state.deleted(state, here[0])
    if len(here) < 2:
        return
    with st.container(key="deleted-all"):
        words, button = st.columns(page_state.COLUMNS, vertical_alignment="center")[::3]
        with words:
            refused = next(filter(None, (state.refused.get(each.key) for each in here)), "")
            theme.line(
                f"Deleted: {counted(len(here), 'run')}", refused or page_state.BIN.replace("It stays", "They stay")
            )
        button.button("Undo all", key="undo-all", on_click=page_state.restore_runs, args=(state, here), width="stretch")
