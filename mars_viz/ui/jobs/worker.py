"""One background thread that has every job done in which models take part, one at a time, in the order of asking.

Knows threads and jobs; knows no models and no Streamlit, and not what a job does: each kind of job is a small class of
its own, `decode_job` the first. A job's progress is a frozen snapshot, replaced as a whole, so a page may read it any
time.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any, Protocol

from mars_viz.ui.jobs.job import Job, JobState, Progress, Rank
from mars_viz.ui.jobs.models import Models, PairChoice, Status
from mars_viz.ui.jobs.orphan_reaper import OrphanReaper, Wanted

IDLE = 900.0
"""Seconds without a job after which the models are let go."""

_log = logging.getLogger(__name__)


class Host(Protocol):
    """Whoever has the models: `Models` themselves, or an `Engine`, which has them in a process of their own."""

    @property
    def status(self) -> Status:
        """The latest snapshot of what is held and what is being loaded."""
        ...

    @property
    def recent(self) -> tuple[PairChoice, ...]:
        """What was loaded, the latest first; a few."""
        ...

    def serve(self, job: Job[Any]) -> None:
        """Have a job done, or a step of a long one."""
        ...

    def rest(self) -> None:
        """Nobody has wanted the models for a while."""
        ...


class UnloadJob(Job[Progress]):
    """Lets the models go, once the jobs before it are done; a sweep too, which holds its pair between its steps."""

    def __init__(self) -> None:
        """Waits like any other."""
        super().__init__(Progress(JobState.QUEUED))

    @property
    def rank(self) -> Rank:
        """Behind what holds a pair between its steps."""
        return Rank.LONG

    def work(self, models: Models[Any]) -> None:
        """Drop them."""
        models.drop()
        self.tell(state=JobState.DONE)


class Worker:
    """Owns the models' host and the thread that asks it. One serves a whole server; it remembers no finished job."""

    def __init__(
        self,
        models: Host,
        idle: float = IDLE,
        asker: Callable[[], Wanted] | None = None,
        attendance: OrphanReaper | None = None,
    ) -> None:
        """A worker that waits for jobs, and lets the models go after `idle` seconds without one.

        `asker` is called by whoever submits a private job, and makes what says whether they are still there; without
        it nobody is thought to leave.
        """
        self.models = models
        self._asker, self._attendance = asker, attendance or OrphanReaper()
        self._idle = idle
        self._waiting: deque[Job[Any]] = deque()
        self._numbers = count(1)
        self._running = False
        self._news = threading.Condition()
        self._thread: threading.Thread | None = None

    def submit(self, job: Job[Any]) -> None:
        """Put a job in the queue and return at once."""
        self.join(job)
        with self._news:
            job.number = next(self._numbers)
            self._waiting.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="model-worker", daemon=True)
                self._thread.start()
            self._news.notify()

    def join(self, job: Job[Any]) -> None:
        """One more who waits for a job that was submitted: it goes on for as long as one of them is there."""
        if job.private and self._asker is not None:
            self._attendance.add(job, self._asker())

    def ahead(self, job: Job[Any]) -> int:
        """How many other jobs come before this one; 0 if it is no longer waiting."""
        with self._news:
            if job not in self._waiting:
                return 0
            before = list(self._waiting)[: self._waiting.index(job)]
            return sum(not other.stopping for other in before) + self._running

    @property
    def jobs(self) -> int:
        """How many wait or are under way."""
        with self._news:
            return len(self._waiting) + self._running

    def _serve(self) -> None:
        while True:
            with self._news:
                job = None
                if self._news.wait_for(lambda: bool(self._waiting), self._idle):
                    job = self._waiting.popleft()
                    self._running = True
            if job is None:
                self._rest()  # not under the lock: nobody who asks meanwhile is to wait for that
                continue
            try:
                self.models.serve(job)
            except Exception:  # a device that cannot even be asked; the thread serves others too
                _log.exception("The device does not answer.")
            if not job.progress.state.finished:
                self._put_back(job)
            del job  # a finished job belongs to its asker alone
            with self._news:
                self._running = False

    def _rest(self) -> None:
        """Nobody has wanted the models for a while."""
        try:
            self.models.rest()
        except Exception:  # the thread serves others too
            _log.exception("The models could not be let go.")

    def _put_back(self, job: Job[Any]) -> None:
        """A job that has taken a step and is not done: by rank, and within one before all that were asked for later, so
        that what such jobs hold between their steps is held once."""
        with self._news:
            self._waiting = deque(sorted([*self._waiting, job], key=lambda other: (other.rank, other.number)))
