"""Runs jobs and their models in a separate process.

Pages don't compete with a decode for the interpreter, and the server survives if the process is killed. The process
runs this module as its main program, until the connection is closed. It imports no Streamlit, and no torch until a pair
is loaded. It is not started by `multiprocessing`, whose children import the parent's main module, which is the page
under Streamlit.

Requests are ("begin", number, work, choice, rank) to hand over a job, ("run", number) to run it, or a turn of it, and
("stop", number) to cancel it at once. Answers are ("news", changed fields of
the job's progress), ("models", status) after each change, and ("over", whether the process ends) at the
end of a run or a turn.
"""

from __future__ import annotations

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
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from mars_viz.records import Round, Speculation
from mars_viz.run import Run
from mars_viz.terminal import shown_logs, shown_streams
from mars_viz.ui.jobs.models import FAULT, Job, JobState, Models, Progress, Status

PROGRAM = "mars_viz.ui.jobs.model_process"
GIVEN_UP = (
    "The process that runs the models could not ask their device any more, and has ended. Try again; if the "
    "fault comes back, check the device and its driver, or decode on the CPU."
)
PATIENCE = 5.0  # seconds that the process has to end by itself before it is killed

_log = logging.getLogger(__name__)


class _Pickler(pickle.Pickler):
    """Pickles records by their fields, without cached properties or shared columns."""

    def reducer_override(self, thing: object) -> Any:
        kind = next((kind for kind in (Run, Round, Speculation) if isinstance(thing, kind)), None)
        return NotImplemented if kind is None else (kind, tuple(getattr(thing, field.name) for field in fields(kind)))


def pickled(message: object) -> bytes:
    """Return the message in the form that is sent."""
    stream = BytesIO()
    _Pickler(stream, pickle.HIGHEST_PROTOCOL).dump(message)
    return stream.getvalue()


class ModelProcess:
    """Runs jobs in another process, which is started at the first job and restarted whenever it has ended."""

    def __init__(self, make: Callable[[], Models[Any]]) -> None:
        """`make` creates the models in the other process; it must be picklable, such as a module's function."""
        self._make = make
        self._process: subprocess.Popen[bytes] | None = None
        self._sending = threading.Lock()
        self._begun: set[int] = set()  # numbers of unfinished jobs that the process has
        self.status = Status()  # latest snapshot of loaded and loading models

    def serve(self, job: Job[Any]) -> None:
        """Run a job, or a turn of a long one, and apply its updates to `job` here."""
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
        if job.progress.state.finished:
            self._begun.discard(job.number)
        elif trouble:
            job.fail(trouble)

    def rest(self) -> None:
        """End the process, which frees the memory of its models."""
        process, self._process = self._process, None
        self._begun.clear()
        self.status = Status()
        if process is not None:
            self._end(process)

    def _serve(self, job: Job[Any]) -> bool:
        """Return False if the process ends afterwards."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        if job.number not in self._begun:
            self._put("begin", job.number, job.work, job.choice, job.rank)
            self._begun.add(job.number)
            job.on_cancel = partial(self._stop, job.number)
            if job.stopping:  # cancelled before the process knew the job
                self._stop(job.number)
        self._put("run", job.number)
        while True:
            match pickle.loads(self._connection.recv_bytes()):
                case "news", news:
                    job.tell(**news)
                case "models", status:
                    self.status = status
                case "over", last:
                    return not last

    def _put(self, *message: object) -> None:
        """Send a message. Raises OSError if the process has ended. If pickling fails, nothing has been sent."""
        data = pickled(message)
        with self._sending:
            self._connection.send_bytes(data)

    def _stop(self, number: int) -> None:
        with suppress(OSError):  # the process and the job have ended
            self._put("stop", number)

    def _start(self) -> None:
        self.rest()
        package = Path(__file__).resolve().parents[3]
        paths = filter(None, [str(package), *sys.path, os.environ.get("PYTHONPATH")])
        self._connection, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", PROGRAM, f"{theirs.fileno()}"],
                stdin=subprocess.DEVNULL,
                stdout=2,  # printed output goes to standard error
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "PYTHONSAFEPATH": "1"},
            )
        self._put(self._make)

    def _ended(self, error: EOFError | OSError) -> str:
        """Clean up after the process has ended unexpectedly; return a sentence with the reason and the remedy."""
        if self._process is None:
            return f"The process that runs the models could not be started ({error}). Free some memory, and try again."
        code = self._end(self._process)
        self.rest()
        how = f"stopped by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return (
            f"The process that runs the models has ended ({how}), as it does when memory runs out. Try again; if it "
            "ends again, ask for fewer tokens or smaller models, and see the server's log."
        )

    def _end(self, process: subprocess.Popen[bytes]) -> int:
        """Close the connection, which ends the process, and return its exit code."""
        self._connection.close()
        try:
            return process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


MODEST = 5  # niceness of the model process, so that pages stay responsive
EXPENDABLE = 500  # linux's oom_score_adj of this process: it is killed before the server when memory runs out


def main() -> None:
    """Serve the parent process until it closes the connection."""
    shown_logs()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the parent, which ends this process
    with suppress(AttributeError, OSError):  # no such system call
        os.nice(MODEST)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(EXPENDABLE), "ascii")
    with shown_streams():
        _serve(Connection(int(sys.argv[1])))


def _serve(connection: Connection) -> None:
    def put(*message: object) -> None:
        connection.send_bytes(pickled(message))

    (make,) = pickle.loads(connection.recv_bytes())
    models: Models[Any] = make()
    models.on_status = partial(put, "models")
    requests: queue.SimpleQueue[int] = queue.SimpleQueue()
    jobs: dict[int, Job[Any]] = {}
    threading.Thread(target=_listen, args=(connection, requests, jobs), daemon=True).start()
    while True:
        number = requests.get()
        last = False
        try:
            models.run(jobs[number], lambda **news: put("news", news))
        except Exception:  # the device does not respond; a new process may be able to use it
            sys.excepthook(*sys.exc_info())
            last = True
        if jobs[number].steps is None:
            del jobs[number]
        put("over", last)
        if last:
            os._exit(1)  # skip cleanup on the device


def _listen(connection: Connection, requests: queue.SimpleQueue[int], jobs: dict[int, Job[Any]]) -> None:
    try:
        while True:
            _handle(pickle.loads(connection.recv_bytes()), requests, jobs)
    except (EOFError, OSError):  # the parent has closed the connection, or has ended
        os._exit(0)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)


def _handle(message: tuple[Any, ...], requests: queue.SimpleQueue[int], jobs: dict[int, Job[Any]]) -> None:
    """Handle one message. A separate function, so that no local variable keeps the job alive."""
    match message:
        case "begin", number, *arguments:
            jobs[number] = Job(Progress(JobState.LOADING), *arguments)
        case "run", number:
            requests.put(number)
        case "stop", number:
            job_to_stop = jobs.get(number)  # a single lookup, because the job may end at any time
            if job_to_stop is not None:
                job_to_stop.cancel()


if __name__ == "__main__":
    main()
