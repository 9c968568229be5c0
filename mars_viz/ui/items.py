"""Saved runs and races on pages: renames, deletes and restores them.

The form is in a popover with a key per item, so it closes after a change and never shows another item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mars_viz.errors import BadInput
from mars_viz.escapes import markdown
from mars_viz.race import RaceStore
from mars_viz.runstore import BYTES, DAYS, LONGEST_TITLE, RunStore
from mars_viz.ui import theme, visitors
from mars_viz.ui.session import PageState

BIN = f"It stays in the bin for {DAYS} days, or until the bin holds more than {BYTES >> 30} GB."


@dataclass(frozen=True, slots=True)
class Item:
    """A run or a race."""

    store: RunStore | RaceStore
    name: str  # name of the folder
    heading: str  # title in lists
    title: str = ""  # full title; empty if it has none
    readable: bool = True  # False if the title cannot be changed

    @property
    def key(self) -> str:
        """Unique among all items. A race may have the same name as a run."""
        return f"{self.store.noun}-{self.name}"

    @property
    def refusal(self) -> str:
        """Why this browser may not change the item; empty if it may."""
        return self.store.makers.refusal(self.name, visitors.mark())


@dataclass(slots=True)
class ItemsState(PageState):
    deleted: set[str] = field(default_factory=set)  # by `Item.key`; can be restored above the list

    def forget(self, name: str) -> None:
        raise NotImplementedError

    def attempt(self, items: Iterable[Item], change: Callable[[Item], object]) -> None:
        """Apply a change to each item that this browser may change, and close their popovers. Errors of others become
        notices, and their popovers stay open."""
        self.notices.clear()
        for item in items:
            try:
                item.store.makers.check(item.name, visitors.mark())
                change(item)
            except BadInput as error:
                self.notices.append(f"{item.heading}: {error}")
            else:
                st.session_state[f"change-{item.key}"] = False  # Streamlit may end the run here, for another click

    def rename(self, item: Item) -> None:
        title = str(st.session_state[f"title-{item.key}"])
        self.attempt([item], lambda _: item.store.rename(item.name, title, item.heading))

    def delete(self, items: Iterable[Item]) -> None:
        def change(item: Item) -> None:
            item.store.delete(item.name)
            self.deleted.add(item.key)
            self.forget(item.name)

        self.attempt(items, change)

    def restore(self, items: Iterable[Item]) -> None:
        def change(item: Item) -> None:
            item.store.restore(item.name)
            self.deleted.discard(item.key)

        self.attempt(items, change)


def popover(place: DeltaGenerator, state: ItemsState, item: Item) -> None:
    refused = item.refusal
    with place.popover(
        "Rename or delete", disabled=bool(refused), help=markdown(refused) or None,
        key=f"change-{item.key}", on_change="rerun",
    ):  # fmt: skip
        title = (item.title or item.heading)[:LONGEST_TITLE]
        st.text_input("Title", title, key=f"title-{item.key}", max_chars=LONGEST_TITLE)
        left, right = st.columns(2)
        left.button(
            "Rename", key=f"rename-{item.key}", on_click=state.rename, args=(item,), width="stretch",
            disabled=not item.readable, help="Changes the title; links stay as they are",
        )  # fmt: skip
        right.button(
            "Delete", key=f"delete-{item.key}", on_click=state.delete, args=([item],), width="stretch", help=BIN
        )


def draw_deleted(state: ItemsState, items: Iterable[Item]) -> None:
    for item in items:
        with st.container(key=f"deleted-{item.key}"):
            words, button = st.columns([8.4, 1.7], vertical_alignment="center")
            with words:
                theme.line(f"Deleted: {item.heading}", f"{item.name}. {BIN}")
            button.button(
                "Undo", key=f"undo-{item.key}", on_click=state.restore, args=([item],), width="stretch",
                disabled=bool(item.refusal), help=markdown(item.refusal) or "Brings it back; its links open it again",
            )  # fmt: skip


def draw_bin(state: ItemsState, items: Sequence[Item]) -> None:
    restorable = [item for item in items if not item.refusal]
    if restorable:
        with st.expander(f"Bin ({len(restorable)})"):
            draw_deleted(state, restorable)
