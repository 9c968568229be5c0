"""What a job is: one thing to do with models for one asker, and what is known of it meanwhile.

A job may be done in another process than the one where it was asked for: it travels there as it is, what it `tell`s
there is told here, and `cancel` here reaches it there. Knows models as something to ask for a
pair; knows no queue and no Streamlit.
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

from mars_viz.errors import DeviceLost, MarsVizError
from mars_viz.ui.jobs.models import Interrupted, Models

FAULT = "It stopped because of a fault in the program; try again, and see the server's log if it comes back."

LOOK_EVERY = 0.25
"""Seconds between two looks at what is under way, or two of its writings, at the least."""

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


class Rank(IntEnum):
    """Who goes first among the jobs that wait; among equals, who asked first."""

    SHORT = 0
    """Somebody waits for it."""
    MAP = 1
    """The map of a run that its asker reads already; it takes seconds, or minutes."""
    LONG = 2
    """May take hours."""


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


class Job(ABC, Generic[P]):
    """One thing to do for one asker. A kind of job says in `work` what; `Worker.submit` takes it.

    What it holds besides its progress must be such that it can be pickled: where it is done may be another process.
    """

    private: ClassVar[bool] = False
    """True if what it makes is of use to its asker's tab alone, so that it stops when that has been closed for a while.
    Others go on: what they make is for everyone, or is found again by a tab that is opened later."""
    remembered: ClassVar[bool] = False
    """True if it is found by its names when it is over, too: a tab that is opened later is told what became of it."""

    def __init__(self, progress: P) -> None:
        """A job that waits; `progress` is its first snapshot."""
        self._progress = progress
        self.number = 0
        """Counts those who asked the same worker; 0 until it is submitted."""
        self._begin()

    def _begin(self) -> None:
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._told: Callable[[Mapping[str, object]], None] = _to_nobody
        self._cancelled: Callable[[], None] = _to_nobody

    def __getstate__(self) -> dict[str, Any]:
        """What travels: everything but what ties it to this process."""
        mine = ("_stop", "_lock", "_told", "_cancelled")
        return {name: value for name, value in vars(self).items() if name not in mine}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)
        self._begin()

    @property
    def rank(self) -> Rank:
        """Its place among those that wait. Any but SHORT may return from `work` unfinished, to be asked again once
        those that go before it are done."""
        return Rank.SHORT

    @property
    def new_tokens(self) -> int:
        """The most tokens that it decodes for each text that it makes, as its asker set that; 0 where it decodes none
        or a number of its own."""
        return 0

    @abstractmethod
    def work(self, models: Models[Any]) -> None:
        """Do it, and end in a finished state; where the models are, in the state LOADING.

        Ask `models` for a pair, `stopping` between any two steps whether to go on, and `tell` what is new. What it
        raises ends the job as FAILED: a MarsVizError in its own words.
        """

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
        self._cancelled()

    def abandon(self) -> None:
        """Stop it as `cancel` does, since its asker has gone."""
        self.tell(abandoned=True)
        self.cancel()

    def tell(self, **news: object) -> None:
        """Replace fields of the snapshot."""
        with self._lock:
            self._progress = self.after(news)
        self._told(news)

    def after(self, news: Mapping[str, Any]) -> P:
        """The snapshot with these news. What is told goes from one process to another: a kind of job with something
        that grows says here how what is new of it is put to what is known."""
        return replace(self._progress, **news)

    def fail(self, error: str) -> None:
        """End it as FAILED, for this reason; a kind of job that has something to show all the same says so here."""
        self.tell(state=JobState.FAILED, error=error)

    def begin(self) -> bool:
        """Leave the queue. False where it was cancelled there."""
        with self._lock:
            if self._progress.state is JobState.QUEUED:
                self._progress = replace(self._progress, state=JobState.LOADING)
        if self._progress.state.finished:
            self.let_go()
        return not self._progress.state.finished

    def run(self, models: Models[Any]) -> None:
        """Work, unless it was cancelled in the queue. Nothing escapes, for the thread serves others too, but a lost
        device: whoever used it can use nothing any more."""
        if not self.begin():
            return
        try:
            self.work(models)
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
                self.let_go()

    def report_to(self, told: Callable[[Mapping[str, object]], None]) -> None:
        """Where it is done: let the one who asked hear all that it tells."""
        self._told = told

    def entrust(self, cancelled: Callable[[], None]) -> None:
        """Where it was asked for: somebody else does it, and must hear of it when it is `cancelled`."""
        self._cancelled = cancelled

    def let_go(self) -> None:
        """It is over: drop what only `work` needs. A kind of job with much of that says so here."""
        self._cancelled = _to_nobody


def _to_nobody(*news: object) -> None:
    """Nobody is to hear of it."""


class LongJob(Job[P]):
    """A kind of job says in `steps` what it does. It goes on when the tab that asked for it is closed: what takes hours
    is meant to survive that, and whoever opens the page later finds it and can stop it."""

    @property
    def rank(self) -> Rank:
        """Behind all others."""
        return Rank.LONG

    def __init__(self, progress: P) -> None:
        """A job that waits; `progress` is its first snapshot."""
        super().__init__(progress)
        self._left: Iterator[None] | None = None

    @abstractmethod
    def steps(self, models: Models[Any]) -> Iterator[None]:
        """Do it; each time it yields, others may come in between, so it asks for its pair as its `holder`. Raises what
        is wrong."""

    def work(self, models: Models[Any]) -> None:
        """Take a step, or end."""
        if self._left is None:
            self._left = self.steps(models)
        ended = None
        try:
            if self.stopping:
                ended = JobState.CANCELLED
            elif next(self._left, True):
                ended = JobState.DONE
        except BaseException:
            self._let_go(models)
            raise
        if ended is not None:
            self._let_go(models)
            self.tell(state=ended)

    def _let_go(self, models: Models[Any]) -> None:
        left, self._left = self._left, None  # and with it all that its steps held
        if left is not None and hasattr(left, "close"):
            left.close()
        models.given_back(self)


class Throttle:
    """Something done between rounds: not too often, and never for more than a tenth of the time."""

    def __init__(self) -> None:
        """Due at once."""
        self._after = self._began = 0.0

    @property
    def due(self) -> bool:
        """True if it is time again."""
        return time.monotonic() >= self._after

    def __enter__(self) -> None:
        self._began = time.monotonic()

    def __exit__(self, *problem: object) -> None:
        now = time.monotonic()
        self._after = now + max(LOOK_EVERY, 10 * (now - self._began))
