"""Measuring what a pass costs, as a job. Knows costs; how to measure is an argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mars_viz.costs import Costs
from mars_viz.ui.jobs.job import Job, JobState, Progress
from mars_viz.ui.jobs.models import BUILT_IN, Choice, Models


class CostsJob(Job[Progress]):
    """Measures the pair's passes, for the panel that everyone sees."""

    def __init__(self, measure: Callable[[Any], Costs], choice: Choice = BUILT_IN) -> None:
        """`measure` makes the costs of a pair."""
        super().__init__(Progress(JobState.QUEUED))
        self.choice = choice
        self._measure = measure

    def work(self, models: Models[Any]) -> None:
        """Measure, and leave what was found with the models."""
        pair = models.pair(self.choice, lambda: self.stopping)
        self.tell(state=JobState.DECODING)
        models.measured(self._measure(pair))
        self.tell(state=JobState.DONE)
