"""The data that a tab's elements were last sent, so that a rerun does not send it again, and their positions.

A position merges the page's request with the reader's later moves. Only the memories of the last runs are kept, since
each holds its run and payload.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Generic, TypeVar

import streamlit as st

C = TypeVar("C")
P = TypeVar("P")
MOST = 2  # memories per kind that hold runs; switching between two runs sends nothing again


@dataclass(slots=True)
class Memory(Generic[C, P]):
    """The data that one element was last sent, and its positions."""

    id: str  # id of its contents
    contents: C  # the contents needed again later
    number: int  # counts the memories of a tab, so that revisions are unique even if the browser remembers the first
    asked: P  # the page's last request
    sent: P  # the position last sent to the browser
    stands: P  # the browser's current position, as last reported
    turn: int = 0  # number of positions sent; a report from an earlier turn is out of date

    @property
    def revision(self) -> str:
        """Id of the last position sent to the browser."""
        return f"{self.id}-{self.number}-{self.turn}"

    def reported(self, key: str) -> Mapping[str, Any] | None:
        """Return the position that the browser reports for the element, if it refers to the current revision."""
        state = st.session_state.get(key)
        position = state.get("position") if isinstance(state, Mapping) else None
        of_this = isinstance(position, Mapping) and position.get("revision") == self.revision
        return position if of_this else None

    def settle(self, asked: P, reported: P | None) -> None:
        """Merge the page's request and the browser's report, which is None if there is none since the last send.

        The request is new if any part of it differs from the last request, the current position and the report. A page
        may lag one report behind, and may pass back only some parts.
        """
        known = [_parts(each) for each in (self.asked, self.stands, reported) if each is not None]
        if not all(any(part in other for other in known) for part in _parts(asked)):
            self._send(asked)
        elif reported is not None:
            self.stands = reported
        elif self.stands != self.sent:
            self._send(self.stands)  # the element was unmounted, and restarts at the position that is sent
        self.asked = asked

    def _send(self, position: P) -> None:
        self.sent = self.stands = position
        self.turn += 1

    def renew(self, asked: P, reported: P | None) -> P:
        """Return the position for new contents of the element.

        As `settle`, but a report that arrives in the same rerun as the new contents wins, because the contents alone
        may have changed the page's request.
        """
        if reported is not None and reported != self.stands:
            return reported
        self.settle(asked, reported)
        return self.stands


def _parts(position: object) -> list[tuple[str, object]]:
    """Return the fields of a dataclass by name; any other value is one part."""
    if is_dataclass(position):
        return [(each.name, getattr(position, each.name)) for each in fields(position)]
    return [("", position)]


def recalled(kind: str, key: str) -> Memory[Any, Any] | None:
    """Return the tab's memory of an element; None if there is none."""
    memories: dict[str, Memory[Any, Any]] = st.session_state.setdefault(f"{kind}.memories", {})
    if key in memories:
        memories[key] = memories.pop(key)  # mark as the most recently used
    return memories.get(key)


def begun(
    kind: str, key: str, id: str, contents: C, asked: P, position: P | None = None, *, most: int = MOST
) -> Memory[C, P]:
    """Store the memory of an element with new contents at `position`, by default the requested one, and drop the oldest
    of its kind beyond `most`."""
    number = st.session_state["elements.count"] = st.session_state.get("elements.count", 0) + 1
    stands = asked if position is None else position
    memory = Memory(id, contents, number, asked, stands, stands)
    put_last(st.session_state.setdefault(f"{kind}.memories", {}), key, memory, most)
    return memory


def put_last(known: dict[str, C], key: str, newest: C, most: int) -> None:
    """Insert at the end, and delete entries from the beginning beyond `most`."""
    known.pop(key, None)
    known[key] = newest
    while len(known) > most:
        del known[next(iter(known))]
