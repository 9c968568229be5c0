"""One background thread that has every job done in which models take part, one at a time, in the order of asking.

Any tab finds a job by the names that it was submitted under. One whose asker has gone for good keeps others waiting for
nothing, and is stopped. A job's progress is a frozen snapshot, replaced as a whole, so a page may read it any time.
Knows threads, jobs and a clock; knows no models and no Streamlit, and not what a kind of job does.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol
from weakref import WeakKeyDictionary, WeakValueDictionary

from mars_viz.backend_choice import BackendChoice
from mars_viz.ui.jobs.job import Job, JobState, Progress, Rank
from mars_viz.ui.jobs.models import Models, Status

IDLE = 900.0
"""Seconds without a job after which the models are let go."""

Wanted = Callable[[], bool]
"""True while the one who asked is there; any thread may ask it."""

Admit = Callable[[Job[Any]], str]
"""Why whoever submits a job may not have it done now, in a sentence; empty where they may."""

GRACE = 60.0
"""Seconds for which an asker may be away: a laptop's lid, a tunnel, a reload that finds the same session again."""
LEFT = "This page was away for more than a minute, so its job was stopped"
"""For one who comes back after all."""
LOOKS = 12
"""How often within the grace it is asked who is there."""

_log = logging.getLogger(__name__)


class Host(Protocol):
    """Whoever has the models: `Models` themselves, or a `ModelProcess`, which has them in one of their own."""

    @property
    def status(self) -> Status:
        """The latest snapshot of what is held and what is being loaded."""
        ...

    @property
    def recent(self) -> tuple[BackendChoice, ...]:
        """What was loaded, the latest first; a few."""
        ...

    def get_ready(self) -> None:
        """A job is about to be asked for."""
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


class LoadJob(Job[Progress]):
    """Loads models before anybody decodes with them."""

    def __init__(self, choice: BackendChoice) -> None:
        """Waits like any other."""
        super().__init__(Progress(JobState.QUEUED))
        self.choice = choice

    def work(self, models: Models[Any]) -> None:
        """Load them."""
        models.pair(self.choice, lambda: self.stopping)
        self.tell(state=JobState.DONE)


class Worker:
    """Owns the models' host and the thread that asks it. One serves a whole server; of finished jobs it holds those
    alone that are to be `remembered`."""

    def __init__(
        self,
        models: Host,
        idle: float = IDLE,
        asker: Callable[[], Wanted] | None = None,
        attendance: OrphanReaper | None = None,
        admit: Admit | None = None,
    ) -> None:
        """A worker that waits for jobs, and lets the models go after `idle` seconds without one.

        `asker` is called by whoever submits a private job, and makes what says whether they are still there; without
        it nobody is thought to leave. `admit` is asked of each job where it is submitted: one that is not admitted has
        failed, for the reason that it gives.
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
        """Submit it, unless one of these names is that of a job that is under way already; the one that is."""
        with self._news:
            for known in filter(None, map(self.find, names)):
                if not known.progress.state.finished:
                    return known
            self._name(job, names)
        self.submit(job)
        return job

    def find(self, name: Hashable) -> Job[Any] | None:
        """The job of that name; None where there is none, or it is over and nobody holds it any more."""
        with self._news:
            return self._named.get(name)

    def names(self) -> dict[Hashable, Job[Any]]:
        """All that are found by a name, the newest last."""
        with self._news:
            return dict(self._named)

    def forget(self, name: Hashable) -> None:
        """What the job of that name made is deleted: no tab finds it any more."""
        with self._news:
            self._named.pop(name, None)
            self._remembered.pop(name, None)

    def name(self, job: Job[Any], name: Hashable) -> None:
        """From now on the job is found by this name, in place of another."""
        with self._news:
            self._name(job, (name,))

    def _name(self, job: Job[Any], names: Collection[Hashable]) -> None:
        for name in names:
            self._named.pop(name, None)  # so that the newest comes last
            self._named[name] = job
            if job.remembered:
                self._remembered[name] = job

    def submit(self, job: Job[Any], *names: Hashable) -> None:
        """Put a job in the queue and return at once; tabs find it by these names, in place of others."""
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
        """Somebody is about to submit a job: let the models get ready, unless others are at work with them."""
        with self._news:
            self._expected = True
            self._wake()

    def _wake(self) -> None:
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
                self._news.wait_for(lambda: self._waiting or self._expected, self._idle)
                job = self._waiting.popleft() if self._waiting else None
                self._running, expected, self._expected = job is not None, self._expected, False
            if job is None:  # not under the lock: nobody who asks meanwhile is to wait for that
                self._between(self.models.get_ready if expected else self.models.rest)
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

    def _between(self, act: Callable[[], None]) -> None:
        """What is done with the models while nobody waits for them."""
        try:
            act()
        except Exception:  # the thread serves others too
            _log.exception("The models could be neither let go nor made ready.")

    def _put_back(self, job: Job[Any]) -> None:
        """A job that has taken a step and is not done: by rank, and within one before all that were asked for later, so
        that what such jobs hold between their steps is held once."""
        with self._news:
            self._waiting = deque(sorted([*self._waiting, job], key=lambda other: (other.rank, other.number)))


@dataclass(slots=True)
class _Asker:
    wanted: tuple[Wanted, ...]
    seen: float


class OrphanReaper:
    """Stops jobs for their askers alone, `GRACE` after these were last seen. Forgets a job with its last holder."""

    def __init__(self, grace: float = GRACE) -> None:
        """Nobody waits for anything yet."""
        self._grace = grace
        self._askers: WeakKeyDictionary[Job[Any], _Asker] = WeakKeyDictionary()
        self._lock = threading.Condition()
        self._thread: threading.Thread | None = None

    def add(self, job: Job[Any], wanted: Wanted) -> None:
        """Mind this job, for as long as it is not finished. Where several wait for it, one who is there is enough."""
        with self._lock:
            before = self._askers.get(job)
            also = () if before is None else before.wanted
            self._askers[job] = _Asker((*also, wanted), time.monotonic())
            if self._thread is None:
                self._thread = threading.Thread(target=self._mind, name="job-attendance", daemon=True)
                self._thread.start()
            self._lock.notify()

    def look(self) -> None:
        """See who is there, and stop what nobody wants any more."""
        now = time.monotonic()
        with self._lock:
            askers = dict(self._askers)
        for job, asker in askers.items():
            if job.progress.state.finished:
                with self._lock:
                    self._askers.pop(job, None)
            elif any(map(_is_there, asker.wanted)):
                asker.seen = now
            elif now - asker.seen > self._grace:
                job.abandon()

    def _mind(self) -> None:
        while True:
            with self._lock:
                self._lock.wait_for(lambda: bool(self._askers))
            time.sleep(self._grace / LOOKS)
            self.look()


def _is_there(wanted: Wanted) -> bool:
    try:
        return wanted()
    except Exception:  # nobody is stopped without need, and the next look may succeed
        _log.exception("It could not be seen who is there.")
        return True
