"""The Runs page: the list of all runs with search, filters, changes and the bin, and the details of one run.

All text is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from urllib.parse import quote

import pandas as pd
import streamlit as st

from mars_viz import default_folders, samples
from mars_viz.analysis.metrics import run_facts, speed
from mars_viz.components.explorer.pins import Choice
from mars_viz.errors import BadInput
from mars_viz.escapes import markdown, visible
from mars_viz.permissions import DELETE, MayDelete, who_may_delete
from mars_viz.reproduce import recipe
from mars_viz.run import Run
from mars_viz.runfiles import write_zip
from mars_viz.runfiles.manifest import LONGEST_TAG, checked_tags
from mars_viz.runlist import found, listed_runs, of_tab, tags_among
from mars_viz.runstore import LONGEST_TITLE, ListedRun, RunOrigin, RunStatus
from mars_viz.ui import documents, faults, library, links, navigation, tab_jobs, theme, visitors
from mars_viz.ui.classroom import rights
from mars_viz.ui.classroom.rights import server_class
from mars_viz.ui.compare.page_state import Across, Comparison
from mars_viz.ui.items import BIN, Item, ItemsState, draw_bin, draw_deleted
from mars_viz.ui.links import to_parameters
from mars_viz.ui.live import LivePageState, tiles
from mars_viz.ui.session import Session, bound, current_session
from mars_viz.words import clipped, counted, number

T = TypeVar("T")


WHOSE = {"all": "All", "sample": "Samples", "saved": "Saved here", "mine": "Mine"}
"""Filters by origin: saved runs were decoded on this server or copied into the folder; one's own were made by this
browser, or are open in this tab."""


@dataclass(frozen=True, slots=True)
class RunsView:
    """Search and details shown on the page."""

    run: str = links.text("run")  # id of the run whose details are shown; empty for the list
    words: str = links.text("search")
    whose: str = links.one_of("from", "all", WHOSE)


@dataclass(slots=True)
class RunsPageState(ItemsState):
    """State of one tab's Runs page."""

    names_run: ClassVar[bool] = False
    view: RunsView = field(default_factory=RunsView)
    listed: list[ListedRun] | None = None  # runs at the last reading of the folders

    def forget(self, name: str) -> None:
        """Stop showing a deleted run, here and on Live."""
        LivePageState.of_tab().forget(name)
        if name == self.view.run:
            self.view = replace(self.view, run="")


SAMPLE = "It comes with MARS Viz and cannot be changed."
OF_TAB = "It is only in the tab that opened it, and is gone when that tab closes."
GROWING = "It is being decoded; cancel it first, or wait for its end."


def item_of(run: ListedRun) -> Item:
    """Return the run as an item that can be renamed, deleted and restored."""
    title = "" if run.facts is None else " ".join(run.facts.title.split())
    return Item(tab_jobs.run_store(), run.name, run.heading, title, readable=run.facts is not None and not run.error)


def refusal(run: ListedRun) -> str:
    """Return why this browser may not change the run now; empty if it may."""
    if run.origin is not RunOrigin.SAVED:
        return SAMPLE if run.origin is RunOrigin.SAMPLE else OF_TAB
    return GROWING if run.standing is RunStatus.GROWING else item_of(run).refusal


def made_here(runs: Iterable[ListedRun]) -> list[ListedRun]:
    """Return the runs that this browser made or that are open in this tab."""
    makers, mark = tab_jobs.run_store().makers, visitors.mark()
    return [
        run
        for run in runs
        if run.origin is RunOrigin.TAB or (mark and run.origin is RunOrigin.SAVED and makers.of(run.name) == mark)
    ]


def storage(folder: Path | None) -> str:
    """Return where runs are saved, and who sees and may change them. `folder` is None if the path must not be shown."""
    may = {MayDelete.MAKER: "Only the browser that made a run", MayDelete.EVERYBODY: "Everybody"}
    try:
        who = f"{may.get(who_may_delete(), 'Nobody')} can rename or delete it ({DELETE}={who_may_delete().value})."
    except BadInput as error:
        who = str(error)
    where = "on this server" if folder is None else f"in {folder} (MARS_VIZ_RUNS)"
    everybody = "Everybody who can open this page sees and downloads them."
    seen = everybody if server_class() is None else f"They are for {rights.who_sees()}."
    return f"Saved {where}. {seen} {who}"


def _finder(state: RunsPageState) -> None:
    left, right = st.columns([6, 4.8], vertical_alignment="bottom")
    with left:
        st.session_state.setdefault("runs-search", state.view.words)
        words = st.text_input(
            "Search", key="runs-search", type="search", live="100ms", label_visibility="collapsed",
            placeholder="Words in title, prompt, tags, rule or models",
        )  # fmt: skip
        state.change(words=words)
    bound(
        right.segmented_control, "From", "runs-whose", state.view.whose, lambda chosen: state.change(whose=chosen),
        options=list(WHOSE), format_func=WHOSE.__getitem__, required=True, label_visibility="collapsed",
    )  # fmt: skip


ROWS = 12  # number of visible rows
ROW = 35  # height of a row in pixels
LONGEST = 200  # maximum number of characters in a cell
_FROM = {RunOrigin.SAMPLE: "sample", RunOrigin.SAVED: "saved", RunOrigin.TAB: "this tab"}


def _row(run: ListedRun) -> dict[str, object]:
    """Return the table's row of a run. Unknown values are empty, or NaN in columns of numbers."""
    facts, parts = run.facts, {} if run.facts is None else run.facts.parts
    is_complete = run.standing is RunStatus.WHOLE
    cells = {part: _cell(parts.get(part, "")) for part in ("rule", "temperature", "draft", "models", "stop", "device")}
    return {
        "title": _cell(run.heading),
        "tags": _cell(", ".join(run.tags)),
        "rule and dial": cells["rule"],
        "sampling": cells["temperature"],
        "draft": cells["draft"],
        "models": cells["models"],
        "tokens": math.nan if facts is None else facts.tokens,
        "τ": math.nan if facts is None else facts.tau,
        "made, UTC": "" if facts is None or not facts.date else _cell(facts.provenance.created[:16].replace("T", " ")),
        "from": _FROM[run.origin] if is_complete else run.standing.value,
        "seed": math.nan if facts is None else facts.settings.seed,
        "limit": math.nan if facts is None else facts.settings.max_new_tokens,
        "stop": cells["stop"],
        "device": cells["device"],
        "prompt": _cell(visitors.told(run.error) if facts is None else " ".join(facts.prompt[: 2 * LONGEST].split())),
        "id": _cell(run.name),
    }


def _cell(text: str) -> str:
    return visible(clipped(text, LONGEST))


def selected_runs(runs: Sequence[ListedRun]) -> list[ListedRun]:
    """Draw the table and return the runs in selected rows. The key depends on the runs, because the browser stores
    selected rows by position."""
    names = sha256("\0".join(run.name for run in runs).encode()).hexdigest()[:12]
    text, amount = st.column_config.TextColumn, st.column_config.NumberColumn
    widths = {"title": 300, "tags": 110, "rule and dial": 170, "draft": 90, "models": 150, "prompt": 300}
    columns: dict[str, Any] = {name: text(width=width) for name, width in widths.items()}
    columns |= {"seed": amount(format="%d"), "limit": amount(format="%d", help="Tokens at most")}
    columns |= {"tokens": amount(format="%d"), "τ": amount(format="%.2f", help="Tokens per target pass; exact")}
    state = st.dataframe(
        pd.DataFrame([_row(run) for run in runs]),
        hide_index=True,
        height=38 + ROW * min(ROWS, len(runs)),
        row_height=ROW,
        key=f"runs-{names}",
        on_select="rerun",
        selection_mode="multi-row",
        column_config=columns,
        alt="All runs that are found: a row a run, with what made it",
    )
    return [runs[place] for place in state["selection"]["rows"] if place < len(runs)]


@faults.drawn
def listed(session: Session, state: RunsPageState, runs: Sequence[ListedRun]) -> None:
    """Draw the list."""
    store, deleted_items = tab_jobs.run_store(), list[Item]()
    try:
        deleted_items = [item_of(run) for run in store.deleted()]
    except BadInput as error:
        theme.note(str(error))
    deleted_in_tab = [each for each in deleted_items if each.key in state.deleted]
    draw_deleted(state, deleted_in_tab)
    if not runs:
        theme.note("There is no run here yet. Write a prompt on Explore or Live and press Decode; it is saved here.")
    else:
        _finder(state)
        whose = state.view.whose
        matches = found(runs, state.view.words, RunOrigin(whose) if whose in ("sample", "saved") else None)
        if whose == "mine":
            matches = made_here(matches)
        hint = "Tick rows to open, compare or delete their runs. Click a column's name to sort by it."
        st.caption(markdown(f"{number(len(matches))} of {counted(len(runs), 'run')}. {hint}"))
        actions = st.container(horizontal=True, gap="xsmall", key="runs-deeds")
        selection = selected_runs(matches) if matches else []
        if not matches:
            theme.note("No run matches. Search for fewer words, or choose All.")
        with actions:
            _offer(session, state, selection)
    draw_bin(state, [each for each in deleted_items if each not in deleted_in_tab])
    st.caption(markdown(storage(store.folder if visitors.may_name_paths() else None)))


def _offer(session: Session, state: RunsPageState, picked: Sequence[ListedRun]) -> None:
    one = picked[0] if len(picked) == 1 else None
    st.button(
        "Show details", key="runs-details", disabled=one is None, on_click=state.look,
        kwargs={"run": one.name if one else ""}, help=None if one else "Tick one row",
    )  # fmt: skip
    if st.button("Explore", key="runs-explore", disabled=one is None or not one.opens) and one is not None:
        session.land(one.name)
        st.switch_page("pages/explore.py")
    two = len(picked) == 2 and all(run.opens for run in picked)
    if st.button("Compare", key="runs-compare", disabled=not two, help=None if two else "Tick two rows"):
        (left, right), comparison = (run.name for run in picked), Comparison.of_tab()
        session.land(left)
        comparison.follow(left)
        comparison.look(across=Across.RUNS, reference=Choice(left), shown=Choice(right), gamma=None)
        st.switch_page("pages/compare.py")
    refused = next(filter(None, map(refusal, picked)), "")
    st.button(
        "Delete" if len(picked) < 2 else f"Delete {len(picked)}", key="runs-delete",
        disabled=not picked or bool(refused), help=markdown(refused or BIN), on_click=state.delete,
        args=([item_of(run) for run in picked],),
    )  # fmt: skip


@faults.drawn
def shown(session: Session, state: RunsPageState, run: ListedRun, runs: Iterable[ListedRun]) -> None:
    """Draw the details. If the run cannot be read, show the reason and the remedy."""
    theme.section(run.heading)
    if run.facts is not None and not run.error:
        theme.small(run.line)
    catalog = library.shelf(session)
    opened, problem = catalog.tried(run.name) if run.opens else (None, run.error or GROWING)
    _ways(session, state, run, opened)
    if opened is None:
        theme.note(problem)
    else:
        _numbers(opened)
    _naming(state, run, runs)
    if opened is not None:
        left, right = st.columns([5.6, 6.4], gap="large")
        with left:
            documents.draw(run_facts(opened))
            if opened.history.turns:
                theme.section("Earlier turns")
                turns = (f"User: {turn.prompt}\n\nAnswer: {turn.answer}" for turn in opened.history.turns)
                st.code("\n\n".join(turns), language=None, wrap_lines=True)
            theme.section("Prompt")
            st.code(opened.prompt, language=None, wrap_lines=True)
        with right:
            _again(run, opened)


def _ways(session: Session, state: RunsPageState, run: ListedRun, opened: Run | None) -> None:
    with st.container(horizontal=True, gap="xsmall"):
        st.button("Show all runs", key="runs-back", on_click=lambda: state.look(run=""))
        if st.button("Open in Explore", key="runs-open", type="primary", disabled=opened is None):
            session.land(run.name)
            st.switch_page("pages/explore.py")
        st.download_button(
            "Download", lambda: b"" if opened is None else write_zip(opened), f"{run.name}.zip", "application/zip",
            on_click="ignore", key="run-zip", disabled=opened is None, help="The run's folder, which Explore opens",
        )  # fmt: skip
        refused = refusal(run)
        st.button(
            "Delete", key="run-delete", disabled=bool(refused), on_click=state.delete, args=([item_of(run)],),
            help=markdown(refused) or BIN,
        )  # fmt: skip


def _numbers(run: Run) -> None:
    pace = speed(run)
    share = "–" if math.isnan(pace.draft_share) else f"{number(100 * pace.draft_share)}\u202f%"
    prefill, decoding = (f"{number(each)}\u202fs" if each else "–" for each in (pace.prefill_seconds, pace.seconds))
    first = ("Prompt's pass, measured", prefill, "The first pass over the prompt")
    rounds = ("Decoding, measured", decoding, "Wall clock of all rounds")
    drafting = ("Drafting, measured", share, "Share of the rounds' time")
    theme.numbers([*tiles(run), first, rounds, drafting])


def _naming(state: RunsPageState, run: ListedRun, runs: Iterable[ListedRun]) -> None:
    if run.facts is None:
        return
    item = item_of(run)
    if refused := refusal(run):
        theme.small(f"Tags: {visible(', '.join(run.tags))}. {refused}" if run.tags else refused)
        return
    key = f"{run.name}-{len(run.tags)}-{run.facts.title}"
    with st.container(key="run-naming"):
        first, second, third = st.columns([5, 5, 2], vertical_alignment="bottom")
        title = (item.title or run.heading)[:LONGEST_TITLE]
        first.text_input("Title", title, key=f"title-{item.key}", max_chars=LONGEST_TITLE)
        options = list(dict.fromkeys([*run.tags, *tags_among(runs)]))
        second.multiselect(
            "Tags", options, list(run.tags), key=f"run-tags-{key}", accept_new_options=True, format_func=visible,
            placeholder="Choose or write tags", help=f"At most {LONGEST_TAG} letters each",
        )  # fmt: skip
        third.button(
            "Save", key="run-save", on_click=_save, args=(state, run, f"run-tags-{key}"), width="stretch",
            help="Saves title and tags; links stay as they are",
        )  # fmt: skip


def _save(state: RunsPageState, run: ListedRun, tags_key: str) -> None:
    item, store = item_of(run), tab_jobs.run_store()
    title, tags = str(st.session_state[f"title-{item.key}"]), list(st.session_state[tags_key])

    def apply(item: Item) -> None:
        checked_tags(tags)  # before the title is written, in case the tags are refused
        if title.strip() != (item.title or run.heading):
            store.rename(run.name, title, run.heading)
        store.tag(run.name, tags, [tag for tag in run.tags if tag not in tags])

    state.attempt([item], apply)


def _again(listed: ListedRun, run: Run) -> None:
    theme.section("Make it again")
    reproduction = recipe(run, listed.name)
    if reproduction.refused:
        theme.note(reproduction.refused)
    else:
        st.caption("On the command line")
        st.code(reproduction.command, language=None, wrap_lines=True)
        st.caption("In Python")
        st.code(reproduction.python, language=None, wrap_lines=True)
        for caution in reproduction.cautions:
            theme.small(caution)
    theme.section("Link to it in Explore")
    if listed.origin is RunOrigin.TAB:
        theme.small("No link opens it: it is in this tab alone. Download it, and open the zip on Explore.")
    else:
        address = str(st.context.url or "").partition("?")[0].rstrip("/")  # as the browser reaches this page
        link = f"{address.removesuffix('/runs')}/explore?run={quote(listed.name, safe='')}"
        st.code(link, language=None, wrap_lines=True)


@faults.drawn
def page() -> None:
    """Draw the list, or the details of one run."""
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
    runs = [of_tab(name, run) for name, run in reversed(session.runs.items())]
    runs += library.seen(state.listed)
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
