"""Limits students' jobs: the number per browser at once, and the tokens of each.

The worker calls `why_not` for each submitted job.
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
    """Counts the admitted, unfinished jobs of each browser."""

    def __init__(self) -> None:
        self._marks: WeakKeyDictionary[Job[Any], str] = WeakKeyDictionary()
        self._lock = Lock()

    def why_not(self, job: Job[Any], mark: str, limits: ClassLimits) -> str:
        """Return why the browser may not run the job now, in a sentence; empty if the job is admitted. Cancelled jobs
        don't count."""
        if job.new_tokens > limits.tokens:
            return rights.too_many_tokens(job.new_tokens, limits)
        with self._lock:
            unfinished = sum(
                mark == whose and not (other.progress.state.finished or other.stopping)
                for other, whose in self._marks.items()
            )
            if unfinished < limits.jobs:
                self._marks[job] = mark
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
    """Return why the running script's browser may not run the job now; empty if it may."""
    limits = rights.limits()
    return "" if limits is None else _jobs.why_not(job, visitors.mark(), limits)
