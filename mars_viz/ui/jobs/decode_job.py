"""Jobs that decode one prompt: a decode that then maps the run's dial, if requested, a race of three lanes, and walks
of several rules.

The functions that record, map, race and walk are arguments.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mars_viz.backend_choice import BUILT_IN, BackendChoice
from mars_viz.errors import BadInput, MarsVizError
from mars_viz.exploration import Stand, Together, mapped
from mars_viz.race import RECORDED, Race, RaceStep, RaceStore, RaceTexts
from mars_viz.run import Run, Settings
from mars_viz.runstore import RunStore, new_name, read
from mars_viz.ui.jobs.models import LEFT, Events, Interrupted, Job, JobState, Progress, Rank, Throttle, nothing
from mars_viz.words import counted

if TYPE_CHECKING:
    from mars_viz.race import Racing
    from mars_viz.recording import Mapping as Mapper
    from mars_viz.recording import Recording

MAPPING_SECONDS = 120.0
"""Working time after which the job stops a map, because sweeps wait behind it. A map may be resumed any number of
times."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Decoded(Progress):
    """Snapshot of a decode's progress."""

    prompt: str = ""
    settings: Settings = Settings()
    tokens: int = 0
    rounds: int = 0
    so_far: Run | None = None  # the rounds so far, updated less often than `rounds`
    complete: bool = False  # True after the last round
    saved: str = ""  # the run's name in the store; empty until it is saved
    unsaved: str = ""  # why the run could not be saved, in a sentence; empty if there was no error
    exact: float = 0.0  # share of the dial's range with a known text, over all draft lengths

    @property
    def run(self) -> Run | None:
        """The run, after it has ended or was cancelled; None if no round was decoded."""
        return self.so_far if self.complete or self.state.finished else None

    @property
    def ending(self) -> str:
        """How the decode was cut short, in a sentence; empty if it was not."""
        after = f"after {counted(self.tokens, 'token')}" if self.run else "before the first token"
        if self.state is JobState.CANCELLED:
            return f"{LEFT if self.abandoned else 'You stopped the decode'} {after}."
        return f"The decode failed {after}." if self.state is JobState.FAILED else ""

    @property
    def tau(self) -> float:
        """Tokens per round so far; NaN before the first round."""
        return self.tokens / self.rounds if self.rounds else math.nan

    @property
    def text(self) -> str:
        """The text so far, updated less often than `tokens`."""
        return "" if self.so_far is None else self.so_far.text


@dataclass(frozen=True, slots=True)
class Ways:
    """How a decode job records, maps and saves."""

    record: Callable[..., Recording]  # takes a pair, a prompt and settings, and `chat` as a keyword
    chart: Callable[[Any, Run], Mapper | None] | None = None  # makes the mapper; either None if nothing is mapped
    store: RunStore | None = None  # store that saves the run from its first round on; None to save nothing
    name: str = ""  # name of the saved run; empty for a new name
    maker: str = ""  # mark of the browser that started the run, saved with it


def decode_job(prompt: str, settings: Settings, ways: Ways, choice: BackendChoice = BUILT_IN) -> Job[Decoded]:
    """Return a job that decodes one prompt with the models of `choice`, then maps the run's dial. Waiting decodes run
    before the map."""
    progress = Decoded(prompt=prompt, settings=settings)
    work = partial(_decode, prompt, settings, ways)
    return Job(progress, work, choice, new_tokens=settings.max_new_tokens)


def finished_job(run: Run, saved: str) -> Job[Decoded]:
    """Return the finished job of a saved run, for display."""
    progress = Decoded(JobState.DONE, prompt=run.prompt, settings=run.settings, so_far=run, saved=saved)
    return Job(replace(progress, tokens=len(run.token_ids), rounds=len(run.rounds)), nothing)


def map_job(run: Run, saved: str, ways: Ways, choice: BackendChoice = BUILT_IN) -> Job[Decoded]:
    """Return a job that only maps `run`, resuming its map. `saved` is the run's name in the store, if it has one."""
    progress = Decoded(prompt=run.prompt, settings=run.settings, so_far=run, complete=True, saved=saved)
    work, tokens = partial(_map, run, saved, ways), run.settings.max_new_tokens
    return Job(progress, work, choice, Rank.MAP, new_tokens=tokens)


def _decode(prompt: str, settings: Settings, ways: Ways, pair: Any) -> Events:
    """Decode to the end of the text, save the run while it grows, and map it unless cancelled."""
    recorder = ways.record(pair, prompt, settings)
    keeping = Keeping(ways.store, ways.name, ways.maker)
    rounds, writes, stopped = 0, Throttle(), True
    try:
        with suppress(Interrupted):  # completed rounds are kept
            for rounds, _ in enumerate(recorder, start=1):
                yield {"tokens": len(recorder.token_ids), "rounds": rounds, "so_far": recorder.run}
                writes(lambda: keeping.write(recorder.run()))
            stopped = False
        if not rounds:
            return None
        run = recorder.run()
        keeping.finish(run)
        yield {"so_far": run, "complete": True, "saved": keeping.name, "unsaved": keeping.error}
    finally:
        keeping.leave()
    return None if stopped else (yield from _map(run, keeping.name, ways, pair))


def _map(run: Run, saved: str, ways: Ways, pair: Any) -> Events:
    """Map a run's dial; each step is a batched pass. If the map ends, is cancelled or fails, or has used
    MAPPING_SECONDS, keep the run with the map so far: in the store, or as progress if the run is not stored."""
    if ways.chart is None or (mapper := ways.chart(pair, run)) is None:
        return None
    news: dict[str, Any] = {"state": JobState.DONE}
    try:
        with suppress(Interrupted):
            yield {"state": JobState.MAPPING}
            spent, began = 0.0, time.monotonic()
            for step in mapper:
                spent += time.monotonic() - began
                yield {"exact": step.exact}
                if spent >= MAPPING_SECONDS:
                    break
                began = time.monotonic()  # without the turns of other jobs
        news["so_far"] = mapped(run, mapper.map())
        if ways.store is not None and saved:
            ways.store.replace(saved, news["so_far"])
            del news["so_far"]
    except MarsVizError as error:
        news["error"] = str(error)
    return news


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

    prompt: str = ""
    settings: Settings = Settings()
    step: RaceStep | None = None
    texts: RaceTexts = RaceTexts()  # the lanes' texts so far, updated less often than `step`
    race: Race | None = None
    saved: str = ""  # name of the saved race's folder
    unsaved: str = ""  # why the race could not be saved, in a sentence


def race_job(
    make: Callable[[Any], Racing],
    prompt: str,
    settings: Settings,
    choice: BackendChoice = BUILT_IN,
    folder: Path | None = None,
    name: str = "",
    maker: str = "",
) -> Job[Raced]:
    """Return a job that decodes one race. `make` makes the racer from a pair. `prompt` and `settings` are for display.
    The race is saved in `folder`, if given, under `name` or a new name, with the browser's mark `maker`."""
    work = partial(_race, make, folder, name or new_name("race"), maker)
    progress = Raced(prompt=prompt, settings=settings)
    return Job(progress, work, choice, new_tokens=settings.max_new_tokens)


def _race(make: Callable[[Any], Racing], folder: Path | None, name: str, maker: str, pair: Any) -> Events:
    """Race to the end. A cancelled race is discarded."""
    racer, complete = make(pair), False
    for step in racer:
        yield {"step": step} if complete else {"step": step, "texts": racer.texts}
        if not complete and step.turn != RECORDED:
            complete = True
            yield {"texts": racer.texts()}
    race, saved, unsaved = racer.race(), "", ""
    if folder is not None:
        try:
            saved = RaceStore(folder).save(race, name, maker)
        except BadInput as error:
            unsaved = f"The race is not saved: {error}"
    return {"race": race, "saved": saved, "unsaved": unsaved}


Walk = Callable[[Any, Run, Sequence[Stand]], Iterable[Together]]  # each step is a batched pass


@dataclass(frozen=True, slots=True)
class Walked(Progress):
    """Snapshot of the walks' progress."""

    run: Run | None = None  # the run from whose prompt the rules walk
    together: Together | None = None  # the walks so far, with answers at the end; None before the first pass


def walk_job(
    run: Run, stands: Sequence[Stand], walk: Walk, path: Path | None = None, choice: BackendChoice = BUILT_IN
) -> Job[Walked]:
    """Return a job that walks several rules from one run with the models of `choice`. `path` is the run's saved file,
    if any: it is read from there, because a run with its map is large."""
    work = partial(_walk, path or run, stands, walk)
    return Job(Walked(run=run), work, choice, new_tokens=run.settings.max_new_tokens)


def _walk(source: Run | Path, stands: Sequence[Stand], walk: Walk, pair: Any) -> Events:
    """Walk to the end or until cancelled; completed rounds are kept."""
    together: Together | None = None
    with suppress(Interrupted):
        for together in walk(pair, read(source) if isinstance(source, Path) else source, stands):
            yield {"together": replace(together, answers={})}
    return {"together": together}
