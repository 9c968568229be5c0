"""A decode as a job: a prompt to its end, round by round, and then the map of its dial where one is wanted.

Knows settings, and recordings as something to iterate; how to record and to map are arguments.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from mars_viz.dialmap import DialMap
from mars_viz.dialmap import Progress as Mapped
from mars_viz.errors import MarsVizError
from mars_viz.mapped import mapped
from mars_viz.records import Round
from mars_viz.run import Run, Settings
from mars_viz.ui.models import BUILT_IN, Choice, Models
from mars_viz.ui.worker import Job, JobState, Progress

TEXT_EVERY = 0.25
"""Seconds between two renderings of the text so far, at the least."""


@dataclass(frozen=True, slots=True)
class Decoded(Progress):
    """What is known of a decode at one moment."""

    tokens: int = 0
    """Emitted so far."""
    rounds: int = 0
    """Draft-verify cycles so far."""
    text: str = ""
    """The text so far; it may lag behind `tokens` by a moment."""
    run: Run | None = None
    """What was decoded, once the text is complete or was cut short; None if it came to nothing."""
    exact: float = 0.0
    """Share of the dial's range whose text is known."""

    @property
    def tau(self) -> float:
        """Tokens per round so far; NaN before the first."""
        return self.tokens / self.rounds if self.rounds else math.nan


class Recorder(Protocol):
    """A decode in progress, such as `mars_viz.recording.Recording`."""

    @property
    def token_ids(self) -> tuple[int, ...]:
        """What has been emitted so far."""
        ...

    def __iter__(self) -> Iterator[Round]:
        """Decode; each step makes one round."""
        ...

    def run(self) -> Run:
        """The rounds so far."""
        ...


class Mapper(Protocol):
    """A dial map in the making, such as `mars_viz.mapping.Mapping`."""

    def __iter__(self) -> Iterator[Mapped]:
        """Map; each step is a batched pass."""
        ...

    def map(self) -> DialMap:
        """The map so far."""
        ...


@dataclass(frozen=True, slots=True)
class Ways:
    """How decoding is done."""

    record: Callable[[Any, str, Settings], Recorder]
    """Makes a recorder of pair, prompt and settings."""
    chart: Callable[[Any, Run], Mapper | None] = lambda pair, run: None
    """Makes what maps the dial of a finished run, or None where there is nothing to map."""


class DecodeJob(Job[Decoded]):
    """One prompt to decode, for one asker."""

    def __init__(self, prompt: str, settings: Settings, ways: Ways, choice: Choice = BUILT_IN) -> None:
        """`choice` says with which models."""
        super().__init__(Decoded(JobState.QUEUED))
        self.prompt, self.settings, self.choice = prompt, settings, choice
        self._ways = ways

    def work(self, models: Models[Any]) -> None:
        """Decode, then map."""
        pair = models.pair(self.choice)
        run = self._decode(self._ways.record(pair, self.prompt, self.settings))
        if run is not None:
            self._map(run, self._ways.chart(pair, run))

    def _decode(self, recorder: Recorder) -> Run | None:
        """Decode to the end of the text; None where it was stopped before."""
        self.tell(state=JobState.DECODING)
        rounds, render_after = 0, 0.0
        for rounds, _ in enumerate(() if self.stopping else recorder, start=1):
            self.tell(tokens=len(recorder.token_ids), rounds=rounds)
            if self.stopping:
                break
            began = time.monotonic()
            if began >= render_after:
                self.tell(text=recorder.run().text)
                render_after = time.monotonic() + max(TEXT_EVERY, 10 * (time.monotonic() - began))
        run = recorder.run() if rounds else None
        if self.stopping or run is None:
            state = JobState.CANCELLED if self.stopping else JobState.DONE
            self.tell(state=state, run=run, text=run.text if run else "")
            return None
        self.tell(run=run, text=run.text)
        return run

    def _map(self, run: Run, mapper: Mapper | None) -> None:
        """Map the run's dial until it is done, stopped, or fails; the run itself is there in any case."""
        if mapper is None:
            self.tell(state=JobState.DONE)
            return
        self.tell(state=JobState.MAPPING)
        try:
            for progress in mapper:
                self.tell(exact=progress.exact)
                if self.stopping:
                    break
            self.tell(state=JobState.DONE, run=mapped(run, mapper.map()))
        except MarsVizError as error:
            self.tell(state=JobState.DONE, error=str(error))
