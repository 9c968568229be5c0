"""The server's class: its limits, the teacher's key and browsers, and the shown run. Held in memory, one per server."""

from __future__ import annotations

import secrets
from functools import cache
from threading import Lock

from mars_viz.classroom import ClassLimits, class_limits
from mars_viz.errors import BadInput
from mars_viz.ui.classroom.shown import ShownBoard
from mars_viz.ui.links import View

_BYTES = 24  # of a key


class ServerClass:
    """One class, from the start of the server to its end."""

    def __init__(self, limits: ClassLimits) -> None:
        self.limits = limits
        self.key = secrets.token_urlsafe(_BYTES)  # secret in the teacher's link
        self.board = ShownBoard()
        self._teachers: frozenset[str] = frozenset()
        self._lock = Lock()

    def fits(self, key: str) -> bool:
        """Return True for the teacher's key, in constant time."""
        return secrets.compare_digest(key.encode("utf-8", "replace"), self.key.encode())

    def let_in(self, mark: str) -> None:
        """Make the browser with this mark a teacher's."""
        with self._lock:
            self._teachers |= {mark} - {""}

    def is_teacher(self, mark: str) -> bool:
        """Return True if the browser has opened the teacher's link since the server started."""
        return mark in self._teachers

    def sees(self, mark: str, name: str, maker: str) -> bool:
        """Return True if the browser with this mark sees the run or race: it made it, the class is shown it, or it is a
        teacher's."""
        return (bool(mark) and maker == mark) or name == self.board.run_id or self.is_teacher(mark)


@cache
def server_class() -> ServerClass | None:
    """Return the server's class, or None without a classroom. Invalid settings give the default limits; the command
    line reports them at the start."""
    try:
        limits = class_limits()
    except BadInput:
        limits = ClassLimits()
    return None if limits is None else ServerClass(limits)


def class_view(run_id: str | None = None) -> View | None:
    """Return the shown view. None if nothing is shown, if it is a run other than `run_id`, or without a classroom."""
    classroom = server_class()
    shown = None if classroom is None else classroom.board.shown
    return None if shown is None or run_id not in (None, shown.view.run) else shown.view
