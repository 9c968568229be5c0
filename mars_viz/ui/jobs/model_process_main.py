"""The process that owns the models: it does one job after the other, as `model_process` asks, and tells what the jobs
tell.

    python -m mars_viz.ui.jobs.model_process_main

It ends when nobody is at the other end of its standard input any more, whatever it is doing. Knows jobs, models as
something that a function makes, and the wire; knows no Streamlit, and no torch until a pair is loaded.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from mars_viz.terminal import shown_logs, shown_streams
from mars_viz.ui.jobs.job import Job
from mars_viz.ui.jobs.model_process import Do, GetReady, GoOn, Holds, Over, Stop, Told, Wire
from mars_viz.ui.jobs.models import Models

MODEST = 5
"""How far it stands back where processors are scarce: who waits for a page feels it more than a slower decode."""
EXPENDABLE = 500
"""How much sooner than others Linux ends it where memory runs out: the server, and what it has of runs, should stay."""


def main() -> None:
    """Serve the parent until it goes."""
    shown_logs()
    with shown_streams():
        _serve(_wire())


def _serve(wire: Wire) -> None:
    make: Callable[[], Models[Any]] = wire.take()
    models = make()
    models.report_to(lambda status, recent: wire.put(Holds(status, recent)))
    asked: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    jobs: dict[int, Job[Any]] = {}
    threading.Thread(target=_listen, args=(wire, asked, jobs), daemon=True).start()
    while True:
        number = asked.get()
        if number is None:
            models.get_ready()
            continue
        job = jobs[number]
        job.report_to(lambda news: wire.put(Told(dict(news))))
        last = False
        try:
            models.serve(job)
        except Exception:  # of a device that does not answer; the next process may find it well again
            sys.excepthook(*sys.exc_info())
            last = True
        if job.progress.state.finished:
            del jobs[number]
        del job
        wire.put(Over(last))
        if last:
            os._exit(1)  # without asking the device to tidy up


def _wire() -> Wire:
    """Over the standard streams, which are then nobody else's: what a library prints goes where errors go."""
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is the parent that is interrupted, and this ends with it
    _stand_back()
    return Wire(incoming, outgoing)


def _stand_back() -> None:
    """Leave processors and memory to the server first, where the system knows of such things."""
    with suppress(AttributeError, OSError):
        os.nice(MODEST)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(EXPENDABLE), "ascii")


def _listen(wire: Wire, asked: queue.SimpleQueue[int | None], jobs: dict[int, Job[Any]]) -> None:
    """Hear what is asked while a job is done."""
    try:
        while True:
            _hear(wire.take(), asked, jobs)
    except EOFError:
        os._exit(0)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)


def _hear(
    message: GetReady | Do | GoOn | Stop, asked: queue.SimpleQueue[int | None], jobs: dict[int, Job[Any]]
) -> None:
    """Nothing of the message is kept here: a job goes with its end."""
    match message:
        case GetReady():
            asked.put(None)
        case Do(number, job):
            jobs[number] = job
            asked.put(number)
        case GoOn(number):
            asked.put(number)
        case Stop(number):
            stopped = jobs.get(number)  # in one step: it may be ending
            if stopped is not None:
                stopped.cancel()


if __name__ == "__main__":
    main()
