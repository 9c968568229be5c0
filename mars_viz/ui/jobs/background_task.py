"""Jobs that run a function on a loaded pair without decoding a prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from mars_viz.backend_choice import BUILT_IN, BackendChoice
from mars_viz.costs import Costs
from mars_viz.ui.jobs.job import Job, JobState, Progress
from mars_viz.ui.jobs.models import Models


@dataclass(frozen=True, slots=True)
class Report(Progress):
    """Snapshot of a background task's progress."""

    share: float = 0.0  # finished share of the work, from 0 to 1
    result: Any = None  # latest result; None before the first


@dataclass(frozen=True, slots=True)
class TaskStep:
    """One step of a background task."""

    share: float  # finished share of the work, from 0 to 1
    result: Any = None  # latest result


class BackgroundTask(Job[Report]):
    """Job that runs a function step by step. A cancelled job keeps its latest result."""

    private: ClassVar[bool] = True

    def __init__(self, find: Callable[[Any], Iterator[TaskStep]], choice: BackendChoice = BUILT_IN) -> None:
        """`find` takes the loaded pair and yields steps; the last step has the final result."""
        super().__init__(Report(JobState.QUEUED))
        self.choice = choice
        self._find = find

    def work(self, models: Models[Any]) -> None:
        """Run the function until it ends or the job is cancelled."""
        pair = models.pair(self.choice, lambda: self.stopping)
        self.tell(state=JobState.DECODING)
        for step in () if self.stopping else self._find(pair):
            self.tell(share=step.share, result=step.result)
            if self.stopping:
                break
        if not self.stopping:
            self.found(models)
        self.tell(state=JobState.CANCELLED if self.stopping else JobState.DONE)

    def found(self, models: Models[Any]) -> None:
        """Hook for subclasses, called after the last step."""


class CostsJob(BackgroundTask):
    """Job that measures the cost of the pair's passes. All sessions share the result."""

    private: ClassVar[bool] = False

    def __init__(
        self,
        measure: Callable[[Any], Iterator[TaskStep]],
        choice: BackendChoice = BUILT_IN,
        keep: Callable[[Costs], object] | None = None,
    ) -> None:
        """`keep` stores the costs, and may raise BadInput."""
        super().__init__(measure, choice)
        self._keep = keep

    def found(self, models: Models[Any]) -> None:
        """Store the costs with the models, and pass them to `keep`."""
        models.measured(self.progress.result)
        if self._keep is not None:
            self._keep(self.progress.result)
