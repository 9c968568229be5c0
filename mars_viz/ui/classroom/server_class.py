"""The server's class: its limits, the teacher's key and browsers, and the shown run with the teacher's position.

Held in memory, one per server. Each change of the position gives a new version.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from mars_viz.components.explorer.element import recorded_at
from mars_viz.errors import BadInput, SettingError
from mars_viz.permissions import ClassLimits, class_limits
from mars_viz.run import Run
from mars_viz.ui.links import View, fitted


@dataclass(frozen=True, slots=True)
class ShownRun:
    """Shown run and position."""

    run: Run
    title: str
    view: View  # the run's id, and the teacher's dial, draft length, overlay and selected token

    @property
    def position(self) -> dict[str, Any]:
        """The position in JSON types, without defaults."""
        view, settings = self.view, self.run.settings
        return {
            "run": view.run,
            "cuts": view.cuts,
            "dial": recorded_at(self.run, view.cuts) if view.dial is None else view.dial,
            "gamma": settings.gamma if view.gamma is None else view.gamma,
            "overlay": view.overlay,
            "selected": view.selected,
        }


_BYTES = 24  # of a key


class ServerClass:
    """One class, from the start of the server to its end, and the run that it is shown."""

    def __init__(self, limits: ClassLimits) -> None:
        self.limits = limits
        self.key = secrets.token_urlsafe(_BYTES)  # secret in the teacher's link
        self._teachers: frozenset[str] = frozenset()
        self._set(None)

    def _set(self, shown: ShownRun | None) -> None:
        self._board = secrets.token_hex(8), shown  # one assignment, because other threads read it

    @property
    def shown(self) -> ShownRun | None:
        """The shown run, if any."""
        return self._board[1]

    @property
    def version(self) -> str:
        """Changes with each update, and differs between servers."""
        return self._board[0]

    def read(self) -> dict[str, Any]:
        """Return the version and the position at one moment."""
        version, shown = self._board
        return {"version": version, **({"run": None} if shown is None else shown.position)}

    def show(self, run: Run, title: str, view: View) -> None:
        """Show a run at the position of this view, without the teacher's pins."""
        place = replace(view, pin_token=None, pin_dial=None)
        self._set(ShownRun(run, title, fitted(place, run).view))

    def stop(self) -> None:
        """Show nothing."""
        self._set(None)

    def renew(self, run: Run, cuts: bool) -> None:
        """Update the shown run after it gained a map or its slider was switched to another threshold."""
        shown = self.shown
        if shown is None or (shown.run is run and shown.view.cuts == cuts):
            return
        dial = shown.view.dial if shown.view.cuts == cuts else None
        self._set(replace(shown, run=run, view=fitted(replace(shown.view, cuts=cuts, dial=dial), run).view))

    def move(self, view: View) -> None:
        """Move to the teacher's new position. Raises SettingError for another run or an invalid position."""
        shown = self.shown
        if shown is None or (view.run, view.cuts) != (shown.view.run, shown.view.cuts):
            raise SettingError("The class is shown another run by now. Load the page again.")
        opened = fitted(view, shown.run)
        if opened.complaints:
            raise SettingError(" ".join(opened.complaints))
        if opened.view != shown.view:
            self._set(replace(shown, view=opened.view))

    def fits(self, key: str) -> bool:
        """Return True for the teacher's key, in constant time."""
        return secrets.compare_digest(key.encode("utf-8", "replace"), self.key.encode())

    def let_in(self, mark: str) -> None:
        """Make the browser with this mark a teacher's."""
        self._teachers |= {mark} - {""}

    def is_teacher(self, mark: str) -> bool:
        """Return True if the browser has opened the teacher's link since the server started."""
        return mark in self._teachers

    def sees(self, mark: str, name: str, maker: str) -> bool:
        """Return True if the browser with this mark made the run or race, is shown it, or is a teacher's."""
        is_shown = self.shown is not None and name == self.shown.view.run
        return (bool(mark) and maker == mark) or is_shown or self.is_teacher(mark)


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
    shown = None if classroom is None else classroom.shown
    return None if shown is None or run_id not in (None, shown.view.run) else shown.view
