"""Jobs that decode one prompt: a decode that then maps the run's dial, if requested, a race of three lanes, and walks
of several rules.

The functions that record, map, race and walk are arguments.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from mars_viz.backend_choice import BUILT_IN, BackendChoice
from mars_viz.errors import BadInput, MarsVizError
from mars_viz.exploration import Stand, Together, mapped
from mars_viz.race import RECORDED, Race, RaceStep, RaceStore, RaceTexts
from mars_viz.run import Run, Settings
from mars_viz.runstore import RunStore, new_name, read
from mars_viz.ui.jobs.models import Job, JobState, Models, P, Progress, Rank, Throttle

if TYPE_CHECKING:
    from mars_viz.race import Racing
    from mars_viz.recording import Mapping as Mapper
    from mars_viz.recording import Recording

MAPPING_SECONDS = 120.0
"""Working time after which the job stops a map, because sweeps wait behind it. A map may be resumed any number of
times."""
TURN = 0.25  # seconds of mapping after which waiting decodes run first

_log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Decoded(Progress):
    """Snapshot of a decode's progress."""

    tokens: int = 0
    rounds: int = 0
    so_far: Run | None = None  # the rounds so far, updated less often than `rounds`
    complete: bool = False  # True after the last round
    saved: str = ""  # the run's name in the store; empty until it is saved
    unsaved: str = ""  # why the run could not be saved, in a sentence; empty if there was no error
    exact: float = 0.0  # share of the dial's range with a known text, over all draft lengths
    open: int = 0  # number of texts of other settings still being decoded

    @property
    def run(self) -> Run | None:
        """The run, after it has ended or was cancelled; None if no round was decoded."""
        return self.so_far if self.complete else None

    @property
    def tau(self) -> float:
        """Tokens per round so far; NaN before the first round."""
        return self.tokens / self.rounds if self.rounds else math.nan

    @property
    def text(self) -> str:
        """The text so far, updated less often than `tokens`."""
        return "" if self.so_far is None else self.so_far.text


def since(before: Any, now: Any) -> Any:
    """Return a run, walks or the texts of a race with only the rounds, pieces and tokens that `before` lacks."""
    if before is None or now is None:
        return now
    if isinstance(now, Together):
        return replace(now, answers={each: now.answers[each] for each in now.answers if each not in before.answers})
    if isinstance(now, RaceTexts):
        alone = now.alone[len(before.alone) :]
        return RaceTexts(alone, since(before.strict, now.strict), since(before.relaxed, now.relaxed))
    now = replace(now, rounds=now.rounds[len(before.rounds) :])
    if isinstance(now, Run):
        pieces = {token: piece for token, piece in now.pieces.items() if token not in before.pieces}
        now = replace(now, pieces=pieces)
    return now


def grown(before: Any, more: Any) -> Any:
    """Return `before` extended by `more`, which is from `since`."""
    if before is None or more is None:
        return more if before is None else before
    if isinstance(more, Together):
        return replace(more, answers={**before.answers, **more.answers})
    if isinstance(more, RaceTexts):
        alone = (*before.alone, *more.alone)
        return RaceTexts(alone, grown(before.strict, more.strict), grown(before.relaxed, more.relaxed))
    more = replace(more, rounds=(*before.rounds, *more.rounds))
    return replace(more, pieces={**before.pieces, **more.pieces}) if isinstance(more, Run) else more


class GrowingJob(Job[P]):
    """Job of one session, whose snapshot has a field that grows. Only its new parts are sent, as `more`."""

    private: ClassVar[bool] = True
    grows: ClassVar[str]  # name of the field

    def tell_more(self, now: Any, **news: object) -> None:
        """Update the growing field to `now`, and other fields."""
        self.tell(more=since(getattr(self.progress, self.grows), now), **news)

    def after(self, news: Mapping[str, Any]) -> P:
        """Append the new parts."""
        if "more" in news:
            more = grown(getattr(self.progress, self.grows), news["more"])
            news = {name: value for name, value in news.items() if name != "more"} | {self.grows: more}
        return super().after(news)


def unmapped(pair: Any, run: Run) -> None:
    """Return None: `chart` for decodes without a map."""


@dataclass(frozen=True, slots=True)
class Ways:
    """How a decode job records, maps and saves."""

    record: Callable[..., Recording]  # takes a pair, a prompt and settings, and `chat` as a keyword
    chart: Callable[[Any, Run], Mapper | None] = unmapped  # makes the mapper; None if there is nothing to map
    store: RunStore | None = None  # store that saves the run from its first round on; None to save nothing
    name: str = ""  # name of the saved run; empty for a new name
    maker: str = ""  # mark of the browser that started the run, saved with it
    over: str = ""  # name of the controller whose threshold is mapped; empty to map the rule's dial


class DecodeJob(GrowingJob[Decoded]):
    """Decodes one prompt, then maps the run's dial. Waiting decodes run before the map."""

    grows = "so_far"

    def __init__(self, prompt: str, settings: Settings, ways: Ways, choice: BackendChoice = BUILT_IN) -> None:
        """`choice` selects the models."""
        super().__init__(Decoded(JobState.QUEUED))
        self.prompt, self.settings, self.choice = prompt, settings, choice
        self.new_tokens = settings.max_new_tokens
        self.over = ways.over  # name of the controller whose threshold is mapped; empty for the rule's dial
        self.maker = ways.maker  # mark of the browser that started the run
        self._ways = ways

    @classmethod
    def mapping(cls, run: Run, saved: str, ways: Ways, choice: BackendChoice = BUILT_IN) -> DecodeJob:
        """Return a job that only maps `run`, resuming its map. `saved` is the run's name in the store, if it has
        one."""
        job = cls(run.prompt, run.settings, ways, choice)
        job._progress = replace(job.progress, so_far=run, complete=True, saved=saved)
        return job

    @property
    def rank(self) -> Rank:
        """SHORT while decoding, MAP afterwards."""
        return Rank.SHORT if self.progress.run is None else Rank.MAP

    def work(self, models: Models[Any]) -> Iterator[None]:
        """Decode to the end of the text, then map in turns."""
        pair = models.pair(self.choice, lambda: self.stopping)
        run = self._decoded(pair) if self.progress.run is None else self.progress.run
        mapper = None if run is None or self.stopping else self._ways.chart(pair, run)
        if run is not None and mapper is not None:
            self.tell(state=JobState.MAPPING)
            yield
            yield from self._map(run, mapper)

    def fail(self, error: str) -> None:
        """End the job as FAILED, but keep the decoded rounds."""
        try:
            self.tell(complete=True)
        except Exception:  # the first error may have been in this very update
            _log.exception("The progress of a failed decode could not be reported.")
        super().fail(error)

    def _decoded(self, pair: Any) -> Run | None:
        """Decode to the end of the text, and save the run while it grows. Return None if cancelled."""
        recorder = self._ways.record(pair, self.prompt, self.settings)
        keeping = Keeping(self._ways.store, self._ways.name, self._ways.maker)
        try:
            self.tell(state=JobState.DECODING)
            rounds, looks, writes = 0, Throttle(), Throttle()
            for rounds, _ in enumerate(() if self.stopping else recorder, start=1):
                self.tell(tokens=len(recorder.token_ids), rounds=rounds)
                if self.stopping:
                    break
                if looks.due:
                    with looks:
                        self.tell_more(recorder.run())
                if writes.due and self.progress.so_far is not None:
                    with writes:
                        keeping.write(self.progress.so_far)
            run = recorder.run() if rounds else None
            if run is not None:
                keeping.finish(run)
                self.tell_more(run, complete=True)
            self.tell(saved=keeping.name, unsaved=keeping.error)
            return None if self.stopping else run
        finally:
            keeping.leave()

    def _map(self, run: Run, mapper: Mapper) -> Iterator[None]:
        """Map in turns of TURN seconds; each step is a batched pass. If the map ends, is cancelled or fails, or has
        used MAPPING_SECONDS, keep the run with the map so far: in the store, or as progress if the run is not
        stored."""
        spent, began = 0.0, time.monotonic()
        try:
            steps = iter(mapper)
            while not self.stopping and (step := next(steps, None)) is not None:
                self.tell(exact=step.exact, open=step.open)
                turn = time.monotonic() - began
                if turn >= TURN:
                    spent += turn
                    if spent >= MAPPING_SECONDS and not self.stopping:
                        break
                    yield
                    began = time.monotonic()
            mapped_run = mapped(run, mapper.map())
            if self._ways.store is None or not self.progress.saved:
                self.tell(so_far=mapped_run)
            else:
                try:
                    self._ways.store.replace(self.progress.saved, mapped_run)
                except MarsVizError:
                    self.tell(so_far=mapped_run)
                    raise
            self.tell(state=JobState.DONE)
        except MarsVizError as error:
            self.tell(state=JobState.DONE, error=str(error))


class Keeping:
    """Saves a growing run to a store. A disk error ends the saving but not the decode."""

    def __init__(self, store: RunStore | None, name: str = "", maker: str = "") -> None:
        """Begin a journal under `name`, or under a new name if it is empty. No-op if `store` is None."""
        self.name = ""  # the run's name in the store; empty until it is saved
        self.error = ""
        self._store, self._journal = store, None if store is None else self._tried(store.begin, name, maker)

    def write(self, run: Run) -> None:
        """Save the rounds so far."""
        if self._journal is not None and not self.error:
            self._tried(self._journal.write, run)

    def finish(self, run: Run) -> None:
        """Save the finished run."""
        if self._store is not None and self._journal is not None:
            self.name = self._tried(self._store.finish, self._journal, run) or ""

    def leave(self) -> None:
        """Close the journal. An unfinished run stays in the store as interrupted, unless it has no rounds."""
        if self._store is not None and self._journal is not None and not self.name:
            self._store.leave(self._journal)

    def _tried(self, save: Callable[..., T], *what: object) -> T | None:
        try:
            return save(*what)
        except BadInput as error:
            self.error = f"The run is not saved: {error}"
            return None


@dataclass(frozen=True, slots=True)
class Raced(Progress):
    """Snapshot of a race's progress."""

    step: RaceStep | None = None
    texts: RaceTexts = RaceTexts()  # the lanes' texts so far, updated less often than `step`
    race: Race | None = None
    saved: str = ""  # name of the saved race's folder
    unsaved: str = ""  # why the race could not be saved, in a sentence


class RaceJob(GrowingJob[Raced]):
    """Decodes one race."""

    grows = "texts"

    def __init__(
        self,
        make: Callable[[Any], Racing],
        prompt: str,
        settings: Settings,
        choice: BackendChoice = BUILT_IN,
        folder: Path | None = None,
        name: str = "",
        maker: str = "",
    ) -> None:
        """`make` makes the racer from a pair. `prompt` and `settings` are for display. The race is saved in `folder`,
        if given, under `name` or a new name, with the browser's mark `maker`."""
        super().__init__(Raced(JobState.QUEUED))
        self.choice, self.prompt, self.settings = choice, prompt, settings
        self._make, self._folder, self._name, self.maker = make, folder, name, maker
        self.new_tokens = settings.max_new_tokens

    def work(self, models: Models[Any]) -> None:
        """Race to the end. A cancelled race is discarded."""
        racer = self._make(models.pair(self.choice, lambda: self.stopping))
        self.tell(state=JobState.DECODING)
        looks, complete = Throttle(), False
        for step in () if self.stopping else racer:
            self.tell(step=step)
            if self.stopping:
                break
            if not complete and (looks.due or step.turn != RECORDED):
                complete = step.turn != RECORDED  # the texts are complete
                with looks:
                    self.tell_more(racer.texts())
        if self.stopping:
            return
        race, saved, unsaved = racer.race(), "", ""
        if self._folder is not None:
            try:
                saved = RaceStore(self._folder).save(race, self._name or new_name("race"), self.maker)
            except BadInput as error:
                unsaved = f"The race is not saved: {error}"
        self.tell(state=JobState.DONE, race=race, saved=saved, unsaved=unsaved)


Walk = Callable[[Any, Run, Sequence[Stand]], Iterable[Together]]  # each step is a batched pass


@dataclass(frozen=True, slots=True)
class Walked(Progress):
    """Snapshot of the walks' progress."""

    together: Together | None = None  # the walks so far; None before the first pass


class WalkJob(GrowingJob[Walked]):
    """Walks several rules from one run."""

    grows = "together"

    def __init__(
        self, run: Run, stands: Sequence[Stand], walk: Walk, path: Path | None = None, choice: BackendChoice = BUILT_IN
    ) -> None:
        """`walk` makes the walks with the models of `choice`. `path` is the run's saved file, if any."""
        super().__init__(Walked(JobState.QUEUED))
        self.asked, self.stands, self.choice = run, stands, choice
        self._walk, self._path = walk, path
        self.new_tokens = run.settings.max_new_tokens

    def __getstate__(self) -> dict[str, Any]:
        """Leave out a saved run: with its map it is large, and `work` reads it from its file."""
        return super().__getstate__() | ({} if self._path is None else {"asked": None})

    def work(self, models: Models[Any]) -> None:
        """Walk to the end or until cancelled; completed rounds are kept."""
        pair = models.pair(self.choice, lambda: self.stopping)
        run = read(self._path) if self.asked is None and self._path is not None else self.asked
        self.tell(state=JobState.DECODING)
        looks, together = Throttle(), None
        for together in () if self.stopping else self._walk(pair, run, self.stands):
            if looks.due:
                with looks:
                    self.tell_more(together)
            if self.stopping:
                break
        if together is not None:
            self.tell_more(together)
