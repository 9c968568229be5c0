"""The server's class (its limits, the teacher's key and browsers, the shown run) and the rights of the browser whose
script is running. Without a classroom a browser may do everything.

The class is held in memory, one per server. Each change of the teacher's position gives a new version.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from mars_viz.components.explorer.element import recorded_at
from mars_viz.errors import BadInput, SettingError
from mars_viz.permissions import ClassLimits, class_limits
from mars_viz.run import Run
from mars_viz.runstore import Sees
from mars_viz.ui import visitors
from mars_viz.ui.jobs.models import Job
from mars_viz.ui.links import View, fitted
from mars_viz.words import counted, number


@dataclass(frozen=True, slots=True)
class ShownRun:
    run: Run
    title: str
    view: View  # the run's id, and the teacher's dial, draft length, overlay and selected token


class ServerClass:
    """One class, from the start of the server to its end, and the run that it is shown."""

    def __init__(self, limits: ClassLimits) -> None:
        self.limits = limits
        self.key = secrets.token_urlsafe(24)  # secret in the teacher's link
        self._teachers: frozenset[str] = frozenset()
        self._set(None)

    def _set(self, shown: ShownRun | None) -> None:
        self._board = secrets.token_hex(8), shown  # one assignment, because other threads read it

    @property
    def shown(self) -> ShownRun | None:
        return self._board[1]

    @property
    def version(self) -> str:
        """Changes with each update, and differs between servers."""
        return self._board[0]

    def read(self) -> dict[str, Any]:
        """Return the version and the position at one moment, in JSON types and without defaults."""
        version, shown = self._board
        if shown is None:
            return {"version": version, "run": None}
        view, run = shown.view, shown.run
        return {
            "version": version,
            "run": view.run,
            "cuts": view.cuts,
            "dial": recorded_at(run, view.cuts) if view.dial is None else view.dial,
            "gamma": run.settings.gamma if view.gamma is None else view.gamma,
            "overlay": view.overlay,
            "selected": view.selected,
        }

    def show(self, run: Run, title: str, view: View) -> None:
        """Show a run at the position of this view, without the teacher's pins."""
        place = replace(view, pin_token=None, pin_dial=None)
        self._set(ShownRun(run, title, fitted(place, run).view))

    def stop(self) -> None:
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


SWEEPS = "In a classroom the teacher alone begins, continues and times sweeps. Open one of the samples in the list."
UNSEEN = (
    "The link's run belongs to another browser, and the class is not shown it; or there is none of that name here. "
    "Choose a run from the list, or ask the teacher to show that one."
)


def is_student() -> bool:
    """Return True if the browser is in a classroom and not a teacher's."""
    return server_class() is not None and not is_teacher()


def is_teacher() -> bool:
    classroom = server_class()
    return classroom is not None and classroom.is_teacher(visitors.mark())


def sees() -> Sees | None:
    """Return a thread-safe function that decides which runs and races the browser sees; None if all."""
    classroom = server_class()
    return None if classroom is None else partial(classroom.sees, visitors.mark())


def owns(maker: str) -> bool:
    """Return True if the browser may join, stop and extend a job started by the browser with the mark `maker`."""
    return not is_student() or (bool(maker) and maker == visitors.mark())


def limits() -> ClassLimits | None:
    classroom = server_class()
    return classroom.limits if classroom is not None and is_student() else None


def who_sees() -> str:
    """Return who sees this browser's runs, as the end of a sentence."""
    if server_class() is None:
        return "everyone who opens the app"
    return "this browser and the teacher" if is_student() else "the teacher's browsers alone, until you show it"


def why_no_sweeps() -> str:
    """Return why the browser may not begin a sweep, in a sentence; empty if it may."""
    return SWEEPS if is_student() else ""


def check_sweeps() -> None:
    if why := why_no_sweeps():
        raise SettingError(why)


def why_no_job(job: Job[Any], unfinished: Sequence[Job[Any]]) -> str:
    """Return why the running script's browser may not run the job now, given all unfinished jobs; empty if it may."""
    allowed = limits()
    return "" if allowed is None else too_many_jobs(job, visitors.mark(), unfinished, allowed)


def too_many_jobs(job: Job[Any], mark: str, unfinished: Sequence[Job[Any]], limits: ClassLimits) -> str:
    """Return why a student's browser with this mark may not run the job; empty if it may. Cancelled jobs and
    those without models don't count."""
    if job.new_tokens > limits.tokens:
        return (
            f"This asks for {number(job.new_tokens)} new tokens, and in this classroom a decode may ask for "
            f"{number(limits.tokens)} at most. Set a lower limit in the settings."
        )
    models_used = [other for other in unfinished if other.choice is not None and not other.stopping]
    if sum(other.maker == mark for other in models_used) < limits.jobs:
        return ""
    if not mark:
        return (
            "Browsers that send no cookie share one place in this classroom's queue, and it is taken. Allow "
            "cookies here, and load the page again."
        )
    return (
        f"In this classroom a browser has at most {counted(limits.jobs, 'job')} that wait or run at once, over all "
        "of its tabs. Wait until one of yours has ended, or stop it."
    )
