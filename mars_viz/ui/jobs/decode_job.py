"""A decode as a job: a prompt to its end, round by round, and then the map of its dial where one is wanted.

Knows settings, and recordings as something to iterate; how to record and to map are arguments.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

from mars_viz.backend_choice import BUILT_IN, BackendChoice
from mars_viz.dialmap import DialMap
from mars_viz.dialmap import MapProgress as Mapped
from mars_viz.errors import BadInput, MarsVizError
from mars_viz.records import Round
from mars_viz.run import Run, Settings
from mars_viz.run_with_map import mapped
from mars_viz.runstore import Journal, RunStore
from mars_viz.ui.jobs.job import Job, JobState, Progress, Rank, Throttle
from mars_viz.ui.jobs.models import Models

MAPPING_SECONDS = 120.0
"""Of its own work, after which a map behind a run stops where it is, for others' sweeps wait. It goes on as often as
somebody asks."""
TURN = 0.25
"""Seconds of mapping, after which whoever waits for a text goes first."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Decoded(Progress):
    """What is known of a decode at one moment."""

    tokens: int = 0
    """Emitted so far."""
    rounds: int = 0
    """Draft-verify cycles so far."""
    so_far: Run | None = None
    """The rounds so far; it may lag behind `rounds` by a moment."""
    complete: bool = False
    """True once no more rounds will come."""
    saved: str = ""
    """The run's name in the store, once it is there."""
    unsaved: str = ""
    """Why it could not be saved, in a sentence; empty where nothing went wrong."""
    exact: float = 0.0
    """Share of the dial's range, all draft lengths together, whose text is known."""
    open: int = 0
    """Texts of other settings that are being followed."""

    @property
    def run(self) -> Run | None:
        """What was decoded, once the text is complete or was cut short; None if it came to nothing."""
        return self.so_far if self.complete else None

    @property
    def tau(self) -> float:
        """Tokens per round so far; NaN before the first."""
        return self.tokens / self.rounds if self.rounds else math.nan

    @property
    def text(self) -> str:
        """The text so far; it may lag behind `tokens` by a moment."""
        return "" if self.so_far is None else self.so_far.text


def since(known: Run | None, run: Run) -> Run:
    """What of a growing run is new to somebody who has `known` of it."""
    if known is None:
        return run
    pieces = {token: piece for token, piece in run.pieces.items() if token not in known.pieces}
    return replace(run, rounds=run.rounds[len(known.rounds) :], pieces=pieces)


def grown(known: Run | None, more: Run) -> Run:
    """The run, of what is known of it and what is new."""
    if known is None:
        return more
    return replace(more, rounds=(*known.rounds, *more.rounds), pieces={**known.pieces, **more.pieces})


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
    """A dial map in the making, such as `mars_viz.record_map.Mapping`."""

    def __iter__(self) -> Iterator[Mapped]:
        """Map; each step is a batched pass."""
        ...

    def map(self) -> DialMap:
        """The map so far."""
        ...


def unmapped(pair: Any, run: Run) -> None:
    """For decodes whose dial nobody wants mapped."""


@dataclass(frozen=True, slots=True)
class Ways:
    """How decoding is done."""

    record: Callable[..., Recorder]
    """Make a recorder of a pair, a prompt and settings, by keyword also of `chat`."""
    chart: Callable[[Any, Run], Mapper | None] = unmapped
    """Makes what maps the dial of a finished run, or None where there is nothing to map."""
    store: RunStore | None = None
    """Keeps the run, from its first round on; None where nobody wants it kept."""
    name: str = ""
    """Under which it is kept; empty for a new one."""
    maker: str = ""
    """The mark of the browser that asked for it, noted where it is kept."""
    over: str = ""
    """The controller whose threshold is mapped, by name; empty for the rule's dial."""


class Growing:
    """A map on its way, of a run that is complete: what a job holds of it between two turns of others."""

    def __init__(self, run: Run, mapper: Mapper):
        """Nothing is asked yet."""
        self._run, self._mapper, self._steps = run, mapper, iter(mapper)
        self._spent = 0.0

    def turn(self, wanted: Callable[[], bool]) -> Iterator[Mapped]:
        """Go on for a moment, as long as it is `wanted`; each step is a batched pass."""
        began, spent = time.monotonic(), 0.0
        while wanted() and (step := next(self._steps, None)) is not None:
            yield step
            spent = time.monotonic() - began
            if spent >= TURN:
                self._spent += spent
                return
        self._spent = math.inf

    @property
    def within(self) -> bool:
        """True until it is complete, or has taken as long as one map may."""
        return self._spent < MAPPING_SECONDS

    def run(self) -> Run:
        """The run with the map so far."""
        return mapped(self._run, self._mapper.map())


class DecodeJob(Job[Decoded]):
    """One prompt to decode, for one asker, and the map of its run's dial, which lets other decodes go first."""

    private: ClassVar[bool] = True

    def __init__(self, prompt: str, settings: Settings, ways: Ways, choice: BackendChoice = BUILT_IN) -> None:
        """`choice` says with which models."""
        super().__init__(Decoded(JobState.QUEUED))
        self.prompt, self.settings, self.choice = prompt, settings, choice
        self._ways = ways
        self._growing: Growing | None = None

    @classmethod
    def mapping(cls, run: Run, saved: str, ways: Ways, choice: BackendChoice = BUILT_IN) -> DecodeJob:
        """Of a run that is decoded: its map goes on from where it stopped. `saved` is its name in the store, if any."""
        job = cls(run.prompt, run.settings, ways, choice)
        job._progress = replace(job.progress, so_far=run, complete=True, saved=saved)
        return job

    @property
    def over(self) -> str:
        """The controller whose threshold it maps, by name; empty for the rule's dial."""
        return self._ways.over

    @property
    def new_tokens(self) -> int:
        """Of its settings."""
        return self.settings.max_new_tokens

    @property
    def maker(self) -> str:
        """The mark of the browser that asked for it."""
        return self._ways.maker

    @property
    def rank(self) -> Rank:
        """Once the text is there, whoever waits for one goes first."""
        return Rank.SHORT if self.progress.run is None else Rank.MAP

    def work(self, models: Models[Any]) -> None:
        """Decode, then map, a moment at a time."""
        run = self.progress.run
        if run is None or self._growing is None:
            pair = models.pair(self.choice, lambda: self.stopping)
            run = self._decoded(pair) if run is None else run
            mapper = None if run is None or self.stopping else self._ways.chart(pair, run)
            if run is None or mapper is None:
                self._end_without_a_map()
                return
            self._growing = Growing(run, mapper)
            self.tell(state=JobState.MAPPING)
            return
        self._map(self._growing)

    def after(self, news: Mapping[str, Any]) -> Decoded:
        """Told as `more`, a run is its new rounds alone."""
        if "more" in news:
            news = {**news, "so_far": grown(self.progress.so_far, news["more"])}
        return super().after({name: value for name, value in news.items() if name != "more"})

    def let_go(self) -> None:
        """The map's caches above all."""
        super().let_go()
        self._growing = None

    def _decoded(self, pair: Any) -> Run | None:
        recorder = self._ways.record(pair, self.prompt, self.settings)
        keeping = Keeping(self._ways.store, self._ways.name, self._ways.maker)
        try:
            return self._decode(recorder, keeping)
        finally:
            keeping.leave()

    def _end_without_a_map(self) -> None:
        if not self.progress.state.finished:
            self.tell(state=JobState.DONE)

    def fail(self, error: str) -> None:
        """What had been decoded is there in any case."""
        try:
            self.tell(complete=True)
        except Exception:  # which may be the very thing that failed before
            _log.exception("What had been decoded could not be told.")
        super().fail(error)

    def _decode(self, recorder: Recorder, keeping: Keeping) -> Run | None:
        """Decode to the end of the text; None where it was stopped before."""
        self.tell(state=JobState.DECODING)
        rounds, looks, writes = 0, Throttle(), Throttle()
        for rounds, _ in enumerate(() if self.stopping else recorder, start=1):
            self.tell(tokens=len(recorder.token_ids), rounds=rounds)
            if self.stopping:
                break
            if looks.due:
                with looks:
                    self.tell(more=since(self.progress.so_far, recorder.run()))
            if writes.due and self.progress.so_far is not None:
                with writes:
                    keeping.write(self.progress.so_far)
        run = recorder.run() if rounds else None
        if run is not None:
            keeping.finish(run)
            self.tell(more=since(self.progress.so_far, run), complete=True)
        self.tell(saved=keeping.name, unsaved=keeping.error)
        if self.stopping or run is None:
            self.tell(state=JobState.CANCELLED if self.stopping else JobState.DONE)
            return None
        return run

    def _map(self, growing: Growing) -> None:
        """Map the run's dial for a moment; once it is done, stopped, or fails, keep what there is. The run itself is
        there in any case."""
        try:
            for progress in growing.turn(lambda: not self.stopping):
                self.tell(exact=progress.exact, open=progress.open)
            if growing.within and not self.stopping:
                return
            self._keep(growing.run())
            self.tell(state=JobState.DONE)
        except MarsVizError as error:
            self.tell(state=JobState.DONE, error=str(error))

    def _keep(self, charted: Run) -> None:
        """A map goes where its run is kept, to be opened from there; only where it is not, it is told."""
        if self._ways.store is None or not self.progress.saved:
            self.tell(so_far=charted)
            return
        try:
            self._ways.store.replace(self.progress.saved, charted)
        except MarsVizError:
            self.tell(so_far=charted)
            raise


class Keeping:
    """A run on its way into a store. A disk that refuses ends the keeping and not the decode."""

    def __init__(self, store: RunStore | None, name: str = "", maker: str = "") -> None:
        """Begin a journal, where there is a store, under that name or a new one, of the browser of that mark."""
        self.name = ""
        """In the store, once the run is there."""
        self.error = ""
        """Why it is not kept."""
        self._store = store
        self._journal: Journal | None = None
        if store is not None:
            with self._noting():
                self._journal = store.begin(name, maker)

    def write(self, run: Run) -> None:
        """Keep the rounds so far."""
        if self._journal is not None and not self.error:
            with self._noting():
                self._journal.write(run)

    def finish(self, run: Run) -> None:
        """Keep the whole run."""
        if self._store is not None and self._journal is not None:
            with self._noting():
                self.name = self._store.finish(self._journal, run)

    def leave(self) -> None:
        """Let go: what is not finished by now stays as an interrupted run, unless there is nothing of it."""
        if self._store is not None and self._journal is not None and not self.name:
            self._store.leave(self._journal)

    @contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except BadInput as error:
            self.error = f"The run is not saved: {error}"
