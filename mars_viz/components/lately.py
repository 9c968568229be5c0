"""What a tab's elements of one kind were last sent. Those of the runs that it looked at before, all but the last, are
forgotten: each holds its run and what is sent of it. Knows Streamlit's session only.
"""

from __future__ import annotations

from typing import Any, TypeVar

import streamlit as st

Kept = TypeVar("Kept")
MOST = 2
"""Memories of a kind: going back and forth between two runs sends nothing anew."""


def memories(kind: str) -> dict[str, Any]:
    """All that is kept of that kind in this tab, by the elements' keys, the newest last."""
    found: dict[str, Any] = st.session_state.setdefault(f"{kind}.memories", {})
    return found


def newest(kind: str) -> Any:
    """The memory that was kept last; None before any."""
    return next(reversed(memories(kind).values()), None)


def keep(kind: str, key: str, memory: object) -> None:
    """Make this the newest, and forget the oldest beyond `MOST`."""
    put_last(memories(kind), key, memory, MOST)


def put_last(known: dict[str, Kept], key: str, newest: Kept, most: int) -> None:
    """Put it at the end, and take away from the beginning what is more than `most`."""
    known.pop(key, None)
    known[key] = newest
    while len(known) > most:
        del known[next(iter(known))]
