"""The server's class: its limits, its teacher's key and browsers, and what it is shown. One a server, in its memory.

Knows browsers by their marks; knows no pages and no requests.
"""

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
    """One class for as long as the server runs."""

    def __init__(self, limits: ClassLimits) -> None:
        """Nobody is the teacher yet, and nothing is shown."""
        self.limits = limits
        self.key = secrets.token_urlsafe(_BYTES)
        """Whoever opens a link with it is a teacher."""
        self.board = ShownBoard()
        self._teachers: frozenset[str] = frozenset()
        self._lock = Lock()

    def fits(self, key: str) -> bool:
        """True of the teacher's key; it takes as long whatever is wrong with another."""
        return secrets.compare_digest(key.encode("utf-8", "replace"), self.key.encode())

    def let_in(self, mark: str) -> None:
        """The browser of this mark is a teacher's from now on."""
        with self._lock:
            self._teachers |= {mark} - {""}

    def is_teacher(self, mark: str) -> bool:
        """True of a browser that has opened the teacher's link since the server started."""
        return mark in self._teachers

    def sees(self, mark: str, name: str, maker: str) -> bool:
        """Whether the browser of this mark sees the run or race of this name, made by the browser of the mark `maker`:
        its own, what the class is shown, and if it is a teacher all."""
        return (bool(mark) and maker == mark) or name == self.board.run_id or self.is_teacher(mark)


@cache
def server_class() -> ServerClass | None:
    """The server's; None where it is no classroom. Settings that are none give the careful limits: what is wrong with
    them is said at the start."""
    try:
        limits = class_limits()
    except BadInput:
        limits = ClassLimits()
    return None if limits is None else ServerClass(limits)


def class_view(run_id: str | None = None) -> View | None:
    """What the class is shown now; None for nothing, where that is another run than one of this id, and where there is
    no class."""
    its = server_class()
    shown = None if its is None else its.board.shown
    return None if shown is None or run_id not in (None, shown.view.run) else shown.view
