"""Jobs for sweeps and wall-clock checks.

The functions that make these from a pair are arguments.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from mars_viz.backend_choice import BUILT_IN, BackendChoice
from mars_viz.errors import BadInput
from mars_viz.sweep.sweep import SweepLoop
from mars_viz.sweep.wall_clock import TimingCheck, WallClock
from mars_viz.ui.jobs.models import Events, Job, Progress, Rank
from mars_viz.words import counted, number

Begin = Callable[..., SweepLoop]
"""Begins or resumes one sweep or the sweeps of a grid with a pair, or without one on a Ray cluster."""


@dataclass(frozen=True, slots=True)
class Sweeping(Progress):
    """Snapshot of a sweep's progress."""

    labels: Mapping[Path, str] = field(default_factory=dict)  # label of each sweep by its results' folder
    choice: BackendChoice = BUILT_IN  # models of the sweep
    finished: int = 0  # prompts with results, including those from before this job
    before: int = 0  # prompts finished before this job
    prompts: int = 0  # number of prompts; 0 until the models are loaded
    failed: int = 0  # prompts without results in this job
    share: float = 0.0  # finished part of the current prompt's dial
    seconds: float = 0.0  # time that this job spent on prompts, without other jobs in between
    workers: tuple[int, ...] = ()  # number of prompts mapped by each worker of a Ray cluster; empty without a cluster

    @property
    def part(self) -> float:
        """Finished share, from 0 to 1."""
        return 0.0 if not self.prompts else min(1.0, (self.finished + self.share) / self.prompts)

    @property
    def left(self) -> float:
        """Estimated remaining seconds; NaN until this job has finished a prompt."""
        done = self.finished - self.before
        return math.nan if done < 1 else (self.prompts - self.finished) * self.seconds / done


def sweep_job(
    labels: Mapping[Path, str], make: Begin, choice: BackendChoice = BUILT_IN, *, elsewhere: bool = False
) -> Job[Sweeping]:
    """Return a job that runs one sweep or the sweeps of a grid, with other jobs in between. Finished prompts are saved
    at once.

    `labels` has the results' folder of each sweep with its label. `make` begins or resumes them with a pair, or
    without one if `elsewhere`.
    """
    work, models = partial(_sweep, make, elsewhere), None if elsewhere else choice
    return Job(Sweeping(labels=labels, choice=choice), work, models, Rank.LONG)


def _sweep(make: Begin, elsewhere: bool, pair: Any) -> Events:
    """Run the sweep; each step is one batched pass."""
    sweep = make() if elsewhere else make(pair)
    now = sweep.progress
    yield {"finished": now.finished, "before": now.finished, "prompts": now.prompts}
    spent, began = 0.0, time.perf_counter()
    for now in sweep:
        spent += time.perf_counter() - began
        counts = {"finished": now.finished, "failed": now.failed, "share": now.share, "workers": now.workers}
        yield {**counts, "seconds": spent}
        began = time.perf_counter()  # without the turns of other jobs
    return None


@dataclass(frozen=True, slots=True)
class Clocking(Progress):
    """Snapshot of a wall-clock check's progress."""

    done: int = 0  # number of finished decodes
    decodes: int = 0  # number of decodes; 0 until the models are loaded
    check: TimingCheck | None = None  # the result; `error` then is the reason if it could not be saved


def clock_job(
    make: Callable[[Any], WallClock], keep: Callable[[TimingCheck], object], choice: BackendChoice = BUILT_IN
) -> Job[Clocking]:
    """Return a job that runs a wall-clock check without interruption by other jobs. `make` prepares the check with a
    pair. `keep` saves its result and may raise BadInput."""
    return Job(Clocking(), partial(_clock, make, keep), choice)


def _clock(make: Callable[[Any], WallClock], keep: Callable[[TimingCheck], object], pair: Any) -> Events:
    clock = make(pair)
    yield {"decodes": clock.progress[1]}
    for done, _ in clock:
        yield {"done": done}
    check, error = clock.check(), ""
    try:
        keep(check)
    except BadInput as refusal:
        error = str(refusal)
    return {"check": check, "error": error}


def going(now: Sweeping) -> str:
    """Return a sentence about a running sweep."""
    if not now.prompts:
        return "Loading the models and measuring what their passes cost on this device …"
    words = f"{number(now.finished)} of {counted(now.prompts, 'prompt')} done"
    if now.failed:
        words += f", {number(now.failed)} of them without results"
    if now.workers:
        words += f", by {counted(len(now.workers), 'worker')}: {' + '.join(map(number, now.workers))}"
    return words + ("" if math.isnan(now.left) else f"; about {duration(now.left)} to go")


def duration(seconds: float) -> str:
    """Return a duration like '40 seconds', '6 minutes' or '2.5 hours'."""
    if seconds < 90:
        return counted(max(1, round(seconds)), "second")
    if seconds < 5400:
        return counted(round(seconds / 60), "minute")
    return f"{number(round(seconds / 3600, 1))} hours"
