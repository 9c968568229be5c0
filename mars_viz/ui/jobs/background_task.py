"""Something to find out with a pair, besides decoding a prompt, as a job; what it is, is an argument."""

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
    """What is known of it at one moment."""

    share: float = 0.0
    """Of the work that is done, from 0 to 1."""
    result: Any = None
    """What was found so far; None before anything was."""


@dataclass(frozen=True, slots=True)
class TaskStep:
    """A step of it."""

    share: float
    """Of the work that is done, from 0 to 1."""
    result: Any = None
    """What was found so far."""


class BackgroundTask(Job[Report]):
    """One thing to find out; stopped on the way, it keeps what it has found so far."""

    private: ClassVar[bool] = True

    def __init__(self, find: Callable[[Any], Iterator[TaskStep]], choice: BackendChoice = BUILT_IN) -> None:
        """`find` takes the loaded pair and yields what it has found so far; the last finding is the result."""
        super().__init__(Report(JobState.QUEUED))
        self.choice = choice
        self._find = find

    def work(self, models: Models[Any]) -> None:
        """Find it out, a step at a time."""
        pair = models.pair(self.choice, lambda: self.stopping)
        self.tell(state=JobState.DECODING)
        for finding in () if self.stopping else self._find(pair):
            self.tell(share=finding.share, result=finding.result)
            if self.stopping:
                break
        if not self.stopping:
            self.found(models)
        self.tell(state=JobState.CANCELLED if self.stopping else JobState.DONE)

    def found(self, models: Models[Any]) -> None:
        """It has found all: a kind that has something to do with that says so here."""


class CostsJob(BackgroundTask):
    """Measures what the pair's passes cost, for the panel that everyone sees."""

    private: ClassVar[bool] = False

    def __init__(
        self,
        measure: Callable[[Any], Iterator[TaskStep]],
        choice: BackendChoice = BUILT_IN,
        keep: Callable[[Costs], object] | None = None,
    ) -> None:
        """`keep` writes what `measure` found, and may raise BadInput."""
        super().__init__(measure, choice)
        self._keep = keep

    def found(self, models: Models[Any]) -> None:
        """Leave it with the models."""
        models.measured(self.progress.result)
        if self._keep is not None:
            self._keep(self.progress.result)
