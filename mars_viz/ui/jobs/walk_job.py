"""Job that walks several rules from one run's prompt.

The function that walks is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from mars_viz.backend_choice import BUILT_IN, BackendChoice
from mars_viz.multi_rule_walk import Stand, Together
from mars_viz.run import Run
from mars_viz.runstore import read
from mars_viz.ui.jobs.job import Job, JobState, Progress, Throttle
from mars_viz.ui.jobs.models import Models

Walk = Callable[[Any, Run, Sequence[Stand]], Iterable[Together]]
"""Walks rules from a run's prompt with a pair; each step is a batched pass."""


@dataclass(frozen=True, slots=True)
class Walked(Progress):
    """Snapshot of the walks' progress."""

    together: Together | None = None  # the walks so far; None before the first pass


class WalkJob(Job[Walked]):
    """Walks several rules from one run."""

    private: ClassVar[bool] = True

    def __init__(
        self, run: Run, stands: Sequence[Stand], walk: Walk, path: Path | None = None, choice: BackendChoice = BUILT_IN
    ) -> None:
        """`walk` makes the walks with the models of `choice`. `path` is the run's saved file, if any."""
        super().__init__(Walked(JobState.QUEUED))
        self.asked, self.stands, self.choice = run, stands, choice
        self._walk, self._path = walk, path

    def __getstate__(self) -> dict[str, Any]:
        """Leave out a saved run: with its map it is large, and `work` reads it from its file."""
        return super().__getstate__() | ({} if self._path is None else {"asked": None})

    @property
    def new_tokens(self) -> int:
        """Token limit from the settings."""
        return self.asked.settings.max_new_tokens

    def work(self, models: Models[Any]) -> None:
        """Walk to the end or until cancelled; completed rounds are kept."""
        pair = models.pair(self.choice, lambda: self.stopping)
        run = read(self._path) if self.asked is None and self._path is not None else self.asked
        self.tell(state=JobState.DECODING)
        looks, together = Throttle(), None
        for together in () if self.stopping else self._walk(pair, run, self.stands):
            if looks.due:
                with looks:
                    self._tell(together)
            if self.stopping:
                break
        if together is not None:
            self._tell(together)
        self.tell(state=JobState.CANCELLED if self.stopping else JobState.DONE)

    def after(self, news: Mapping[str, Any]) -> Walked:
        """Append the new rounds, sent as `more`."""
        if "more" in news:
            news = {"together": _grown(self.progress.together, news["more"])}
        return super().after(news)

    def _tell(self, together: Together) -> None:
        sent = self.progress.together
        walks = together.walks
        if sent is not None:
            pairs = zip(sent.walks, walks, strict=True)
            walks = tuple(replace(walk, rounds=walk.rounds[len(before.rounds) :]) for before, walk in pairs)
        self.tell(more=Together(walks, together.passes))


def _grown(current: Together | None, more: Together) -> Together:
    if current is None:
        return more
    pairs = zip(current.walks, more.walks, strict=True)
    walks = tuple(replace(walk, rounds=(*before.rounds, *walk.rounds)) for before, walk in pairs)
    return Together(walks, more.passes)
