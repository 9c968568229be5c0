"""The Runs page: the list with search, filters, actions and deleted runs, and the details of one run. All text is
escaped."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import pandas as pd
import streamlit as st

from mars_viz.analysis.metrics import ending, speed
from mars_viz.errors import BadInput
from mars_viz.escapes import Html, html, joined, markdown, visible
from mars_viz.options import clipped, described, options_of
from mars_viz.rules import rule_named
from mars_viz.run import Run, Settings, stop_words
from mars_viz.runfiles import write_zip
from mars_viz.runfiles.manifest import LONGEST_TAG, checked_tags
from mars_viz.runlist import ListedRun, Order, RunOrigin, found, search
from mars_viz.runlist.reproduce import recipe
from mars_viz.runlist.search import tags_among
from mars_viz.runstore import RunStatus
from mars_viz.runstore.store import LONGEST_TITLE
from mars_viz.ui import faults, library, navigation, tab_jobs, theme, visitors
from mars_viz.ui.compare.page_state import Across, Choice, Comparison
from mars_viz.ui.library import RunCatalogue
from mars_viz.ui.live import views
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
SHAPES = {"": ANY, search.CHAINS: "Chains", search.TREES: "Trees"}
_KEYS = ("search", "sort", "rule", "drafter", "tree", "temperature", "tags", "whose")


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
            "Clear all",
            key="runs-clear",
            on_click=_clear,
            args=(state,),
            disabled=filtered == RunsView(run=view.run, order=view.order),
        )
    with right:
        order = _choice("Sort", "sort", list(Order), view.order, ORDERS.__getitem__, hidden=True)
    state.view = replace(filtered, order=order)


def _filters(view: RunsView, runs: Sequence[ListedRun]) -> RunsView:
    whose = _choice("From", "whose", list(Whose), view.whose, WHOSE.__getitem__)
    rule = _choice(
        "Rule", "rule", ["", *search.values_among(runs, lambda facts: facts.settings.rule)], view.rule, _rule_title
    )
    drafters = ["", *search.values_among(runs, lambda facts: facts.provenance.drafter)]
    drafter = _choice("Drafter", "drafter", drafters, view.drafter, lambda name: name or ANY)
    shapes = ["", *search.shapes_among(runs)]
    tree = _choice("Draft", "tree", shapes, view.tree, lambda name: SHAPES.get(name, name))
    temperatures = ["", *map(exactly, search.values_among(runs, lambda facts: facts.settings.temperature))]
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


def _clear(state: RunsPageState) -> None:
    state.look()
    state.view = RunsView(run=state.view.run, order=state.view.order)
    for name in _KEYS:
        st.session_state.pop(f"runs-{name}", None)
    st.session_state["runs-search"] = ""


def _rule_title(name: str) -> str:
    try:
        return rule_named(name).title if name else ANY
    except BadInput:
        return name


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
        "Show details", key="runs-details", disabled=one is None, on_click=state.look,
        kwargs={"run": one.name if one else ""}, help=None if one else "Tick one row",
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
        return [page_state.item_of(run) for run in tab_jobs.run_store().deleted()]
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


STYLE = """
.stApp .mv-facts { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: .2rem 0 0; }
.stApp .mv-facts { padding: 0; font-variant-numeric: tabular-nums; }
.mv-facts dt { opacity: .7; font-weight: 400; }
.mv-facts dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 640px) {
  .stApp .mv-facts { grid-template-columns: 1fr; gap: 0; }
  .mv-facts dd { margin: 0 0 .3rem; }
}
"""


@faults.drawn
def shown(session: Session, state: RunsPageState, run: ListedRun, runs: Iterable[ListedRun]) -> None:
    """Draw the details. If the run cannot be read, show the reason and the remedy."""
    theme.show(Html(f"<style>{STYLE}</style>"))
    theme.section(run.heading)
    if run.facts is not None and not run.error:
        theme.small(run.line)
    catalog = library.shelf(session)
    opened, problem = catalog.tried(run.name) if run.opens else (None, run.error or page_state.GROWING)
    _ways(session, state, run, opened)
    if opened is None:
        theme.note(problem)
    else:
        _numbers(opened)
    _naming(state, run, runs)
    if opened is not None:
        left, right = st.columns([5.6, 6.4], gap="large")
        with left:
            _provenance(opened)
        with right:
            _again(run, opened)


def _ways(session: Session, state: RunsPageState, run: ListedRun, opened: Run | None) -> None:
    with st.container(horizontal=True, gap="xsmall"):
        st.button("Show all runs", key="runs-back", on_click=lambda: state.look(run=""))
        if st.button("Open in Explore", key="runs-open", type="primary", disabled=opened is None):
            session.land(run.name)
            navigation.leave_for("pages/explore.py")
        st.download_button(
            "Download", lambda: b"" if opened is None else write_zip(opened), f"{run.name}.zip", "application/zip",
            on_click="ignore", key="run-zip", disabled=opened is None, help="The run's folder, which Explore opens",
        )  # fmt: skip
        refused = page_state.refusal(run)
        st.button(
            "Delete", key="run-delete", disabled=bool(refused), on_click=page_state.delete_runs, args=(state, [run]),
            help=markdown(refused) or page_state.BIN,
        )  # fmt: skip


def _numbers(run: Run) -> None:
    pace = speed(run)
    untimed = pace.draft_share != pace.draft_share  # NaN
    share = "–" if untimed else f"{number(100 * pace.draft_share)}\u202f%"
    prefill, decoding = (f"{number(each)}\u202fs" if each else "–" for each in (pace.prefill_seconds, pace.seconds))
    first = theme.Tile("Prompt's pass, measured", prefill, "The first pass over the prompt")
    rounds = theme.Tile("Decoding, measured", decoding, "Wall clock of all rounds")
    drafting = theme.Tile("Drafting, measured", share, "Share of the rounds' time")
    theme.numbers([*views.tiles(run), first, rounds, drafting])


def _naming(state: RunsPageState, run: ListedRun, runs: Iterable[ListedRun]) -> None:
    if run.facts is None:
        return
    item = page_state.item_of(run)
    if refused := page_state.refusal(run):
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
    if refusal := state.refused.get(item.key):
        theme.note(refusal)


def _save(state: RunsPageState, run: ListedRun, tags_key: str) -> None:
    item, store = page_state.item_of(run), tab_jobs.run_store()
    title, tags = str(st.session_state[f"title-{item.key}"]), list(st.session_state[tags_key])

    def apply() -> None:
        checked_tags(tags)  # before the title is written, in case the tags are refused
        if title.strip() != (item.title or run.heading):
            store.rename(run.name, title, run.heading)
        store.tag(run.name, tags, [tag for tag in run.tags if tag not in tags])

    page_state.attempt(state, item, apply)


def _provenance(run: Run) -> None:
    provenance, settings = run.provenance, run.settings
    theme.section("Settings")
    _facts_list(_settings_of(settings) | {"Text": ending(run)})
    theme.section("Where it comes from")
    _facts_list(
        {
            "Target": _revised(provenance.target, provenance.target_revision),
            "Drafter": _revised(provenance.drafter, provenance.drafter_revision),
            "Device": provenance.device,
            "Dtype": provenance.dtype,
            "Made, UTC": provenance.created.replace("T", " ").removesuffix("+00:00"),
            "Versions": ", ".join(f"{name} {version}" for name, version in provenance.versions.items()),
            "Vocabulary": number(provenance.vocabulary_size),
            "Prompt": f"{number(len(run.prompt_ids))} tokens",
            "Chat template": {None: "", True: "applied", False: "left out"}[provenance.chat],
            "System prompt": run.history.system or "none",
            "Batching": provenance.batching,
        }
    )
    if run.history.turns:
        theme.section("Earlier turns")
        turns = (f"User: {turn.prompt}\n\nAnswer: {turn.answer}" for turn in run.history.turns)
        st.code("\n\n".join(turns), language=None, wrap_lines=True)
    theme.section("Prompt")
    st.code(run.prompt, language=None, wrap_lines=True)


def _settings_of(settings: Settings) -> dict[str, str]:
    rule = rule_named(settings.rule)
    dial = rule.checked_dial(settings.dial)
    named = "" if rule.dial is None or dial is None else f"{rule.dial.symbol} = {exactly(dial)}, {rule.dial.name}"
    drafts = {"Draft": settings.draft, "Stop strings": stop_words(settings.stop) or "none"}
    others = described(settings)
    del others[options_of(Settings)["gamma"].label]  # part of the draft
    return {"Rule": f"{rule.title} ({rule.name})", "Dial": named or "none"} | drafts | others


def _revised(name: str, revision: str) -> str:
    return f"{name}, {revision}" if revision and revision != name else name


def _facts_list(facts: Mapping[str, str]) -> None:
    cells = (Html(f"<dt>{html(name)}</dt><dd>{html(value or '–')}</dd>") for name, value in facts.items())
    theme.show(Html(f'<dl class="mv-facts">{joined(cells)}</dl>'))


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
        parts = urlsplit(str(st.context.url or ""))  # as the browser reaches this server
        origin = f"{parts.scheme}://{parts.netloc}" if parts.netloc else ""
        folder = parts.path.rstrip("/").rpartition("/")[0] if parts.path.rstrip("/").endswith("/runs") else ""
        st.code(f"{origin}{folder}/explore?run={quote(listed.name, safe='')}", language=None, wrap_lines=True)
