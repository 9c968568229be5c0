"""Renames, deletes and restores saved runs and races.

The form is in a popover with a key per item, so it closes after a change and never shows another item.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mars_viz.errors import BadInput
from mars_viz.escapes import markdown
from mars_viz.runstore import Makers
from mars_viz.runstore.store import LONGEST_TITLE
from mars_viz.ui import theme, visitors
from mars_viz.ui.live import live_words

COLUMNS = (6.0, 1.2, 1.2, 1.7)  # relative widths of a line's words and three buttons


class ChangesOf(Protocol):
    """State of a page on which items are changed."""

    notices: list[str]
    deleted: set[str]  # items deleted in this tab, by `Item.key`
    refused: dict[str, str]  # why the last change of an item was refused, by `Item.key`

    def forget(self, name: str) -> None:
        """Stop showing a deleted item."""


class Store(Protocol):
    """Store of runs or races."""

    @property
    def makers(self) -> Makers:
        """The makers of all items."""

    def rename(self, name: str, title: str, seen: str | None = None) -> str:
        """Change the title."""

    def delete(self, name: str) -> None:
        """Move to the bin."""

    def restore(self, name: str) -> None:
        """Restore from the bin."""


@dataclass(frozen=True, slots=True)
class Item:
    """A run or a race."""

    store: Store
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
            "Delete", key=f"delete-{item.key}", on_click=delete, args=(page_state, item), width="stretch",
            help=live_words.BIN,
        )  # fmt: skip


def deleted(page_state: ChangesOf, item: Item) -> None:
    """Draw a deleted item with a button that restores it."""
    with st.container(key=f"deleted-{item.key}"):
        words, button = st.columns(COLUMNS, vertical_alignment="center")[::3]
        with words:
            theme.line(f"Deleted: {item.heading}", page_state.refused.get(item.key) or f"{item.name}. {live_words.BIN}")
        refused = item.refusal
        button.button(
            "Undo", key=f"undo-{item.key}", on_click=undo, args=(page_state, item), width="stretch",
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


def delete(page_state: ChangesOf, item: Item) -> None:
    """Move the item to the bin."""

    def delete_item() -> None:
        item.store.delete(item.name)
        page_state.forget(item.name)
        page_state.deleted.add(item.key)

    attempt(page_state, item, delete_item)


def undo(page_state: ChangesOf, item: Item) -> None:
    """Restore the item from the bin."""

    def restore_item() -> None:
        item.store.restore(item.name)
        page_state.deleted.discard(item.key)

    attempt(page_state, item, restore_item)


def attempt(page_state: ChangesOf, item: Item, change: Callable[[], object]) -> None:
    """Apply a change if this browser may, and close the popover. An error is shown in the popover, which stays open."""
    page_state.notices.clear()
    page_state.refused.clear()
    try:
        item.store.makers.check(item.name, visitors.mark())
        change()
    except BadInput as error:
        page_state.refused[item.key] = str(error)
    else:
        st.session_state[f"change-{item.key}"] = False
