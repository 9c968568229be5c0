"""Something to find out with the built-in pair, besides decoding a prompt, as a job; what it is, is an argument."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from mars_viz.ui.jobs.job import Job, JobState, Progress
from mars_viz.ui.jobs.models import Models


@dataclass(frozen=True, slots=True)
class Report(Progress):
    """What is known of an errand at one moment."""

    share: float = 0.0
    """Of the work that is done, from 0 to 1."""
    result: Any = None
    """What was found so far; None before anything was."""


@dataclass(frozen=True, slots=True)
class TaskStep:
    """A step of an errand."""

    share: float
    """Of the work that is done, from 0 to 1."""
    result: Any
    """What was found so far."""


class BackgroundTask(Job[Report]):
    """One thing to find out; stopped on the way, it keeps what it has found so far."""

    private: ClassVar[bool] = True

    def __init__(self, find: Callable[[Any], Iterator[TaskStep]]) -> None:
        """`find` takes the loaded pair and yields what it has found so far; the last finding is the result."""
        super().__init__(Report(JobState.QUEUED))
        self._find = find

    def work(self, models: Models[Any]) -> None:
        """Find it out, a step at a time."""
        pair = models.pair(stopping=lambda: self.stopping)
        self.tell(state=JobState.DECODING)
        for finding in () if self.stopping else self._find(pair):
            self.tell(share=finding.share, result=finding.result)
            if self.stopping:
                break
        self.tell(state=JobState.CANCELLED if self.stopping else JobState.DONE)
