"""Renaming, deleting and bringing back what is kept, runs and races alike.

Knows what a page remembers of it, and of what is kept its names and its store. A race is changed in a popover of its
own, whose key is the race's: it closes once that is done, and can never be open on another.
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

COLUMNS = (6.0, 1.2, 1.2, 1.7)
"""Of a line: words, and three buttons."""


class ChangesOf(Protocol):
    """What a page remembers of what was changed there."""

    notices: list[str]
    """Sentences to show."""
    deleted: set[str]
    """What was deleted here, by `Item.key`."""
    refused: dict[str, str]
    """By `Item.key`, why what was asked for last cannot be."""

    def forget(self, name: str) -> None:
        """What has this name is deleted."""
        ...


class Store(Protocol):
    """Where it is kept."""

    @property
    def makers(self) -> Makers:
        """Who made what."""
        ...

    def rename(self, name: str, title: str, seen: str | None = None) -> str:
        """Give it another title."""
        ...

    def delete(self, name: str) -> None:
        """Move it to the bin."""
        ...

    def restore(self, name: str) -> None:
        """Bring it back."""
        ...


@dataclass(frozen=True, slots=True)
class Item:
    """A run or a race."""

    store: Store
    """Where it is kept."""
    name: str
    """Of its folder."""
    heading: str
    """As it is listed."""
    title: str = ""
    """The whole of it; empty where it has none."""
    kind: str = "run"
    """Or "race", which may have a run's name."""
    readable: bool = True
    """False where it has no title that could be changed."""

    @property
    def key(self) -> str:
        """No other item's."""
        return f"{self.kind}-{self.name}"

    @property
    def refusal(self) -> str:
        """Why this browser may not change it; empty where it may."""
        return self.store.makers.refusal(self.name, visitors.mark())


def popover(place: DeltaGenerator, desk: ChangesOf, item: Item) -> None:
    """Draw the button that opens the form in which the item is renamed or deleted."""
    refused = item.refusal
    with place.popover(
        "Rename or delete", disabled=bool(refused), help=markdown(refused) or None,
        key=f"change-{item.key}", on_change="rerun",
    ):  # fmt: skip
        title = (item.title or item.heading)[:LONGEST_TITLE]
        st.text_input("Title", title, key=f"title-{item.key}", max_chars=LONGEST_TITLE)
        if item.key in desk.refused:
            theme.note(desk.refused[item.key])
        left, right = st.columns(2)
        left.button(
            "Rename", key=f"rename-{item.key}", on_click=rename, args=(desk, item), width="stretch",
            disabled=not item.readable, help="Changes the title; links stay as they are",
        )  # fmt: skip
        right.button(
            "Delete", key=f"delete-{item.key}", on_click=delete, args=(desk, item), width="stretch",
            help=live_words.BIN,
        )  # fmt: skip


def deleted(desk: ChangesOf, item: Item) -> None:
    """A line where it stood, or in the bin."""
    with st.container(key=f"deleted-{item.key}"):
        words, button = st.columns(COLUMNS, vertical_alignment="center")[::3]
        with words:
            theme.line(f"Deleted: {item.heading}", desk.refused.get(item.key) or f"{item.name}. {live_words.BIN}")
        refused = item.refusal
        button.button(
            "Undo", key=f"undo-{item.key}", on_click=undo, args=(desk, item), width="stretch",
            disabled=bool(refused), help=markdown(refused) or "Brings it back; its links open it again",
        )  # fmt: skip


def bin_of(desk: ChangesOf, items: list[Item]) -> None:
    """What was deleted in another tab, or before this one was opened, of what this browser may bring back."""
    mine = [item for item in items if not item.refusal]
    if mine:
        with st.expander(f"Bin ({len(mine)})"):
            for item in mine:
                deleted(desk, item)


def lost(desk: ChangesOf, kind: str, items: list[Item]) -> None:
    """What was refused of something that is not among these any more."""
    for key in desk.refused.keys() - {item.key for item in items}:
        if key.startswith(f"{kind}-"):
            theme.note(desk.refused[key])


def rename(desk: ChangesOf, item: Item) -> None:
    """Give it the title that is written beside it."""
    title = str(st.session_state[f"title-{item.key}"])
    attempt(desk, item, lambda: item.store.rename(item.name, title, item.heading))


def delete(desk: ChangesOf, item: Item) -> None:
    """Move it to the bin."""

    def gone() -> None:
        item.store.delete(item.name)
        desk.forget(item.name)
        desk.deleted.add(item.key)

    attempt(desk, item, gone)


def undo(desk: ChangesOf, item: Item) -> None:
    """Bring it back from the bin."""

    def back() -> None:
        item.store.restore(item.name)
        desk.deleted.discard(item.key)

    attempt(desk, item, back)


def attempt(desk: ChangesOf, item: Item, deed: Callable[[], object]) -> None:
    """Change it, if this browser may, and close its popover; what is wrong stands beside it, and leaves that open."""
    desk.notices.clear()
    desk.refused.clear()
    try:
        item.store.makers.check(item.name, visitors.mark())
        deed()
    except BadInput as error:
        desk.refused[item.key] = str(error)
    else:
        st.session_state[f"change-{item.key}"] = False
