"""Jobs for sweeps and wall-clock checks.

The functions that make these from a pair are arguments.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from mars_viz.backend_choice import BUILT_IN, BackendChoice
from mars_viz.sweep.sweep import SweepLoop
from mars_viz.sweep.wall_clock import WallClock
from mars_viz.ui.jobs.models import Events, Job, Progress, Rank, TaskStep
from mars_viz.words import counted, number


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
    labels: Mapping[Path, str], make: Callable[[Any], SweepLoop], choice: BackendChoice = BUILT_IN
) -> Job[Sweeping]:
    """Return a job that runs one sweep or the sweeps of a grid, with other jobs in between. Finished prompts are saved
    at once.

    `labels` has the results' folder of each sweep with its label. `make` begins or resumes them with a pair.
    """
    return Job(Sweeping(labels=labels, choice=choice), partial(_sweep, make), choice, Rank.LONG)


def _sweep(make: Callable[[Any], SweepLoop], pair: Any) -> Events:
    """Run the sweep; each step is one batched pass."""
    sweep = make(pair)
    now = sweep.progress
    yield {"finished": now.finished, "before": now.finished, "prompts": now.prompts}
    spent, began = 0.0, time.perf_counter()
    for now in sweep:
        spent += time.perf_counter() - began
        yield {"finished": now.finished, "failed": now.failed, "share": now.share, "seconds": spent}
        began = time.perf_counter()  # without the turns of other jobs
    return None


def timed_check(make: Callable[[Any], WallClock], pair: Any) -> Iterator[TaskStep]:
    """Run a wall-clock check, which `make` prepares with a pair."""
    clock = make(pair)
    for done, decodes in clock:
        yield done / decodes, None
    yield 1.0, clock.check()


def going(now: Sweeping) -> str:
    """Return a sentence about a running sweep."""
    if not now.prompts:
        return "Loading the models and measuring what their passes cost on this device …"
    words = f"{number(now.finished)} of {counted(now.prompts, 'prompt')} done"
    if now.failed:
        words += f", {number(now.failed)} of them without results"
    return words + ("" if math.isnan(now.left) else f"; about {duration(now.left)} to go")


def duration(seconds: float) -> str:
    """Return a duration like '40 seconds', '6 minutes' or '2.5 hours'."""
    if seconds < 90:
        return counted(max(1, round(seconds)), "second")
    if seconds < 5400:
        return counted(round(seconds / 60), "minute")
    return f"{number(round(seconds / 3600, 1))} hours"
