"""Main module of the model process: runs the jobs that `model_process` sends, one at a time.

Usage: python -m mars_viz.ui.jobs.model_process_main

It exits as soon as its standard input is closed. It imports no Streamlit, and no torch until a pair is loaded.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from mars_viz.terminal import shown_logs, shown_streams
from mars_viz.ui.jobs.job import Job
from mars_viz.ui.jobs.model_process import Wire
from mars_viz.ui.jobs.models import Models

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
