"""Rights of the browser whose script is running, and limits of students' jobs. Without a classroom it may do
everything."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from mars_viz.errors import SettingError
from mars_viz.permissions import ClassLimits
from mars_viz.runstore import Sees
from mars_viz.ui import visitors
from mars_viz.ui.classroom.server_class import server_class
from mars_viz.ui.jobs.models import Job
from mars_viz.words import counted, number

SWEEPS = "In a classroom the teacher alone begins, continues and times sweeps. Open one of the samples in the list."
UNSEEN = (
    "The link's run belongs to another browser, and the class is not shown it; or there is none of that name here. "
    "Choose a run from the list, or ask the teacher to show that one."
)


def is_student() -> bool:
    """Return True if the browser is in a classroom and not a teacher's."""
    return server_class() is not None and not is_teacher()


def is_teacher() -> bool:
    """Return True if the browser is a teacher's."""
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
    """Return the limits of the browser; None if there are none."""
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
    """Raise SettingError if the browser may not begin sweeps."""
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
