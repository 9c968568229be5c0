"""Runs jobs and their models in a separate process.

Pages don't compete with a decode for the interpreter, and the server survives if the process is killed. The process
runs this module as its main program, until its standard input is closed. It imports no Streamlit, and no torch until a
pair is loaded. `multiprocessing` is not used: its children import the parent's main module, which is the page under
Streamlit.

Requests are ("ready",) to import the model libraries, ("do", number, job) to run a job, or a step of it if `job` is
None, and ("stop", number) to cancel a job at once. Answers are ("news", changed fields of the job's snapshot),
("models", status, recent models) after each change, and ("over", whether the process ends) at the end of a step.
"""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import IO, Any
from weakref import WeakKeyDictionary

from mars_viz.backend_choice import BackendChoice
from mars_viz.records import Round, Speculation
from mars_viz.run import Run
from mars_viz.terminal import shown_logs, shown_streams
from mars_viz.ui.jobs.models import FAULT, Job, Models, Status

PROGRAM = "mars_viz.ui.jobs.model_process"
GIVEN_UP = (
    "The process that runs the models could not ask their device any more, and has ended. Try again; if the "
    "fault comes back, check the device and its driver, or decode on the CPU."
)
PATIENCE = 5.0  # seconds that the process has to end by itself before it is killed

_log = logging.getLogger(__name__)


class Wire:
    """One end of a pair of pipes that carry pickles. Any thread may send; one thread receives.

    Only for trusted processes: unpickling runs arbitrary code.
    """

    def __init__(self, incoming: IO[bytes], outgoing: IO[bytes]) -> None:
        """Use two streams, which must be binary and buffered."""
        self._incoming, self._outgoing = incoming, outgoing
        self._lock = threading.Lock()

    def put(self, message: object) -> None:
        """Send a message. Raises OSError if the other end is closed. If pickling fails, nothing has been sent."""
        written = BytesIO()
        _Pickler(written, pickle.HIGHEST_PROTOCOL).dump(message)
        with self._lock:
            self._outgoing.write(written.getbuffer())
            self._outgoing.flush()

    def take(self) -> Any:
        """Wait for the next message. Raises EOFError if the other end is closed."""
        try:
            return pickle.load(self._incoming)
        except pickle.UnpicklingError as error:  # cut off in the middle
            raise EOFError("The other end has closed the pipe.") from error


class _Pickler(pickle.Pickler):
    """Pickles records by their fields, without cached properties or shared columns."""

    def reducer_override(self, thing: object) -> Any:
        kind = next((kind for kind in (Run, Round, Speculation) if isinstance(thing, kind)), None)
        return NotImplemented if kind is None else (kind, tuple(getattr(thing, field.name) for field in fields(kind)))


class ModelProcess:
    """Runs jobs in another process, which is started at the first job and restarted whenever it has ended."""

    def __init__(self, make: Callable[[], Models[Any]]) -> None:
        """`make` creates the models in the other process; it must be picklable, such as a module's function."""
        self._make = make
        self._numbers = itertools.count()
        self._process: subprocess.Popen[bytes] | None = None
        self._wire: Wire | None = None
        self._numbers_by_job: WeakKeyDictionary[Job[Any], int] = WeakKeyDictionary()
        self._status = Status()
        self.recent: tuple[BackendChoice, ...] = ()  # recently loaded models, newest first

    @property
    def status(self) -> Status:
        """The latest snapshot of loaded and loading models."""
        return self._status

    def get_ready(self) -> None:
        """Start the process, if it is not running, and have it import its libraries. Raises OSError if it does not
        start."""
        if self._running() is None:
            self._start().put(("ready",))

    def serve(self, job: Job[Any]) -> None:
        """Run a job, or a step of a long one, and apply its updates to `job` here."""
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
        """End the process, which frees the memory of its models."""
        process, self._process = self._process, None
        self._numbers_by_job.clear()
        self._status = Status()
        if process is not None:
            _end(process)

    def _serve(self, job: Job[Any]) -> bool:
        """Return False if the process ends afterwards."""
        wire = self._running() or self._start()
        number = self._numbers_by_job.get(job)
        if number is None:
            number = self._numbers_by_job[job] = next(self._numbers)
            wire.put(("do", number, job))
            job.on_cancel = partial(_stop, wire, number)
            if job.stopping:  # cancelled before the process knew the job
                _stop(wire, number)
        else:
            wire.put(("do", number, None))
        while True:
            match wire.take():
                case "news", news:
                    job.tell(**news)
                case "models", status, recent:
                    self._status, self.recent = status, recent
                case "over", last:
                    return not last

    def _running(self) -> Wire | None:
        return None if self._process is None or self._process.poll() is not None else self._wire

    def _start(self) -> Wire:
        self.rest()
        package = Path(__file__).resolve().parents[3]
        paths = filter(None, [str(package), *sys.path, os.environ.get("PYTHONPATH")])
        self._process = subprocess.Popen(
            [sys.executable, "-m", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "PYTHONSAFEPATH": "1"},
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._wire = Wire(self._process.stdout, self._process.stdin)
        self._wire.put(self._make)
        return self._wire

    def _ended(self, error: EOFError | OSError) -> str:
        """Clean up after the process has ended unexpectedly; return a sentence with the reason and the remedy."""
        if self._process is None:
            return f"The process that runs the models could not be started ({error}). Free some memory, and try again."
        code = _end(self._process)
        self.rest()
        how = f"stopped by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return (
            f"The process that runs the models has ended ({how}), as it does when memory runs out. Try again; if it "
            "ends again, ask for fewer tokens or smaller models, and see the server's log."
        )


def _end(process: subprocess.Popen[bytes]) -> int:
    """Close the pipes, which ends the process, and return its exit code."""
    for stream in (process.stdin, process.stdout):
        assert stream is not None
        with suppress(OSError):  # flushing to a process that has ended
            stream.close()
    try:
        return process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _stop(wire: Wire, number: int) -> None:
    with suppress(OSError, ValueError):  # the process and the job have ended
        wire.put(("stop", number))


MODEST = 5  # niceness of the model process, so that pages stay responsive
EXPENDABLE = 500  # linux's oom_score_adj of this process: it is killed before the server when memory runs out


def main() -> None:
    """Serve the parent process until it closes the pipe."""
    shown_logs()
    with shown_streams():
        _serve(_wire())


def _serve(wire: Wire) -> None:
    models: Models[Any] = wire.take()()
    models.on_status = lambda status, recent: wire.put(("models", status, recent))
    requests: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    jobs: dict[int, Job[Any]] = {}
    threading.Thread(target=_listen, args=(wire, requests, jobs), daemon=True).start()
    while True:
        number = requests.get()
        if number is None:
            models.get_ready()
            continue
        job = jobs[number]
        job.on_news = lambda news: wire.put(("news", dict(news)))
        last = False
        try:
            models.serve(job)
        except Exception:  # the device does not respond; a new process may be able to use it
            sys.excepthook(*sys.exc_info())
            last = True
        if job.progress.state.finished:
            del jobs[number]
        del job
        wire.put(("over", last))
        if last:
            os._exit(1)  # skip cleanup on the device


def _wire() -> Wire:
    """Return a wire over the standard streams. Printed output goes to standard error instead."""
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the parent, which ends this process
    with suppress(AttributeError, OSError):  # no such system call
        os.nice(MODEST)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(EXPENDABLE), "ascii")
    return Wire(incoming, outgoing)


def _listen(wire: Wire, requests: queue.SimpleQueue[int | None], jobs: dict[int, Job[Any]]) -> None:
    try:
        while True:
            _handle(wire.take(), requests, jobs)
    except EOFError:
        os._exit(0)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)


def _handle(message: tuple[Any, ...], requests: queue.SimpleQueue[int | None], jobs: dict[int, Job[Any]]) -> None:
    """Handle one message. A separate function, so that no local variable keeps the job alive."""
    match message:
        case ("ready",):
            requests.put(None)
        case "do", number, job:
            if job is not None:
                jobs[number] = job
            requests.put(number)
        case "stop", number:
            job_to_stop = jobs.get(number)  # a single lookup, because the job may end at any time
            if job_to_stop is not None:
                job_to_stop.cancel()


if __name__ == "__main__":
    main()
