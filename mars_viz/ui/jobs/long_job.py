"""A job of many steps that may take hours: between two of them whoever waits for a decode goes first.

Knows jobs; knows no models and no Streamlit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mars_viz.ui.jobs.job import Job, JobState, P, Rank
from mars_viz.ui.jobs.models import Models


class LongJob(Job[P]):
    """A kind of job says in `steps` what it does. It goes on when the tab that asked for it is closed: what takes hours
    is meant to survive that, and whoever opens the page later finds it and can stop it."""

    @property
    def rank(self) -> Rank:
        """Behind all others."""
        return Rank.LONG

    def __init__(self, progress: P) -> None:
        """A job that waits; `progress` is its first snapshot."""
        super().__init__(progress)
        self._left: Iterator[None] | None = None

    def steps(self, models: Models[Any]) -> Iterator[None]:
        """Do it; each time it yields, others may come in between. Raises what is wrong."""
        raise NotImplementedError

    def work(self, models: Models[Any]) -> None:
        """Take a step, or end."""
        if self._left is None:
            self._left = self.steps(models)
        ended = None
        try:
            with models.lending(self):
                if self.stopping:
                    ended = JobState.CANCELLED
                elif next(self._left, True):
                    ended = JobState.DONE
        except BaseException:
            self._let_go(models)
            raise
        if ended is not None:
            self._let_go(models)
            self.tell(state=ended)

    def _let_go(self, models: Models[Any]) -> None:
        left, self._left = self._left, None  # and with it all that its steps held
        if left is not None and hasattr(left, "close"):
            left.close()
        models.given_back(self)
