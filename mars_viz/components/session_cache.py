"""What a tab's elements were last sent, so that a rerun sends nothing anew, and where they stand in it. Those of the
runs that it looked at before, all but the last, are forgotten: each holds its run and what is sent of it.

Knows Streamlit's session; knows no element.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import streamlit as st

from mars_viz.components.position_sync import PositionSync

C = TypeVar("C")
P = TypeVar("P")
MOST = 2
"""Memories of a kind that hold runs: going back and forth between two runs sends nothing anew."""


@dataclass(slots=True)
class Memory(Generic[C, P]):
    """What one element was last sent."""

    id: str
    """Of its contents."""
    contents: C
    """What of them is needed again."""
    where: PositionSync[P]
    """Where it stands in them."""
    number: int
    """Counts the memories of a tab, so that no revision comes twice: a browser may still know the first."""

    @property
    def revision(self) -> str:
        """Of what the browser was last told."""
        return f"{self.id}-{self.number}-{self.where.turn}"

    def reported(self, key: str) -> Mapping[str, Any] | None:
        """Where the browser says that the element of that key stands, if it speaks of what it was last told."""
        state = st.session_state.get(key)
        position = state.get("position") if isinstance(state, Mapping) else None
        of_this = isinstance(position, Mapping) and position.get("revision") == self.revision
        return position if of_this else None


def recalled(kind: str, key: str) -> Memory[Any, Any] | None:
    """What the element of that kind and key was last sent; None before anything."""
    known = _memories(kind)
    if key in known:
        known[key] = known.pop(key)  # the newest of its kind
    return known.get(key)


def begun(kind: str, key: str, id: str, contents: C, where: PositionSync[P], *, most: int = MOST) -> Memory[C, P]:
    """The memory of an element that is sent something new; the oldest of its kind beyond `most` are forgotten."""
    number = st.session_state["elements.count"] = st.session_state.get("elements.count", 0) + 1
    memory = Memory(id, contents, where, number)
    put_last(_memories(kind), key, memory, most)
    return memory


def put_last(known: dict[str, C], key: str, newest: C, most: int) -> None:
    """Put it at the end, and take away from the beginning what is more than `most`."""
    known.pop(key, None)
    known[key] = newest
    while len(known) > most:
        del known[next(iter(known))]


def _memories(kind: str) -> dict[str, Memory[Any, Any]]:
    """All of that kind in this tab, by the elements' keys, the newest last."""
    found: dict[str, Memory[Any, Any]] = st.session_state.setdefault(f"{kind}.memories", {})
    return found
