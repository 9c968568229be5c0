"""Sweeps and wall-clock checks as jobs for the worker.

Knows sweeps as something to iterate; how to make one from a pair is an argument. Knows no models and no Streamlit.
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
from mars_viz.sweep import Sweep
from mars_viz.sweep.grid_sweep import GridSweep
from mars_viz.sweep.ray_mapper import ClusterSweep
from mars_viz.sweep.timing import TimingCheck
from mars_viz.sweep.wall_clock import WallClock
from mars_viz.ui.jobs.job import Job, JobState, LongJob, Progress
from mars_viz.ui.jobs.models import Models

Begin = Callable[[Any], Sweep | GridSweep | ClusterSweep]
"""Begins or continues a sweep, or those of a grid, with a pair; on a Ray cluster with none."""


@dataclass(frozen=True, slots=True)
class Sweeping(Progress):
    """What is known of a sweep under way."""

    finished: int = 0
    """Prompts that are written, those of earlier sittings included."""
    before: int = 0
    """How many of them are of earlier sittings."""
    prompts: int = 0
    """All of them; 0 until the models are there."""
    failed: int = 0
    """Prompts of this sitting that have no results."""
    share: float = 0.0
    """Of the prompt that is being mapped, the part of the dial whose text is complete."""
    seconds: float = 0.0
    """That this sitting has spent on its prompts; what others did in between does not count."""
    too_long: tuple[str, ...] = ()
    """A sentence for each prompt that will have no results."""
    workers: tuple[int, ...] = ()
    """Prompts that each worker of a Ray cluster has mapped; empty where this server's models do."""

    @property
    def part(self) -> float:
        """How much is done, 0 to 1."""
        return 0.0 if not self.prompts else min(1.0, (self.finished + self.share) / self.prompts)

    @property
    def left(self) -> float:
        """Seconds to go at the pace so far; NaN before the first prompt of this sitting is done."""
        done = self.finished - self.before
        return math.nan if done < 1 else (self.prompts - self.finished) * self.seconds / done


class SweepJob(LongJob[Sweeping]):
    """A sweep to its end, or those of a grid, named by their folders; what is finished is on disk whatever happens."""

    remembered: ClassVar[bool] = True

    def __init__(
        self,
        folder: Path,
        make: Begin,
        label: str,
        choice: BackendChoice = BUILT_IN,
        beside: Mapping[Path, str] | None = None,
        *,
        elsewhere: bool = False,
    ) -> None:
        """`folder` is where the results are, or will be; `make` begins or continues the sweep with a pair, or where it
        is made `elsewhere` without one. `beside` are the folders of the other sweeps that it makes, with their
        labels."""
        super().__init__(Sweeping(JobState.QUEUED))
        self.folder, self.label, self.choice = folder, label, choice
        self.labels: Mapping[Path, str] = {folder: label, **(beside or {})}
        """Of every sweep that it makes, by folder."""
        self._make: Begin | None = make
        self._elsewhere = elsewhere

    def let_go(self) -> None:
        """The worker remembers the job, and nobody needs the prompts any more."""
        super().let_go()
        self._make = None

    def steps(self, models: Models[Any]) -> Iterator[None]:
        """A batched pass of the models each."""
        pair = None if self._elsewhere else models.pair(self.choice, lambda: self.stopping, holder=self)
        assert self._make is not None  # until it is over
        sweep = self._make(pair)
        now = sweep.progress
        too_long = tuple(f"{each.id}: {each.reason}" for each in sweep.too_long)
        known = {"finished": now.finished, "before": now.finished, "prompts": now.prompts}
        self.tell(state=JobState.DECODING, too_long=too_long, **known)
        spent, began = 0.0, time.perf_counter()
        for now in sweep:
            spent += time.perf_counter() - began
            told = {"finished": now.finished, "failed": now.failed, "share": now.share, "workers": now.workers}
            self.tell(**told, seconds=spent)
            yield
            began = time.perf_counter()


@dataclass(frozen=True, slots=True)
class Clocking(Progress):
    """What is known of a wall-clock check."""

    done: int = 0
    """Decodes so far."""
    decodes: int = 0
    """All of them; 0 until the models are there."""
    check: TimingCheck | None = None
    """What it found, at its end; `error` then says where it could not be kept."""


class ClockJob(Job[Clocking]):
    """A wall-clock check, without anything in between that would spoil it. Its name is the sweep's folder with the
    setting."""

    remembered: ClassVar[bool] = True

    def __init__(
        self, make: Callable[[Any], WallClock], keep: Callable[[TimingCheck], object], choice: BackendChoice = BUILT_IN
    ) -> None:
        """`make` prepares the check with a pair, `keep` writes what it found and may raise BadInput."""
        super().__init__(Clocking(JobState.QUEUED))
        self._make: Callable[[Any], WallClock] | None = make
        self._keep, self._choice = keep, choice

    def let_go(self) -> None:
        """The worker remembers the job, and nobody needs the prompts any more."""
        super().let_go()
        self._make = None

    def work(self, models: Models[Any]) -> None:
        """Decode to the end."""
        pair = models.pair(self._choice, lambda: self.stopping)
        assert self._make is not None  # until it is over
        clock = self._make(pair)
        self.tell(state=JobState.DECODING, decodes=clock.progress.decodes)
        for now in clock:
            self.tell(done=now.done)
            if self.stopping:
                self.tell(state=JobState.CANCELLED)
                return
        check, error = clock.check(), ""
        try:
            self._keep(check)
        except BadInput as refusal:
            error = str(refusal)
        self.tell(state=JobState.DONE, check=check, error=error)
