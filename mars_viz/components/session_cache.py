"""What a tab's elements were last sent, so that a rerun sends nothing anew, and where they stand in it, between what
the page asks for and what the reader's hand has done since. Those of the runs that it looked at before, all but the
last, are forgotten: each holds its run and what is sent of it.

Knows Streamlit's session; knows no element, and of a position no more than that a record has parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Generic, TypeVar

import streamlit as st

P = TypeVar("P")


@dataclass(slots=True)
class PositionSync(Generic[P]):
    """The positions of one element."""

    asked: P
    """What the page last asked for."""
    sent: P
    """What the browser was last told."""
    stands: P
    """Where the browser stands, as far as it has reported."""
    turn: int = 0
    """Counts the times that the browser was told; a report from an earlier turn is out of date."""

    @classmethod
    def begin(cls, position: P) -> PositionSync[P]:
        """Of an element that is sent something new."""
        return cls(position, position, position)

    def settle(self, asked: P, reported: P | None) -> None:
        """Take in what the page asks for and what the browser reported, None where it has not since it was told."""
        if self._is_new(asked, reported):
            self._tell(asked)
        elif reported is not None:
            self.stands = reported
        elif self.stands != self.sent:
            self._tell(self.stands)  # the element was away: it starts again from what it is sent
        self.asked = asked

    def renewed(self, asked: P, reported: P | None) -> PositionSync[P]:
        """Of the element when it is sent other contents: as `settle`, but where the hand came to rest with the very
        rerun that brings them, it stands there, for the contents alone may have changed what the page asks for."""
        if reported is not None and reported != self.stands:
            self.stands = reported
        else:
            self.settle(asked, reported)
        return PositionSync(asked, self.stands, self.stands, self.turn + 1)

    def _is_new(self, asked: P, reported: P | None) -> bool:
        """True if any part of it is neither as it was asked for before nor as it stands: a page may be one report
        behind, and may feed back some parts alone."""
        known = [_parts(each) for each in (self.asked, self.stands, reported) if each is not None]
        return not all(any(part in other for other in known) for part in _parts(asked))

    def _tell(self, position: P) -> None:
        self.sent = self.stands = position
        self.turn += 1


def _parts(position: object) -> list[tuple[str, object]]:
    """A record's, by name; anything else is one part."""
    if is_dataclass(position):
        return [(each.name, getattr(position, each.name)) for each in fields(position)]
    return [("", position)]


C = TypeVar("C")
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
