"""Base classes of jobs and their progress snapshots, and jobs that run a function on a loaded pair without a prompt.

A job may run in another process: it is pickled and sent there. Each `tell` there updates the snapshot here, and
`cancel` here reaches the other process.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import Any, ClassVar, Generic, TypeVar

from mars_viz.backend_choice import BUILT_IN, BackendChoice
from mars_viz.costs import Costs
from mars_viz.errors import DeviceLost, MarsVizError
from mars_viz.ui.jobs.models import Interrupted, Models

FAULT = "It stopped because of a fault in the program; try again, and see the server's log if it comes back."

LOOK_EVERY = 0.25  # minimum seconds between two updates of a snapshot, or two writes to disk

_log = logging.getLogger(__name__)


class JobState(Enum):
    """State of a job."""

    QUEUED = "queued"
    LOADING = "loading"
    DECODING = "decoding"  # decoding, or doing the job's own work
    MAPPING = "mapping"  # the text is complete; texts at other dial values are being decoded
    DONE = "done"
    CANCELLED = "cancelled"  # stopped on request; partial results are kept
    FAILED = "failed"  # stopped by an error, which `error` describes

    @property
    def finished(self) -> bool:
        """True in a final state."""
        return self in (JobState.DONE, JobState.CANCELLED, JobState.FAILED)

    @property
    def readable(self) -> bool:
        """True once the text is complete."""
        return self.finished or self is JobState.MAPPING


class Rank(IntEnum):
    """Priority of a waiting job; jobs of equal rank run in order of submission."""

    SHORT = 0  # a user waits for the result
    MAP = 1  # the map of a complete run; takes seconds or minutes
    LONG = 2  # may take hours


@dataclass(frozen=True, slots=True)
class Progress:
    """Snapshot of a job; each class of jobs adds its own fields."""

    state: JobState
    error: str = ""  # error message for the user, if the job failed
    abandoned: bool = False  # True if the job was stopped because its browser session had ended


P = TypeVar("P", bound=Progress)


class Job(ABC, Generic[P]):
    """One unit of work that uses models, run by a `Worker`.

    Subclasses implement `work`. Must be picklable: jobs run in the model process.
    """

    private: ClassVar[bool] = False
    """True if only the session that submitted the job uses the result: the job is then cancelled soon after that
    session ends. Other jobs continue, because any tab can find them."""
    remembered: ClassVar[bool] = False  # True if tabs can still find the job by name after it has ended

    def __init__(self, progress: P) -> None:
        self._progress = progress
        self.number = 0  # order of submission to the worker; 0 before that
        self._steps: Iterator[None] | None = None  # the rest of `work`, between two steps
        self._begin()

    def _begin(self) -> None:
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.on_news: Callable[[Mapping[str, object]], None] = _ignore  # called in the job's process
        self.on_cancel: Callable[[], None] = _ignore  # passes `cancel` on to the process that runs the job

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the fields that belong to this process."""
        local = ("_stop", "_lock", "on_news", "on_cancel")
        return {name: value for name, value in vars(self).items() if name not in local}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)
        self._begin()

    new_tokens: int = 0  # maximum number of tokens per text that the user requested; 0 if there is no such setting

    @property
    def rank(self) -> Rank:
        """Priority in the queue."""
        return Rank.SHORT

    @abstractmethod
    def work(self, models: Models[Any]) -> Iterator[None] | None:
        """Do the work, starting in the state LOADING. Unless it sets a final state, it ends as CANCELLED if it was
        stopped, otherwise as DONE.

        Get a pair from `models`, check `stopping` between steps and report progress with `tell`. An exception ends the
        job as FAILED, with the message of a MarsVizError. In a generator, jobs of higher priority run after each yield;
        a job that yields gets its pair with itself as `holder`.
        """

    @property
    def progress(self) -> P:
        """The latest snapshot."""
        return self._progress

    @property
    def stopping(self) -> bool:
        """True after `cancel`."""
        return self._stop.is_set()

    def cancel(self) -> None:
        """Stop the job: at once if it is queued, otherwise after the current step."""
        self._stop.set()
        with self._lock:
            if self._progress.state is JobState.QUEUED:
                self._progress = replace(self._progress, state=JobState.CANCELLED)
        self.on_cancel()

    def abandon(self) -> None:
        """Cancel the job because its browser session has ended."""
        self.tell(abandoned=True)
        self.cancel()

    def tell(self, **news: object) -> None:
        """Update fields of the snapshot."""
        with self._lock:
            self._progress = self.after(news)
        self.on_news(news)

    def after(self, news: Mapping[str, Any]) -> P:
        """Return the snapshot with `news` applied. Subclasses override it to append partial updates to growing
        fields."""
        return replace(self._progress, **news)

    def fail(self, error: str) -> None:
        """End the job as FAILED with this message."""
        self.tell(state=JobState.FAILED, error=error)

    def begin(self) -> bool:
        """Leave the queue; return False if the job was cancelled there."""
        with self._lock:
            if self._progress.state is JobState.QUEUED:
                self._progress = replace(self._progress, state=JobState.LOADING)
        if self._progress.state.finished:
            self.let_go()
        return not self._progress.state.finished

    def run(self, models: Models[Any]) -> None:
        """Do the work, unless the job was cancelled in the queue.

        Exceptions end the job and are not raised, except DeviceLost: the process cannot use its device again.
        """
        if not self.begin():
            return
        try:
            if self._steps is None:
                self._steps = iter(self.work(models) or ())
            is_cut_short = self.stopping and self.rank is Rank.LONG  # which saves its results in each step
            if (is_cut_short or next(self._steps, True)) and not self._progress.state.finished:
                self.tell(state=JobState.CANCELLED if self.stopping else JobState.DONE)
        except Interrupted:
            self.tell(state=JobState.CANCELLED)
        except MarsVizError as error:
            self.fail(str(error))
            if isinstance(error, DeviceLost):
                raise
        except Exception:
            _log.exception("A job failed.")
            self.fail(FAULT)
        finally:
            if self._progress.state.finished:
                self._steps = None  # dropping the generator drops the objects that it holds
                models.given_back(self)
                self.let_go()

    def let_go(self) -> None:
        """Drop references that only `work` needs."""
        self.on_cancel = _ignore


def _ignore(*news: object) -> None:
    """No-op callback."""


class Throttle:
    """Limits how often something is done between rounds, and to a tenth of the time."""

    def __init__(self) -> None:
        self._next_time = self._began = 0.0

    @property
    def due(self) -> bool:
        """True if enough time has passed."""
        return time.monotonic() >= self._next_time

    def __enter__(self) -> None:
        self._began = time.monotonic()

    def __exit__(self, *problem: object) -> None:
        now = time.monotonic()
        self._next_time = now + max(LOOK_EVERY, 10 * (now - self._began))


TaskStep = tuple[float, Any]  # finished share of a background task, from 0 to 1, and its latest result


@dataclass(frozen=True, slots=True)
class Report(Progress):
    """Snapshot of a background task's progress."""

    share: float = 0.0  # finished share of the work, from 0 to 1
    result: Any = None  # latest result; None before the first


class BackgroundTask(Job[Report]):
    """Job that runs a function step by step. A cancelled job keeps its latest result."""

    private: ClassVar[bool] = True

    def __init__(self, find: Callable[[Any], Iterator[TaskStep]], choice: BackendChoice = BUILT_IN) -> None:
        """`find` takes the loaded pair and yields steps; the last step has the final result."""
        super().__init__(Report(JobState.QUEUED))
        self.choice = choice
        self._find = find

    def work(self, models: Models[Any]) -> None:
        """Run the function until it ends or the job is cancelled."""
        pair = models.pair(self.choice, lambda: self.stopping)
        self.tell(state=JobState.DECODING)
        for share, result in () if self.stopping else self._find(pair):
            self.tell(share=share, result=result)
            if self.stopping:
                break


class CostsJob(BackgroundTask):
    """Job that measures the cost of the pair's passes. All sessions share the result."""

    private: ClassVar[bool] = False

    def __init__(
        self,
        measure: Callable[[Any], Iterator[TaskStep]],
        choice: BackendChoice = BUILT_IN,
        keep: Callable[[Costs], object] | None = None,
    ) -> None:
        """`keep` stores the costs, and may raise BadInput."""
        super().__init__(measure, choice)
        self._keep = keep

    def work(self, models: Models[Any]) -> None:
        """Measure the costs, store them with the models, and pass them to `keep`."""
        super().work(models)
        if not self.stopping:
            models.measured(self.progress.result)
            if self._keep is not None:
                self._keep(self.progress.result)
