"""Runs all jobs that use models, one at a time: the queue, its thread, and the process that holds the models.

Pages don't compete with a decode for the interpreter, and the server survives if the process is killed. The process
runs this module as its main program, until the connection is closed. It imports no Streamlit, and no torch until a pair
is loaded. It is not started by `multiprocessing`, whose children import the parent's main module, which is the page
under Streamlit.

Requests are ("run", number) to run a job, or a turn of it, the first time with its work, choice and rank, and
("stop", number) to cancel it at once. Answers are ("news", changed fields of the job's progress), ("models", status)
after each change, and ("over", whether the process ends) at the end of a run or a turn.
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
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import partial
from io import BytesIO
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from mars_viz.records import Round, Speculation
from mars_viz.run import Run
from mars_viz.terminal import shown_logs, shown_streams
from mars_viz.ui.jobs.models import FAULT, Job, JobState, Models, Progress, Status

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
    """The queue of jobs and the thread that runs them. One worker serves all sessions of a server.

    Any tab can find a job by its names. Jobs whose browser session has ended are cancelled. Progress snapshots are
    immutable, so a page may read them at any time.
    """

    def __init__(
        self,
        models: Models[Any] | ModelProcess,
        idle: float = IDLE,
        visitor: Callable[[], Visitor] | None = None,
        admit: Admit | None = None,
        grace: float = GRACE,
    ) -> None:
        """Create an idle worker, which drops the models after `idle` seconds without a job.

        `visitor` is called in the session that submits a job. Without it, no job is cancelled. `admit` is called for
        each submitted job; a refused job fails with the message that `admit` returns.
        """
        self.models = models
        self._visitor, self._admit = visitor, admit
        self._idle, self._grace = idle, grace
        self._waiting: list[Job[Any]] = []
        self._running: Job[Any] | None = None
        self._news = threading.Condition()
        self._named: WeakValueDictionary[Hashable, Job[Any]] = WeakValueDictionary()
        self._remembered: dict[Hashable, Job[Any]] = {}  # keeps these jobs after their end
        for target in (self._serve, *(() if visitor is None else (self._watch,))):
            threading.Thread(target=target, name="model-worker", daemon=True).start()

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
                job.tell(state=JobState.FAILED, error=refused)
                return False
            if self._visitor is not None:
                job.maker = self._visitor()[0]
            for name in names:
                self.name(job, name)
            self._queue(job)
            self._news.notify()
            return True

    def _queue(self, job: Job[Any]) -> None:
        self._waiting.append(job)
        self._waiting.sort(key=lambda other: (other.rank, other.number))

    def find(self, name: Hashable) -> Job[Any] | None:
        """Return the job of that name, or None if there is none or it has ended and been collected."""
        with self._news:
            return self._named.get(name)

    def names(self) -> dict[Hashable, Job[Any]]:
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
        with self._news:
            return [*filter(None, [self._running]), *self._waiting]

    def ahead(self, job: Job[Any]) -> int:
        """Return the number of jobs with models ahead of this one; 0 if it is not waiting."""
        with self._news:
            earlier = self.unfinished
            earlier = earlier[: earlier.index(job)] if job in self._waiting else []
        return sum(other.choice is not None and not other.stopping for other in earlier)

    def _serve(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._waiting, self._idle)
                job = self._running = self._waiting.pop(0) if self._waiting else None
            try:  # without the lock, so that sessions need not wait
                if job is None:
                    self.models.rest()
                elif job.begin():
                    self.models.serve(job)
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


GIVEN_UP = (
    "The process that runs the models could not ask their device any more, and has ended. Try again; if the "
    "fault comes back, check the device and its driver, or decode on the CPU."
)
PATIENCE = 5.0  # seconds that the process has to end by itself before it is killed


class _Pickler(pickle.Pickler):
    """Pickles records by their fields, without cached properties or shared columns."""

    def reducer_override(self, thing: object) -> Any:
        kind = next((kind for kind in (Run, Round, Speculation) if isinstance(thing, kind)), None)
        return NotImplemented if kind is None else (kind, tuple(getattr(thing, field.name) for field in fields(kind)))


def pickled(message: object) -> bytes:
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
        trouble = ""
        try:
            if self._gives_up_after(job):
                self.rest()
                trouble = GIVEN_UP
        except (EOFError, OSError) as error:
            code = self.rest()
            how = f"stopped by {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
            trouble = (
                f"The process that runs the models could not be started ({error}). Free some memory, and try again."
                if code is None
                else f"The process that runs the models has ended ({how}), as it does when memory runs out. Try again; "
                "if it ends again, ask for fewer tokens or smaller models, and see the server's log."
            )
        except Exception:
            _log.exception("A job could not be handed over.")
            self.rest()
            trouble = FAULT
        if job.progress.state.finished:
            self._begun.discard(job.number)
        elif trouble:
            job.tell(state=JobState.FAILED, error=trouble)

    def rest(self) -> int | None:
        """End the process, which frees the memory of its models, and return its exit code; None if there is none."""
        process, self._process = self._process, None
        self._begun.clear()
        self.status = Status()
        if process is None:
            return None
        self._connection.close()
        try:
            return process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def _gives_up_after(self, job: Job[Any]) -> bool:
        """Run the job or a turn, and return whether the process ends afterwards."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        if job.number in self._begun:
            self._put("run", job.number)
        else:
            self._put("run", job.number, job.work, job.choice, job.rank)
            self._begun.add(job.number)
            job.on_cancel = partial(self._stop, job.number)
            if job.stopping:  # cancelled before the process knew the job
                self._stop(job.number)
        while True:
            match pickle.loads(self._connection.recv_bytes()):
                case "news", news:
                    job.tell(**news)
                case "models", status:
                    self.status = status
                case "over", last:
                    return bool(last)

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
                [sys.executable, "-m", "mars_viz.ui.jobs.worker", f"{theirs.fileno()}"],
                stdin=subprocess.DEVNULL,
                stdout=2,  # printed output goes to standard error
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "PYTHONSAFEPATH": "1"},
            )
        self._put(self._make)


MODEST = 5  # niceness of the model process, so that pages stay responsive
EXPENDABLE = 500  # linux's oom_score_adj of this process: it is killed before the server when memory runs out


def main() -> None:
    """Run jobs for the parent process until it closes the connection."""
    shown_logs()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the parent, which ends this process
    with suppress(AttributeError, OSError):  # no such system call
        os.nice(MODEST)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(EXPENDABLE), "ascii")
    with shown_streams():
        _run_jobs(Connection(int(sys.argv[1])))


def _run_jobs(connection: Connection) -> None:
    def put(*message: object) -> None:
        connection.send_bytes(pickled(message))

    (make,) = pickle.loads(connection.recv_bytes())
    models: Models[Any] = make()
    models.on_status = partial(put, "models")
    requests: queue.SimpleQueue[int] = queue.SimpleQueue()
    jobs: dict[int, Job[Any]] = {}
    threading.Thread(target=_listen, args=(connection, requests, jobs), daemon=True).start()
    while True:
        number, last = requests.get(), False
        try:
            models.serve(jobs[number], lambda **news: put("news", news))
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
            _handle(requests, jobs, *pickle.loads(connection.recv_bytes()))
    except (EOFError, OSError):  # the parent has closed the connection, or has ended
        os._exit(0)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)


def _handle(
    requests: queue.SimpleQueue[int], jobs: dict[int, Job[Any]], what: str, number: int, *arguments: Any
) -> None:
    """Handle one message. A separate function, so that no local variable keeps the job alive."""
    if arguments:
        jobs[number] = Job(Progress(JobState.LOADING), *arguments)
    if what == "run":
        requests.put(number)
    elif (job := jobs.get(number)) is not None:  # a single lookup, because the job may end at any time
        job.cancel()


if __name__ == "__main__":
    main()
