"""What a class is shown: a run, and where the teacher's explorer stands in it, under a version that each move changes.

Knows runs and views; knows no browsers and no requests. Any thread may ask.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

from mars_viz.components.explorer import recorded_at
from mars_viz.errors import SettingError
from mars_viz.run import Run
from mars_viz.ui.links import View, fitted


@dataclass(frozen=True, slots=True)
class ShownRun:
    """A run before the class, and where it stands."""

    run: Run
    """The run, with its map."""
    title: str
    """Its line in lists."""
    view: View
    """Its id, and where the teacher's dial, draft length, overlay and selected token are."""

    @property
    def position(self) -> dict[str, Any]:
        """The same for browsers, in JSON's types: nothing is left to a default."""
        view, settings = self.view, self.run.settings
        return {
            "run": view.run,
            "cuts": view.cuts,
            "dial": recorded_at(self.run, view.cuts) if view.dial is None else view.dial,
            "gamma": settings.gamma if view.gamma is None else view.gamma,
            "overlay": view.overlay,
            "selected": view.selected,
        }


def place_in(view: View) -> View:
    """What of a view the class is shown: nothing that its owner has pinned."""
    return View(view.run, view.dial, view.overlay, view.selected, view.gamma, view.cuts)


class ShownBoard:
    """What is shown now; nothing at first."""

    def __init__(self) -> None:
        """Versions of two servers are never the same."""
        self._epoch, self._count = secrets.token_hex(4), 0
        self._shown: ShownRun | None = None
        self._lock = Lock()

    @property
    def shown(self) -> ShownRun | None:
        """What the class sees; None for nothing."""
        return self._shown

    @property
    def run_id(self) -> str:
        """The run's id; empty where nothing is shown."""
        shown = self._shown
        return "" if shown is None else shown.view.run

    @property
    def version(self) -> str:
        """Another one after each change."""
        return f"{self._epoch}.{self._count}"

    def read(self) -> dict[str, Any]:
        """The version and, where something is shown, its position, of one moment."""
        with self._lock:
            position = {"run": None} if self._shown is None else self._shown.position
            return {"version": self.version, **position}

    def show(self, run: Run, title: str, view: View) -> None:
        """Put a run before the class, where this view stands in it."""
        self._put(ShownRun(run, title, fitted(place_in(view), run).view))

    def stop(self) -> None:
        """Show nothing."""
        self._put(None)

    def renew(self, run: Run, cuts: bool) -> None:
        """The run that is shown has grown a map, or its slider turns another threshold now."""
        shown = self._shown
        if shown is None or (shown.run is run and shown.view.cuts == cuts):
            return
        dial = shown.view.dial if shown.view.cuts == cuts else None
        self._put(replace(shown, run=run, view=fitted(replace(shown.view, cuts=cuts, dial=dial), run).view))

    def move(self, view: View) -> None:
        """The teacher's explorer stands there now. Raises SettingError where that is another run than the one that is
        shown, or the run has no such place."""
        shown = self._shown
        if shown is None or (view.run, view.cuts) != (shown.view.run, shown.view.cuts):
            raise SettingError("The class is shown another run by now. Load the page again.")
        opened = fitted(view, shown.run)
        if opened.complaints:
            raise SettingError(" ".join(opened.complaints))
        if opened.view != shown.view:
            self._put(replace(shown, view=opened.view))

    def _put(self, shown: ShownRun | None) -> None:
        with self._lock:
            self._shown, self._count = shown, self._count + 1
