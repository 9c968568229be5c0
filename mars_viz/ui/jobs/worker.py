"""Background thread that runs all jobs that use models, one at a time, in order of submission.

Any tab can find a job by its names. Jobs whose browser session has ended are cancelled. Progress snapshots are
immutable, so a page may read them at any time.
"""

from __future__ import annotations

import logging
import threading
import time
from bisect import insort
from collections.abc import Callable, Hashable, Sequence
from typing import Any
from weakref import WeakValueDictionary

from mars_viz.ui.jobs.model_process import ModelProcess
from mars_viz.ui.jobs.models import Job, Models

IDLE = 900.0  # seconds without a job after which the models are dropped

Visitor = tuple[str, Callable[[], bool]]
"""The mark of a browser, and a function that returns True while its session is connected, called from any thread."""

Admit = Callable[[Job[Any], Sequence[Job[Any]]], str]
"""Returns why the job is refused, in a sentence, given the unfinished jobs; empty if it may run."""

GRACE = 60.0
"""Seconds that a session may be disconnected before its jobs are cancelled. A page that is reloaded in this time keeps
its session."""
LOOKS = 12  # number of checks of the sessions per grace period

_log = logging.getLogger(__name__)


class Worker:
    """Owns the host of the models and the thread that uses it. One worker serves all sessions of a server."""

    def __init__(
        self,
        models: Models[Any] | ModelProcess,
        idle: float = IDLE,
        visitor: Callable[[], Visitor] | None = None,
        admit: Admit | None = None,
        grace: float = GRACE,
    ) -> None:
        """Create an idle worker, which drops the models after `idle` seconds without a job. A `ModelProcess` holds them
        in another process.

        `visitor` is called in the session that submits a job. Without it, no job is cancelled. `admit` is called for
        each submitted job; a refused job fails with the message that `admit` returns.
        """
        self.models = models
        self._visitor, self._admit = visitor, admit
        self._idle, self._grace = idle, grace
        self._waiting: list[Job[Any]] = []
        self._running: Job[Any] | None = None
        self._news = threading.Condition()
        self._started = False
        self._named: WeakValueDictionary[Hashable, Job[Any]] = WeakValueDictionary()
        self._remembered: dict[Hashable, Job[Any]] = {}  # keeps these jobs after their end

    def submit(self, job: Job[Any], *names: Hashable) -> None:
        """Add a job of the current session to the queue and return at once. It is cancelled soon after the session has
        ended. The names replace those of older jobs."""
        if self._add(job, names):
            self.join(job)

    def begin(self, job: Job[Any], *names: Hashable) -> Job[Any]:
        """Add a job that continues without its session, and can be found by its names after its end, unless an
        unfinished job already has one of them. Return the job that runs."""
        with self._news:
            for running in filter(None, map(self.find, names)):
                if not running.progress.state.finished:
                    return running
            if self._add(job, names):
                self._remembered |= dict.fromkeys(names, job)
            return job

    def _add(self, job: Job[Any], names: Sequence[Hashable]) -> bool:
        """Return False if the job was refused."""
        with self._news:
            if self._admit is not None and (refused := self._admit(job, self.unfinished)):
                job.fail(refused)
                return False
            if self._visitor is not None:
                job.maker = self._visitor()[0]
            for name in names:
                self.name(job, name)
            self._queue(job)
            if not self._started:
                self._started = True
                for target in (self._serve, *(() if self._visitor is None else (self._watch,))):
                    threading.Thread(target=target, name="model-worker", daemon=True).start()
            self._news.notify()
            return True

    def _queue(self, job: Job[Any]) -> None:
        insort(self._waiting, job, key=lambda other: (other.rank, other.number))

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
            self.forget(name)  # keeps the newest last
            self._named[name] = job

    def join(self, job: Job[Any]) -> None:
        """Add the current session to those that wait for the job. The job continues while any of them is connected."""
        if self._visitor is not None:
            job.seen = time.monotonic()
            job.wanted.append(self._visitor()[1])

    @property
    def unfinished(self) -> list[Job[Any]]:
        """The running job and the waiting ones, in order."""
        with self._news:
            return [*filter(None, [self._running]), *self._waiting]

    @property
    def jobs(self) -> int:
        """Number of waiting and running jobs."""
        return len(self.unfinished)

    def ahead(self, job: Job[Any]) -> int:
        """Return the number of jobs with models ahead of this one; 0 if it is not waiting."""
        with self._news:
            if job not in self._waiting:
                return 0
            earlier = [*filter(None, [self._running]), *self._waiting[: self._waiting.index(job)]]
            return sum(other.choice is not None and not other.stopping for other in earlier)

    def _serve(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._waiting, self._idle)
                job = self._running = self._waiting.pop(0) if self._waiting else None
            try:  # without the lock, so that sessions need not wait
                if job is not None:
                    self.models.serve(job)
                else:
                    self.models.rest()
            except Exception:  # the device does not respond; the thread serves other jobs too
                _log.exception("The models cannot be used.")
            with self._news:
                self._running = None
                if job is not None and not job.progress.state.finished:  # long jobs finish one after the other
                    self._queue(job)
            del job  # finished jobs must be collectable

    def _watch(self) -> None:
        while True:
            time.sleep(self._grace / LOOKS)
            self.look()

    def look(self) -> None:
        """Check which sessions are connected, and cancel the jobs whose sessions were away for longer than the
        grace period."""
        now = time.monotonic()
        for job in self.unfinished:
            if any(wanted() for wanted in job.wanted):
                job.seen = now
            elif job.wanted and now - job.seen > self._grace:
                job.tell(abandoned=True)
                job.cancel()
