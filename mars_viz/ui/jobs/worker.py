"""One background thread that does every job in which models take part, one at a time, in the order of asking.

Knows threads and jobs; knows no models and no Streamlit, and not what a job does: each kind of job is a small class of
its own, `decode_job` the first. A job's progress is a frozen snapshot, replaced as a whole, so a page may read it any
time.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, ClassVar, Generic, TypeVar

from mars_viz.errors import MarsVizError
from mars_viz.ui.jobs.attendance import Attendance, Wanted
from mars_viz.ui.jobs.models import Interrupted, Models

FAULT = "It stopped because of a fault in the program; try again, and see the server's log if it comes back."

IDLE = 900.0
"""Seconds without a job after which the models are let go."""

_log = logging.getLogger(__name__)


class JobState(Enum):
    """How far a job is."""

    QUEUED = "queued"
    """Waiting for others' jobs."""
    LOADING = "loading"
    """The models are being loaded, once for all jobs that want the same."""
    DECODING = "decoding"
    """What was asked for is being made."""
    MAPPING = "mapping"
    """The text is complete, and what other dial values make of the prompt is being found out."""
    DONE = "done"
    """All that was asked for is there."""
    CANCELLED = "cancelled"
    """Stopped on request; what was made is kept."""
    FAILED = "failed"
    """Stopped by an error; `error` says which."""

    @property
    def finished(self) -> bool:
        """True if nothing more will happen."""
        return self in (JobState.DONE, JobState.CANCELLED, JobState.FAILED)

    @property
    def readable(self) -> bool:
        """True if the text will not grow any more."""
        return self.finished or self is JobState.MAPPING


@dataclass(frozen=True, slots=True)
class Progress:
    """What is known of a job at one moment; each kind of job adds its own."""

    state: JobState
    """How far it is."""
    error: str = ""
    """A sentence for the person who asked, where it failed."""
    abandoned: bool = False
    """True where it was stopped because nobody was there any more who had asked for it."""


P = TypeVar("P", bound=Progress)


class Job(Generic[P]):
    """One thing to do for one asker. A kind of job says in `work` what; `Worker.submit` takes it."""

    long: ClassVar[bool] = False
    """True if it may return from `work` unfinished, to be asked again once the short jobs that wait are done."""
    private: ClassVar[bool] = False
    """True if what it makes is of use to its asker's tab alone, so that it stops when that has been closed for a while.
    Others go on: what they make is for everyone, or is found again by a tab that is opened later."""

    def __init__(self, progress: P) -> None:
        """A job that waits; `progress` is its first snapshot."""
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._progress = progress

    def work(self, models: Models[Any]) -> None:
        """Do it, and end in a finished state; on the worker's thread, in the state LOADING.

        Ask `models` for a pair, `stopping` between any two steps whether to go on, and `tell` what is new. What it
        raises ends the job as FAILED: a MarsVizError in its own words.
        """
        raise NotImplementedError

    @property
    def progress(self) -> P:
        """The latest snapshot."""
        return self._progress

    @property
    def stopping(self) -> bool:
        """True once somebody has cancelled it."""
        return self._stop.is_set()

    def cancel(self) -> None:
        """Stop it: at once where it still waits, else after the step that is being made."""
        self._stop.set()
        with self._lock:
            if self._progress.state is JobState.QUEUED:
                self._progress = replace(self._progress, state=JobState.CANCELLED)

    def abandon(self) -> None:
        """Stop it as `cancel` does, since its asker has gone."""
        self.tell(abandoned=True)
        self.cancel()

    def tell(self, **news: object) -> None:
        """Replace fields of the snapshot."""
        with self._lock:
            self._progress = replace(self._progress, **news)  # type: ignore[arg-type]

    def run(self, models: Models[Any]) -> None:
        """Work, unless it was cancelled in the queue; nothing escapes, for the thread serves others too."""
        with self._lock:
            if self._progress.state is JobState.QUEUED:
                self._progress = replace(self._progress, state=JobState.LOADING)
        if self._progress.state.finished:
            return
        try:
            self.work(models)
        except Interrupted:
            self.tell(state=JobState.CANCELLED)
        except MarsVizError as error:
            self.tell(state=JobState.FAILED, error=str(error))
        except Exception:
            _log.exception("A job failed.")
            self.tell(state=JobState.FAILED, error=FAULT)


class UnloadJob(Job[Progress]):
    """Lets the models go, once the jobs before it are done; a sweep too, which holds its pair between its steps."""

    long: ClassVar[bool] = True

    def __init__(self) -> None:
        """Waits like any other."""
        super().__init__(Progress(JobState.QUEUED))

    def work(self, models: Models[Any]) -> None:
        """Drop them."""
        models.drop()
        self.tell(state=JobState.DONE)


class Worker:
    """Owns the models and the thread that uses them. One serves a whole server; it remembers no finished job."""

    def __init__(
        self,
        models: Models[Any],
        idle: float = IDLE,
        asker: Callable[[], Wanted] | None = None,
        attendance: Attendance | None = None,
    ) -> None:
        """A worker that waits for jobs, and lets the models go after `idle` seconds without one.

        `asker` is called by whoever submits a private job, and makes what says whether they are still there; without
        it nobody is thought to leave.
        """
        self.models = models
        self._asker, self._attendance = asker, attendance or Attendance()
        self._idle = idle
        self._waiting: deque[Job[Any]] = deque()
        self._running = False
        self._news = threading.Condition()
        self._thread: threading.Thread | None = None

    def submit(self, job: Job[Any]) -> None:
        """Put a job in the queue and return at once."""
        self.join(job)
        with self._news:
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
                if not self._news.wait_for(lambda: bool(self._waiting), self._idle):
                    self._rest()
                    continue
                job = self._waiting.popleft()
                self._running = True
            try:
                job.run(self.models)
                if not job.progress.state.finished:
                    self._put_back(job)
                self.models.look()
            except Exception:  # a device that cannot even be asked; the thread serves others too
                _log.exception("The device could not be looked at.")
            finally:
                del job  # a finished job belongs to its asker alone
                with self._news:
                    self._running = False

    def _rest(self) -> None:
        """Nobody has wanted the models for a while."""
        try:
            if self.models.status.choice is not None:
                self.models.drop()
        except Exception:  # the thread serves others too
            _log.exception("The models could not be let go.")

    def _put_back(self, job: Job[Any]) -> None:
        """A long job that has taken a step: short ones go first, other long ones wait until it has ended."""
        with self._news:
            short = [other for other in self._waiting if not other.long]
            self._waiting = deque([*short, job, *(other for other in self._waiting if other.long)])
