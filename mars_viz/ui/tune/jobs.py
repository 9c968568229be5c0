"""Jobs for sweeps and wall-clock checks.

The functions that make these from a pair are arguments.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from mars_viz.backend_choice import BUILT_IN, BackendChoice
from mars_viz.errors import BadInput
from mars_viz.sweep.sweep import SweepLoop
from mars_viz.sweep.wall_clock import TimingCheck, WallClock
from mars_viz.ui.jobs.models import Job, JobState, Models, Progress, Rank
from mars_viz.words import counted, number

Begin = Callable[..., SweepLoop]
"""Begins or resumes one sweep or the sweeps of a grid with a pair, or without one on a Ray cluster."""


@dataclass(frozen=True, slots=True)
class Sweeping(Progress):
    """Snapshot of a sweep's progress."""

    finished: int = 0  # prompts with results, including those from before this job
    before: int = 0  # prompts finished before this job
    prompts: int = 0  # number of prompts; 0 until the models are loaded
    failed: int = 0  # prompts without results in this job
    share: float = 0.0  # finished part of the current prompt's dial
    seconds: float = 0.0  # time that this job spent on prompts, without other jobs in between
    too_long: tuple[str, ...] = ()  # a sentence for each prompt that is too long
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


class SweepJob(Job[Sweeping]):
    """Runs one sweep or the sweeps of a grid, in steps with other jobs in between. Named by their folders. Finished
    prompts are saved at once. Continues when its tab is closed; any session can find and stop it."""

    remembered: ClassVar[bool] = True
    rank = Rank.LONG

    def __init__(
        self, labels: Mapping[Path, str], make: Begin, choice: BackendChoice = BUILT_IN, *, elsewhere: bool = False
    ) -> None:
        """`labels` has the results' folder of each sweep with its label. `make` begins or resumes them with a pair, or
        without one if `elsewhere`."""
        super().__init__(Sweeping(JobState.QUEUED))
        self.labels, self.choice = labels, choice
        self.folder, self.label = next(iter(labels.items()))
        self._make: Begin | None = make
        self._elsewhere = elsewhere

    def let_go(self) -> None:
        """Drop the prompts, because the worker keeps the job."""
        super().let_go()
        self._make = None

    def work(self, models: Models[Any]) -> Iterator[None]:
        """Run the sweep; each step is one batched pass."""
        pair = () if self._elsewhere else (models.pair(self.choice, lambda: self.stopping, holder=self),)
        assert self._make is not None  # set until the job ends
        sweep = self._make(*pair)
        now = sweep.progress
        too_long = tuple(f"{each.id}: {each.reason}" for each in sweep.too_long)
        counts = {"finished": now.finished, "before": now.finished, "prompts": now.prompts}
        self.tell(state=JobState.DECODING, too_long=too_long, **counts)
        spent, began = 0.0, time.perf_counter()
        for now in sweep:
            spent += time.perf_counter() - began
            updates = {"finished": now.finished, "failed": now.failed, "share": now.share, "workers": now.workers}
            self.tell(**updates, seconds=spent)
            yield
            began = time.perf_counter()
        self.tell(state=JobState.DONE)


@dataclass(frozen=True, slots=True)
class Clocking(Progress):
    """Snapshot of a wall-clock check's progress."""

    done: int = 0  # number of finished decodes
    decodes: int = 0  # number of decodes; 0 until the models are loaded
    check: TimingCheck | None = None  # the result; `error` then is the reason if it could not be saved


class ClockJob(Job[Clocking]):
    """Runs a wall-clock check without interruption by other jobs. Named by the sweep's folder and the setting."""

    remembered: ClassVar[bool] = True

    def __init__(
        self, make: Callable[[Any], WallClock], keep: Callable[[TimingCheck], object], choice: BackendChoice = BUILT_IN
    ) -> None:
        """`make` prepares the check with a pair. `keep` saves its result and may raise BadInput."""
        super().__init__(Clocking(JobState.QUEUED))
        self._make: Callable[[Any], WallClock] | None = make
        self._keep, self._choice = keep, choice

    def let_go(self) -> None:
        """Drop the prompts, because the worker keeps the job."""
        super().let_go()
        self._make = None

    def work(self, models: Models[Any]) -> None:
        """Run the check to its end."""
        pair = models.pair(self._choice, lambda: self.stopping)
        assert self._make is not None  # set until the job ends
        clock = self._make(pair)
        self.tell(state=JobState.DECODING, decodes=clock.progress[1])
        for done, _ in clock:
            self.tell(done=done)
            if self.stopping:
                return
        check, error = clock.check(), ""
        try:
            self._keep(check)
        except BadInput as refusal:
            error = str(refusal)
        self.tell(state=JobState.DONE, check=check, error=error)


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
