"""Details of one run: numbers, provenance, how to reproduce it, title and tags, and links."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import quote, urlsplit

import streamlit as st

from mars_viz.analysis.metrics import ending, speed
from mars_viz.escapes import Html, html, joined, markdown, visible
from mars_viz.options import described, options_of
from mars_viz.rules import rule_named
from mars_viz.run import Run, Settings, stop_words
from mars_viz.runfiles import write_zip
from mars_viz.runfiles.manifest import LONGEST_TAG, checked_tags
from mars_viz.runlist import ListedRun, RunOrigin
from mars_viz.runlist.reproduce import recipe
from mars_viz.runlist.search import tags_among
from mars_viz.runstore.store import LONGEST_TITLE
from mars_viz.ui import faults, library, navigation, tab_jobs, theme
from mars_viz.ui.live import views
from mars_viz.ui.runs import page_state
from mars_viz.ui.runs.page_state import RunsPageState
from mars_viz.ui.session import Session
from mars_viz.words import exactly, number

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
    theme.numbers(
        [
            *views.tiles(run),
            theme.Tile("Prompt's pass, measured", _seconds(pace.prefill_seconds), "The first pass over the prompt"),
            theme.Tile("Decoding, measured", _seconds(pace.seconds), "Wall clock of all rounds"),
            theme.Tile("Drafting, measured", share, "Share of the rounds' time"),
        ]
    )


def _seconds(value: float) -> str:
    return f"{number(value)}\u202fs" if value else "–"


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
    facts_list(_settings_of(settings) | {"Text": ending(run)})
    theme.section("Where it comes from")
    facts_list(
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


def facts_list(facts: Mapping[str, str]) -> None:
    """Draw names with their values; missing values are a dash."""
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
