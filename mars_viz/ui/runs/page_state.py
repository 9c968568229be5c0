"""State of the Runs page in one tab, and changes of saved runs and races: renames, deletes and restores items, and tags
and downloads several runs.

The form is in a popover with a key per item, so it closes after a change and never shows another item."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import ClassVar

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mars_viz.errors import BadInput, StorageError
from mars_viz.escapes import markdown
from mars_viz.permissions import DELETE, MayDelete, who_may_delete
from mars_viz.race import RaceStore
from mars_viz.runfiles import write_zip
from mars_viz.runlist import ListedRun, Order, Query, RunOrigin
from mars_viz.runstore import RunStatus, RunStore
from mars_viz.runstore.store import BYTES, DAYS, LONGEST_TITLE
from mars_viz.ui import links, tab_jobs, theme, visitors
from mars_viz.ui.classroom import rights
from mars_viz.ui.classroom.server_class import server_class
from mars_viz.ui.library import RunCatalogue
from mars_viz.ui.live.page_state import LivePageState, current_desk
from mars_viz.ui.session import PageState
from mars_viz.words import counted


class Whose(Enum):
    """Filter by origin."""

    ALL = "all"
    SAMPLES = "sample"
    SAVED = "saved"  # decoded on this server, or copied into the folder
    MINE = "mine"  # made by this browser, or open in this tab


ORIGINS = {Whose.SAMPLES: RunOrigin.SAMPLE, Whose.SAVED: RunOrigin.SAVED}


@dataclass(frozen=True, slots=True)
class RunsView:
    """Search and details shown on the page."""

    run: str = links.text("run")  # id of the run whose details are shown; empty for the list
    words: str = links.text("search")
    rule: str = links.text("rule")  # name of a rule; empty for any, as in the next fields
    drafter: str = links.text("drafter")
    tree: str = links.text("tree")  # 'chains', 'trees' or a shape
    temperature: float | None = links.number("temperature")
    tags: tuple[str, ...] = links.parameter(
        "tag", lambda text: tuple(filter(None, map(str.strip, text.split(",")))), ",".join, ()
    )  # runs must have all of these
    whose: Whose = links.one_of("from", Whose.ALL)
    order: Order = links.one_of("sort", Order.NEWEST)

    @property
    def query(self) -> Query:
        """The search, except for `Whose.MINE`."""
        origin, made = ORIGINS.get(self.whose), {"rule": self.rule, "drafter": self.drafter, "tree": self.tree}
        return Query(self.words, **made, temperature=self.temperature, tags=self.tags, origin=origin)

    @property
    def filters(self) -> int:
        """Number of filters set, without the words."""
        chosen = (self.rule, self.drafter, self.tree, self.tags, self.whose is not Whose.ALL)
        return sum(map(bool, chosen)) + (self.temperature is not None)


@dataclass(slots=True)
class RunsPageState(PageState):
    """State of one tab's Runs page."""

    names_run: ClassVar[bool] = False
    view: RunsView = field(default_factory=RunsView)
    listed: list[ListedRun] | None = None  # runs at the last reading of the folders
    deleted: set[str] = field(default_factory=set)  # by `Item.key`; can be restored above the list
    refused: dict[str, str] = field(default_factory=dict)  # why the last change of an item was refused, by `Item.key`

    def look(self, **parts: object) -> None:
        """Change parts of the view, and clear notices and refusals."""
        self.refused.clear()
        PageState.look(self, **parts)

    def forget(self, name: str) -> None:
        """Stop showing a deleted run, here and on Live."""
        current_desk().forget(name)
        if name == self.view.run:
            self.view = replace(self.view, run="")


BIN = f"It stays in the bin for {DAYS} days, or until the bin holds more than {BYTES >> 30} GB."
COLUMNS = (6.0, 1.2, 1.2, 1.7)  # relative widths of a line's words and three buttons


ChangesOf = LivePageState | RunsPageState  # state of a page on which items are changed


@dataclass(frozen=True, slots=True)
class Item:
    """A run or a race."""

    store: RunStore | RaceStore
    name: str  # name of the folder
    heading: str  # title in lists
    title: str = ""  # full title; empty if it has none
    kind: str = "run"  # "run" or "race". A race may have the same name as a run.
    readable: bool = True  # False if the title cannot be changed

    @property
    def key(self) -> str:
        """Unique among all items."""
        return f"{self.kind}-{self.name}"

    @property
    def refusal(self) -> str:
        """Why this browser may not change the item; empty if it may."""
        return self.store.makers.refusal(self.name, visitors.mark())


def popover(place: DeltaGenerator, page_state: ChangesOf, item: Item) -> None:
    """Draw the button and the form that renames or deletes the item."""
    refused = item.refusal
    with place.popover(
        "Rename or delete", disabled=bool(refused), help=markdown(refused) or None,
        key=f"change-{item.key}", on_change="rerun",
    ):  # fmt: skip
        title = (item.title or item.heading)[:LONGEST_TITLE]
        st.text_input("Title", title, key=f"title-{item.key}", max_chars=LONGEST_TITLE)
        if item.key in page_state.refused:
            theme.note(page_state.refused[item.key])
        left, right = st.columns(2)
        left.button(
            "Rename", key=f"rename-{item.key}", on_click=rename, args=(page_state, item), width="stretch",
            disabled=not item.readable, help="Changes the title; links stay as they are",
        )  # fmt: skip
        right.button(
            "Delete", key=f"delete-{item.key}", on_click=_delete, args=(page_state, item), width="stretch",
            help=BIN,
        )  # fmt: skip


def deleted(page_state: ChangesOf, item: Item) -> None:
    """Draw a deleted item with a button that restores it."""
    with st.container(key=f"deleted-{item.key}"):
        words, button = st.columns(COLUMNS, vertical_alignment="center")[::3]
        with words:
            theme.line(f"Deleted: {item.heading}", page_state.refused.get(item.key) or f"{item.name}. {BIN}")
        refused = item.refusal
        button.button(
            "Undo", key=f"undo-{item.key}", on_click=_undo, args=(page_state, item), width="stretch",
            disabled=bool(refused), help=markdown(refused) or "Brings it back; its links open it again",
        )  # fmt: skip


def bin_of(page_state: ChangesOf, items: list[Item]) -> None:
    """Draw the bin with the items that this browser may restore."""
    restorable = [item for item in items if not item.refusal]
    if restorable:
        with st.expander(f"Bin ({len(restorable)})"):
            for item in restorable:
                deleted(page_state, item)


def lost(page_state: ChangesOf, kind: str, items: list[Item]) -> None:
    """Draw the refused changes of items that no longer exist."""
    for key in page_state.refused.keys() - {item.key for item in items}:
        if key.startswith(f"{kind}-"):
            theme.note(page_state.refused[key])


def rename(page_state: ChangesOf, item: Item) -> None:
    """Apply the title in the item's form."""
    title = str(st.session_state[f"title-{item.key}"])
    attempt(page_state, item, lambda: item.store.rename(item.name, title, item.heading))


def _delete(page_state: ChangesOf, item: Item) -> None:
    if attempt(page_state, item, lambda: item.store.delete(item.name)):
        page_state.forget(item.name)
        page_state.deleted.add(item.key)


def _undo(page_state: ChangesOf, item: Item) -> None:
    if attempt(page_state, item, lambda: item.store.restore(item.name)):
        page_state.deleted.discard(item.key)


def attempt(page_state: ChangesOf, item: Item, change: Callable[[], object]) -> bool:
    """Apply a change if this browser may, close the popover and return True. An error is shown in the popover, which
    stays open."""
    page_state.notices.clear()
    page_state.refused.clear()
    try:
        item.store.makers.check(item.name, visitors.mark())
        change()
    except BadInput as error:
        page_state.refused[item.key] = str(error)
        return False
    st.session_state[f"change-{item.key}"] = False
    return True


MOST_BYTES = 256 << 20  # maximum size of all runs in one zip, which is created in memory
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


def changeable(runs: Iterable[ListedRun]) -> tuple[list[ListedRun], str]:
    """Return the runs that this browser may change, and a sentence about the others, empty if there are none."""
    refused = {run.name: reason for run in runs if (reason := refusal(run))}
    allowed = [run for run in runs if run.name not in refused]
    if not refused:
        return allowed, ""
    first = next(iter(refused.values()))
    return allowed, first if not allowed else f"{counted(len(refused), 'selected run')} cannot be changed. {first}"


def delete_runs(state: RunsPageState, runs: Sequence[ListedRun]) -> None:
    """Move the runs to the bin. Refused runs stay, with a notice."""
    for run in _each(state, runs, lambda run: tab_jobs.run_store().delete(run.name), "deleted"):
        state.forget(run.name)
        state.deleted.add(item_of(run).key)


def tag_runs(state: RunsPageState, runs: Sequence[ListedRun], add: Sequence[str], remove: Sequence[str]) -> None:
    """Add and remove tags. Refused runs give a notice."""
    _each(state, runs, lambda run: tab_jobs.run_store().tag(run.name, add, remove), "tagged")


def restore_runs(state: RunsPageState, items: Sequence[Item]) -> None:
    """Restore runs that were deleted in this tab."""
    refused: dict[str, str] = {}
    for each in items:
        _undo(state, each)
        refused |= state.refused
    state.refused = refused


def _each(
    state: RunsPageState, runs: Sequence[ListedRun], change: Callable[[ListedRun], object], done: str
) -> list[ListedRun]:
    """Apply a change to each run, give a notice of refused ones, and return the others."""
    state.notices.clear()
    state.refused.clear()
    refused: dict[str, str] = {}
    changed = []
    for run in runs:
        try:
            if reason := refusal(run):
                raise StorageError(reason)
            change(run)
            changed.append(run)
        except BadInput as error:
            refused[run.heading] = str(error)
    if refused:
        heading, why = next(iter(refused.items()))
        others = f", nor {counted(len(refused) - 1, 'other')}" if len(refused) > 1 else ""
        state.notices.append(f"“{heading}” was not {done}{others}. {why}")
    return changed


def too_large(runs: Iterable[ListedRun]) -> bool:
    """Return True if the runs are too large for one zip."""
    total = 0
    for run in runs:
        if run.path is not None:
            with suppress(OSError):
                total += sum(file.stat().st_size for file in run.path.iterdir())
    return total > MOST_BYTES


def zipped(runs: Sequence[ListedRun], catalog: RunCatalogue) -> bytes:
    """Return the zip of one run's folder, or a zip that contains one such zip per run. Raises BadInput if a run cannot
    be read."""
    if len(runs) == 1:
        return write_zip(catalog.opened(runs[0].name))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for run in runs:
            archive.writestr(f"{run.name}.zip", write_zip(catalog.opened(run.name)))
    return buffer.getvalue()


WHO = {
    MayDelete.MAKER: f"Only the browser that made a run can rename or delete it ({DELETE}=maker).",
    MayDelete.EVERYBODY: f"Everybody can rename and delete them ({DELETE}=everybody).",
    MayDelete.NOBODY: f"Nobody can rename or delete them ({DELETE}=nobody).",
}


def whose(folder: Path | None) -> str:
    """Return where runs are saved, and who sees and may change them. `folder` is None if the path must not be shown."""
    try:
        who = WHO[who_may_delete()]
    except BadInput as error:
        who = str(error)
    where = "on this server" if folder is None else f"in {folder} (MARS_VIZ_RUNS)"
    everybody = "Everybody who can open this page sees and downloads them."
    seen = everybody if server_class() is None else f"They are for {rights.who_sees()}."
    return f"Saved {where}. {seen} {who}"
