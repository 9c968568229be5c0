"""Background thread that runs all jobs that use models, one at a time, in order of submission.

Any tab can find a job by its names. Jobs whose browser session has ended are cancelled. Progress snapshots are
immutable, so a page may read them at any time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Hashable
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from mars_viz.backend_choice import BackendChoice
from mars_viz.ui.jobs.model_process import ModelProcess
from mars_viz.ui.jobs.models import Job, JobState, Models, Progress, Rank

IDLE = 900.0  # seconds without a job after which the models are dropped

Wanted = Callable[[], bool]  # True while the session that submitted the job is connected; called from any thread

Admit = Callable[[Job[Any]], str]  # returns why the job is refused, in a sentence; empty if it may run

GRACE = 60.0
"""Seconds that a session may be disconnected before its jobs are cancelled. A page that is reloaded in this time keeps
its session."""
LEFT = "This page was away for more than a minute, so its job was stopped"
LOOKS = 12  # number of attendance checks per grace period

_log = logging.getLogger(__name__)


class UnloadJob(Job[Progress]):
    """Drops the models, after all earlier jobs, including sweeps."""

    rank = Rank.LONG  # so that sweeps finish first

    def __init__(self) -> None:
        super().__init__(Progress(JobState.QUEUED))

    def work(self, models: Models[Any]) -> None:
        """Drop the models."""
        models.drop()


class LoadJob(Job[Progress]):
    """Loads models before the first decode."""

    def __init__(self, choice: BackendChoice) -> None:
        super().__init__(Progress(JobState.QUEUED))
        self.choice = choice

    def work(self, models: Models[Any]) -> None:
        """Load the models."""
        models.pair(self.choice, lambda: self.stopping)


class Worker:
    """Owns the host of the models and the thread that uses it. One worker serves all sessions of a server. It keeps
    finished jobs only if they are `remembered`."""

    def __init__(
        self,
        models: Models[Any] | ModelProcess,
        idle: float = IDLE,
        asker: Callable[[], Wanted] | None = None,
        attendance: OrphanReaper | None = None,
        admit: Admit | None = None,
    ) -> None:
        """Create an idle worker, which drops the models after `idle` seconds without a job. A `ModelProcess` holds them
        in another process.

        `asker` is called in the session that submits a private job; it returns a function that checks whether that
        session is connected. Without `asker`, no job is cancelled. `admit` is called for each submitted job; a refused
        job fails with the message that `admit` returns.
        """
        self.models = models
        self._asker, self._attendance, self._admit = asker, attendance or OrphanReaper(), admit
        self._idle = idle
        self._waiting: deque[Job[Any]] = deque()
        self._numbers = count(1)
        self._running = self._expected = False
        self._news = threading.Condition()
        self._thread: threading.Thread | None = None
        self._named: WeakValueDictionary[Hashable, Job[Any]] = WeakValueDictionary()
        self._remembered: dict[Hashable, Job[Any]] = {}

    def begin(self, job: Job[Any], *names: Hashable) -> Job[Any]:
        """Submit a job, unless an unfinished job already has one of the names. Return the job that runs."""
        with self._news:
            for running in filter(None, map(self.find, names)):
                if not running.progress.state.finished:
                    return running
            self._name(job, names)
        self.submit(job)
        return job

    def find(self, name: Hashable) -> Job[Any] | None:
        """Return the job of that name, or None if there is none or it has ended and been collected."""
        with self._news:
            return self._named.get(name)

    def names(self) -> dict[Hashable, Job[Any]]:
        """Return all named jobs, newest last."""
        with self._news:
            return dict(self._named)

    def forget(self, name: Hashable) -> None:
        """Remove a name, because the job's result was deleted."""
        with self._news:
            self._named.pop(name, None)
            self._remembered.pop(name, None)

    def name(self, job: Job[Any], name: Hashable) -> None:
        """Give the job an additional name, which may have belonged to another job."""
        with self._news:
            self._name(job, (name,))

    def _name(self, job: Job[Any], names: Collection[Hashable]) -> None:
        for name in names:
            self._named.pop(name, None)  # keeps the newest last
            self._named[name] = job
            if job.remembered:
                self._remembered[name] = job

    def submit(self, job: Job[Any], *names: Hashable) -> None:
        """Add a job to the queue and return at once. The names replace those of older jobs."""
        if self._admit is not None and (refused := self._admit(job)):
            job.fail(refused)
            return
        self.join(job)
        with self._news:
            self._name(job, names)
            job.number = next(self._numbers)
            self._waiting.append(job)
            self._wake()

    def expect(self) -> None:
        """Prepare the models for a job, if no job is running."""
        with self._news:
            self._expected = True
            self._wake()

    def _wake(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="model-worker", daemon=True)
            self._thread.start()
        self._news.notify()

    def join(self, job: Job[Any]) -> None:
        """Add the current session to those that wait for the job. The job continues while any of them is connected."""
        if job.private and self._asker is not None:
            self._attendance.add(job, self._asker())

    def ahead(self, job: Job[Any]) -> int:
        """Return the number of jobs ahead of this one; 0 if it is not waiting."""
        with self._news:
            if job not in self._waiting:
                return 0
            earlier = list(self._waiting)[: self._waiting.index(job)]
            return sum(not other.stopping for other in earlier) + self._running

    @property
    def jobs(self) -> int:
        """Number of waiting and running jobs."""
        with self._news:
            return len(self._waiting) + self._running

    def _serve(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._waiting or self._expected, self._idle)
                job = self._waiting.popleft() if self._waiting else None
                self._running, expected, self._expected = job is not None, self._expected, False
            if job is None:  # without the lock, so that sessions need not wait
                try:
                    if expected:
                        self.models.get_ready()
                    else:
                        self.models.rest()
                except Exception:  # the thread serves other jobs too
                    _log.exception("The models could be neither let go nor made ready.")
                continue
            try:
                self.models.serve(job)
            except Exception:  # the device does not respond; the thread serves other jobs too
                _log.exception("The device does not answer.")
            if not job.progress.state.finished:  # queue it again, so that long jobs finish one after the other
                with self._news:
                    self._waiting = deque(sorted([*self._waiting, job], key=lambda other: (other.rank, other.number)))
            del job  # finished jobs must be collectable
            with self._news:
                self._running = False


class OrphanReaper:
    """Cancels private jobs `GRACE` seconds after their session was last connected. Holds only weak references to
    jobs."""

    def __init__(self, grace: float = GRACE) -> None:
        self._grace = grace
        self._askers: WeakKeyDictionary[Job[Any], tuple[Wanted, ...]] = WeakKeyDictionary()
        self._seen: WeakKeyDictionary[Job[Any], float] = WeakKeyDictionary()  # when a session was last connected
        self._lock = threading.Condition()
        self._thread: threading.Thread | None = None

    def add(self, job: Job[Any], wanted: Wanted) -> None:
        """Watch a job until it ends. If several sessions wait for it, one connected session is enough."""
        with self._lock:
            self._askers[job] = (*self._askers.get(job, ()), wanted)
            self._seen[job] = time.monotonic()
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="job-attendance", daemon=True)
                self._thread.start()
            self._lock.notify()

    def look(self) -> None:
        """Check which sessions are connected, and cancel jobs that have none."""
        now = time.monotonic()
        with self._lock:
            askers = dict(self._askers)
        for job, wanted in askers.items():
            if job.progress.state.finished:
                with self._lock:
                    self._askers.pop(job, None)
            elif any(map(_is_connected, wanted)):
                self._seen[job] = now
            elif now - self._seen[job] > self._grace:
                job.abandon()

    def _watch(self) -> None:
        while True:
            with self._lock:
                self._lock.wait_for(lambda: bool(self._askers))
            time.sleep(self._grace / LOOKS)
            self.look()


def _is_connected(wanted: Wanted) -> bool:
    try:
        return wanted()
    except Exception:  # keep the job; the next check may succeed
        _log.exception("It could not be seen who is there.")
        return True
