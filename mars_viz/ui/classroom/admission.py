"""How much of the server's one worker a student may have: jobs at once, over all tabs of a browser, and tokens of each.

Knows jobs and who asks for one; the worker asks here for each job that is submitted, whatever form or link it is of.
"""

from __future__ import annotations

from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

from mars_viz.classroom import ClassLimits
from mars_viz.ui import visitors
from mars_viz.ui.classroom import rights
from mars_viz.ui.jobs.job import Job
from mars_viz.words import counted


class StudentJobs:
    """The jobs of each browser that were admitted, for as long as somebody holds them."""

    def __init__(self) -> None:
        """None yet."""
        self._of: WeakKeyDictionary[Job[Any], str] = WeakKeyDictionary()
        self._lock = Lock()

    def why_not(self, job: Job[Any], mark: str, limits: ClassLimits) -> str:
        """Why the browser of this mark may not have the job done now, in a sentence; empty where it may, and the job is
        one of its jobs then. One that was told to stop counts no more."""
        if job.new_tokens > limits.tokens:
            return rights.too_many_tokens(job.new_tokens, limits)
        with self._lock:
            held = sum(
                mark == whose and not (other.progress.state.finished or other.stopping)
                for other, whose in self._of.items()
            )
            if held < limits.jobs:
                self._of[job] = mark
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


_jobs = StudentJobs()


def why_not(job: Job[Any]) -> str:
    """Why the browser whose script is running may not have the job done now; empty where it may."""
    limits = rights.limits()
    return "" if limits is None else _jobs.why_not(job, visitors.mark(), limits)
