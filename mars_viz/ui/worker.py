"""One background thread that decodes for everybody, one prompt at a time, and tells each asker only of its own.

Knows threads, settings and recordings as something to iterate; knows no models and no Streamlit: how to load a pair and
how to record are arguments. A job's progress is a frozen snapshot, replaced as a whole, so a page may read it any time.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Generic, Protocol, TypeVar

from mars_viz.dialmap import DialMap
from mars_viz.dialmap import Progress as Mapped
from mars_viz.errors import MarsVizError
from mars_viz.mapped import mapped
from mars_viz.records import Round
from mars_viz.run import Run, Settings
from mars_viz.ui.errands import Errand

Pair = TypeVar("Pair")
FAULT = "Decoding stopped because of a fault in the program; try again, and see the server's log if it comes back."
TEXT_EVERY = 0.25
"""Seconds between two renderings of the text so far, at the least."""

_log = logging.getLogger(__name__)


class JobState(Enum):
    """How far a job is."""

    QUEUED = "queued"
    """Waiting for others' jobs."""
    LOADING = "loading"
    """The models are being loaded, once for all jobs."""
    DECODING = "decoding"
    """Rounds are being made."""
    MAPPING = "mapping"
    """The text is complete, and what other dial values make of the prompt is being found out."""
    DONE = "done"
    """All that was asked for is there."""
    CANCELLED = "cancelled"
    """Stopped on request; what was decoded is kept."""
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
    """What is known of a job at one moment."""

    state: JobState
    """How far it is."""
    tokens: int = 0
    """Emitted so far."""
    rounds: int = 0
    """Draft-verify cycles so far."""
    text: str = ""
    """The text so far; it may lag behind `tokens` by a moment."""
    error: str = ""
    """A sentence for the person who asked, where it failed."""
    run: Run | None = None
    """What was decoded, once the text is complete or was cut short; None if it came to nothing."""
    exact: float = 0.0
    """Share of the dial's range whose text is known."""

    @property
    def tau(self) -> float:
        """Tokens per round so far; NaN before the first."""
        return self.tokens / self.rounds if self.rounds else math.nan


class Recorder(Protocol):
    """A decode in progress, such as `mars_viz.recording.Recording`."""

    @property
    def token_ids(self) -> tuple[int, ...]:
        """What has been emitted so far."""
        ...

    def __iter__(self) -> Iterator[Round]:
        """Decode; each step makes one round."""
        ...

    def run(self) -> Run:
        """The rounds so far."""
        ...


class Mapper(Protocol):
    """A dial map in the making, such as `mars_viz.mapping.Mapping`."""

    def __iter__(self) -> Iterator[Mapped]:
        """Map; each step is a batched pass."""
        ...

    def map(self) -> DialMap:
        """The map so far."""
        ...


class Job:
    """One prompt to decode, for one asker."""

    def __init__(self, prompt: str, settings: Settings, title: str = "") -> None:
        """A job that waits; `Worker.submit` makes them."""
        self.prompt, self.settings, self.title = prompt, settings, title
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._progress = Progress(JobState.QUEUED)

    @property
    def progress(self) -> Progress:
        """The latest snapshot."""
        return self._progress

    @property
    def stopping(self) -> bool:
        """True once somebody has cancelled it."""
        return self._stop.is_set()

    def cancel(self) -> None:
        """Stop it: at once where it still waits, else after the round that is being made."""
        self._stop.set()
        with self._lock:
            if self._progress.state is JobState.QUEUED:
                self._progress = Progress(JobState.CANCELLED)

    def _begin(self) -> bool:
        """Leave the queue; False if it was cancelled there."""
        with self._lock:
            if self._progress.state is JobState.QUEUED:
                self._progress = Progress(JobState.LOADING)
            return not self._progress.state.finished

    def _tell(self, **news: object) -> None:
        with self._lock:
            self._progress = replace(self._progress, **news)  # type: ignore[arg-type]


class Worker(Generic[Pair]):
    """Owns the loaded pair and the thread that uses it. One serves a whole server; it remembers no finished job."""

    def __init__(
        self,
        load: Callable[[], Pair],
        record: Callable[[Pair, str, Settings, str], Recorder],
        chart: Callable[[Pair, Run], Mapper | None] = lambda pair, run: None,
    ) -> None:
        """`load` makes the pair, at the first job; `record` a recorder of (pair, prompt, settings, title); `chart` what
        maps the dial of a finished run, or None where there is nothing to map."""
        self._load, self._record, self._chart = load, record, chart
        self._pair: Pair | None = None
        self._waiting: deque[Job | Errand] = deque()
        self._running = False
        self._news = threading.Condition()
        self._thread: threading.Thread | None = None

    def submit(self, prompt: str, settings: Settings, title: str = "") -> Job:
        """Put a prompt in the queue and return at once."""
        job = Job(prompt, settings, title)
        self._queue(job)
        return job

    def send(self, errand: Errand) -> Errand:
        """Put an errand in the queue and return at once."""
        self._queue(errand)
        return errand

    def _queue(self, job: Job | Errand) -> None:
        with self._news:
            self._waiting.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="decode-worker", daemon=True)
                self._thread.start()
            self._news.notify()

    def ahead(self, job: Job | Errand) -> int:
        """How many other jobs come before this one; 0 if it is no longer waiting."""
        with self._news:
            if job not in self._waiting:
                return 0
            before = list(self._waiting)[: self._waiting.index(job)]
            return sum(not other.stopping for other in before) + self._running

    def _serve(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: bool(self._waiting))
                job = self._waiting.popleft()
                self._running = True
            try:
                if isinstance(job, Errand):
                    job.serve(self._loaded)
                else:
                    self._finish(job)
            finally:
                del job  # a finished job belongs to its asker alone
                with self._news:
                    self._running = False

    def _loaded(self) -> Pair:
        if self._pair is None:
            self._pair = self._load()
        return self._pair

    def _finish(self, job: Job) -> None:
        """Run a job to its end, whatever that is; nothing escapes, for the thread serves others too."""
        if not job._begin():
            return
        try:
            pair = self._loaded()
            run = _decode(job, self._record(pair, job.prompt, job.settings, job.title))
            if run is not None:
                _map(job, run, self._chart(pair, run))
        except MarsVizError as error:
            job._tell(state=JobState.FAILED, error=str(error))
        except Exception:
            _log.exception("A decode failed.")
            job._tell(state=JobState.FAILED, error=FAULT)


def _decode(job: Job, recorder: Recorder) -> Run | None:
    """Decode to the end of the text; None where it was stopped before."""
    job._tell(state=JobState.DECODING)
    rounds, render_after = 0, 0.0
    for rounds, _ in enumerate(() if job.stopping else recorder, start=1):
        job._tell(tokens=len(recorder.token_ids), rounds=rounds)
        if job.stopping:
            break
        began = time.monotonic()
        if began >= render_after:
            job._tell(text=recorder.run().text)
            render_after = time.monotonic() + max(TEXT_EVERY, 10 * (time.monotonic() - began))
    run = recorder.run() if rounds else None
    if job.stopping or run is None:
        job._tell(state=JobState.CANCELLED if job.stopping else JobState.DONE, run=run, text=run.text if run else "")
        return None
    job._tell(run=run, text=run.text)
    return run


def _map(job: Job, run: Run, mapper: Mapper | None) -> None:
    """Map the run's dial until it is done, stopped, or fails; the run itself is there in any case."""
    if mapper is None:
        job._tell(state=JobState.DONE)
        return
    job._tell(state=JobState.MAPPING)
    try:
        for progress in mapper:
            job._tell(exact=progress.exact)
            if job.stopping:
                break
        job._tell(state=JobState.DONE, run=mapped(run, mapper.map()))
    except MarsVizError as error:
        job._tell(state=JobState.DONE, error=str(error))
