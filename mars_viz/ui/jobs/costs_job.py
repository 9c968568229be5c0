"""Measuring what a pass costs, as a job. Knows costs; how to measure is an argument."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from mars_viz.costs import Costs
from mars_viz.ui.jobs.job import Job, JobState, Progress
from mars_viz.ui.jobs.models import BUILT_IN, Models, PairChoice


@dataclass(frozen=True, slots=True)
class Measured(Progress):
    """What is known of a measurement at one moment."""

    share: float = 0.0
    """That is done, from 0 to 1."""


class Measurer(Protocol):
    """A measurement in the making, such as `mars_viz.speculators.costs.Measuring`."""

    def __iter__(self) -> Iterator[float]:
        """Measure; each step is the share that is done."""
        ...

    def costs(self) -> Costs:
        """What it found. Raises Disturbed where the machine was too busy."""
        ...


class CostsJob(Job[Measured]):
    """Measures the pair's passes, for the panel that everyone sees."""

    def __init__(
        self,
        measure: Callable[[Any], Measurer],
        choice: PairChoice = BUILT_IN,
        keep: Callable[[Costs], object] | None = None,
    ) -> None:
        """`measure` makes the measurement of a pair; `keep` writes what it found, and may raise BadInput."""
        super().__init__(Measured(JobState.QUEUED))
        self.choice = choice
        self._measure, self._keep = measure, keep

    def work(self, models: Models[Any]) -> None:
        """Measure, and leave what was found with the models."""
        pair = models.pair(self.choice, lambda: self.stopping)
        self.tell(state=JobState.DECODING)
        measuring = self._measure(pair)
        for share in () if self.stopping else measuring:
            self.tell(share=share)
            if self.stopping:
                break
        if self.stopping:
            self.tell(state=JobState.CANCELLED)
            return
        costs = measuring.costs()
        models.measured(costs)
        if self._keep is not None:
            self._keep(costs)
        self.tell(state=JobState.DONE)
