"""Models in a process of their own, and jobs done there: pages never wait for a decode's turn at the interpreter, and
what kills the models' process leaves the server as it was.

Knows jobs and what is said between the two processes; knows no models and no Streamlit. The other end is
`model_process_main`. Not `multiprocessing`'s own processes: theirs begin with the parent's main module, which under
Streamlit is the page.
"""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields
from io import BytesIO
from pathlib import Path
from typing import IO, Any
from weakref import WeakKeyDictionary

from mars_viz.backend_choice import BackendChoice
from mars_viz.records import Round, Speculation
from mars_viz.run import Run
from mars_viz.ui.jobs.job import FAULT, Job
from mars_viz.ui.jobs.models import Models, Status

PROGRAM = "mars_viz.ui.jobs.model_process_main"
"""The module that the process runs."""
GIVEN_UP = (
    "The process that runs the models could not ask their device any more, and has ended. Try again: it is started "
    "anew. If it comes back, look after the device and its driver, or decode on the CPU."
)
PATIENCE = 5.0
"""Seconds that a process gets to end by itself."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GetReady:
    """Asked: do what any job needs first. Nothing is answered."""


@dataclass(frozen=True, slots=True)
class Do:
    """Asked: do this job, or a step of a long one."""

    number: int
    """Tells it from the others."""
    job: Job[Any]
    """As it was asked for."""


@dataclass(frozen=True, slots=True)
class GoOn:
    """Asked: take another step of a long job."""

    number: int
    """Which."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Asked: cancel a job, at once."""

    number: int
    """Which; it may be over."""


@dataclass(frozen=True, slots=True)
class Told:
    """Answered: what the job tells."""

    news: dict[str, object]
    """Fields of its snapshot."""


@dataclass(frozen=True, slots=True)
class Holds:
    """Answered: what is held of models and what is being loaded, whenever it has changed."""

    status: Status
    """The latest snapshot."""
    recent: tuple[BackendChoice, ...]
    """What was loaded, the latest first."""


@dataclass(frozen=True, slots=True)
class Over:
    """Answered: that job, or that step, is done."""

    last: bool = False
    """True where this process can do no more, since its device is lost to it."""


class Wire:
    """One end of a pair of pipes, which carry pickles one after the other. Any thread may put; one takes.

    Only for processes that trust one another, as a parent and its child do: who can write to it can run anything.
    """

    def __init__(self, incoming: IO[bytes], outgoing: IO[bytes]) -> None:
        """Binary, buffered streams."""
        self._incoming, self._outgoing = incoming, outgoing
        self._lock = threading.Lock()

    def put(self, message: object) -> None:
        """Send. Raises OSError where nobody listens any more, and what pickling raises, having sent nothing."""
        written = BytesIO()
        _Pickler(written, pickle.HIGHEST_PROTOCOL).dump(message)
        with self._lock:
            self._outgoing.write(written.getbuffer())
            self._outgoing.flush()

    def take(self) -> Any:
        """Wait for the next message. Raises EOFError where none will come."""
        try:
            return pickle.load(self._incoming)
        except pickle.UnpicklingError as error:  # cut off in the middle
            raise EOFError("The other end has closed the pipe.") from error


class _Pickler(pickle.Pickler):
    """Sends records by their fields alone: not what a run has worked out meanwhile, nor the columns that a record of a
    file is cut from."""

    def reducer_override(self, thing: object) -> Any:
        kind = next((kind for kind in (Run, Round, Speculation) if isinstance(thing, kind)), None)
        return NotImplemented if kind is None else (kind, tuple(getattr(thing, field.name) for field in fields(kind)))


class ModelProcess:
    """Does jobs in another process, which is started with the first and again whenever it has ended."""

    def __init__(self, make: Callable[[], Models[Any]]) -> None:
        """`make` makes the models there; it must be such that it can be pickled, a function of a module."""
        self._make = make
        self._numbers = itertools.count()
        self._process: _Process | None = None
        self._asked: WeakKeyDictionary[Job[Any], int] = WeakKeyDictionary()
        self._status = Status()
        self.recent: tuple[BackendChoice, ...] = ()
        """What was loaded, the latest first; a few."""

    @property
    def status(self) -> Status:
        """The latest snapshot of what is held there and what is being loaded."""
        return self._status

    def get_ready(self) -> None:
        """Somebody is about to ask for a job: start the process, where there is none, and have it import its libraries.
        Raises OSError where it does not start."""
        if self._wire() is None:
            self._start().put(GetReady())

    def serve(self, job: Job[Any]) -> None:
        """Have the job done, or a step of a long one; what it tells there is told here."""
        if not job.begin():
            return
        trouble = ""
        try:
            if not self._serve(job):
                self.rest()
                trouble = GIVEN_UP
        except (EOFError, OSError) as error:
            trouble = self._ended(error)
        except Exception:
            _log.exception("A job could not be handed over.")
            self.rest()
            trouble = FAULT
        if trouble and not job.progress.state.finished:
            job.fail(trouble)
        if job.progress.state.finished:
            job.let_go()

    def rest(self) -> None:
        """Let the process go, and with it all memory that models take."""
        process, self._process = self._process, None
        self._asked.clear()
        self._status = Status()
        if process is not None:
            process.end()

    def _serve(self, job: Job[Any]) -> bool:
        """False where the process has ended after it."""
        wire = self._wire() or self._start()
        number = self._asked.get(job)
        if number is None:
            number = self._asked[job] = next(self._numbers)
            wire.put(Do(number, job))
            job.entrust(lambda: _stop(wire, number))
            if job.stopping:  # before anybody there knew of it
                _stop(wire, number)
        else:
            wire.put(GoOn(number))
        while True:
            match wire.take():
                case Told(news):
                    job.tell(**news)
                case Holds(status, recent):
                    self._status, self.recent = status, recent
                case Over(last):
                    return not last

    def _wire(self) -> Wire | None:
        """To the process; None where there is none, or it ended while nobody needed it."""
        return None if self._process is None or self._process.is_gone else self._process.wire

    def _start(self) -> Wire:
        """To a new process, in place of one that has ended."""
        self.rest()
        self._process = _Process()
        self._process.wire.put(self._make)
        return self._process.wire

    def _ended(self, error: EOFError | OSError) -> str:
        """The process has ended in the middle of a job, or was never there: why, in a sentence with the remedy."""
        if self._process is None:
            return f"The process that runs the models could not be started ({error}). Free some memory, and try again."
        code = self._process.end()
        self.rest()
        how = f"stopped by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return (
            f"The process that runs the models has ended ({how}), as it does when memory runs out. Try again: it is "
            "started anew. If it comes back, ask for fewer tokens or smaller models, and see the server's log."
        )


class _Process:
    """One process and the wire to it."""

    def __init__(self) -> None:
        package = Path(__file__).resolve().parents[3]
        paths = filter(None, [str(package), *sys.path, os.environ.get("PYTHONPATH")])
        self._running = subprocess.Popen(
            [sys.executable, "-m", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "PYTHONSAFEPATH": "1"},
        )
        assert self._running.stdin is not None and self._running.stdout is not None
        self.wire = Wire(self._running.stdout, self._running.stdin)

    @property
    def is_gone(self) -> bool:
        """True where it has ended."""
        return self._running.poll() is not None

    def end(self) -> int:
        """Close the wire, which ends it, and say how it ended."""
        for stream in (self._running.stdin, self._running.stdout):
            assert stream is not None
            with suppress(OSError):  # what was on its way to a process that is gone
                stream.close()
        try:
            return self._running.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._running.kill()
            return self._running.wait()


def _stop(wire: Wire, number: int) -> None:
    """Pass a cancel on."""
    with suppress(OSError, ValueError):  # where it has ended, and the job with it
        wire.put(Stop(number))
