"""What jobs run with the models: decodes and their maps, races, walks of several rules, measurements and grades.

The model libraries are imported inside functions, so that pages never import these.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mars_viz.analysis.intervals import Steps, combined
from mars_viz.analysis.map_grid import along_dial
from mars_viz.axis import RuleDial
from mars_viz.backend_choice import BUILT_IN, BackendChoice
from mars_viz.demo.tasks import FREE_WORDING
from mars_viz.errors import BadInput, MarsVizError, ModelError
from mars_viz.exploration import Budget, Segment, Stand, Together, mapped, useful_span
from mars_viz.prompts import PromptItem
from mars_viz.prompts.builtin import builtin_prompts
from mars_viz.prompts.items import grader_named
from mars_viz.race import RECORDED, Race, RaceStep, RaceStore, RaceTexts, Racing
from mars_viz.recording import Mapping, Recording
from mars_viz.rules import rule_named
from mars_viz.run import Run, Settings
from mars_viz.runstore import RunStore, new_name, read
from mars_viz.samples import GradedExercises
from mars_viz.ui.jobs.models import (
    LEFT,
    Device,
    Events,
    Interrupted,
    Job,
    JobState,
    Models,
    Progress,
    Rank,
    TaskStep,
    Tell,
    Throttle,
    nothing,
)
from mars_viz.words import counted


def models() -> Models[Any]:
    return Models(load, _look, _release)


def load(choice: BackendChoice, tell: Tell) -> Any:
    """Load the backend. Raises BadInput with the remedy if that fails."""
    libraries(tell)
    from mars_viz.speculators.loading import load_backend

    return load_backend(**choice.arguments, folders=choice.folders, tell=tell)


def libraries(tell: Tell) -> None:
    """Import the model libraries, which takes seconds. Raises ModelError with the remedy if one is missing."""
    tell("Starting PyTorch and transformers", 0.0)
    try:
        import mars_viz.speculators.loading  # noqa: F401
    except ImportError as error:
        raise ModelError(
            f"Decoding needs PyTorch and transformers, and {error.name} is missing; install requirements.txt. "
            "Recorded runs open without them."
        ) from error


def _look(backend: Any) -> Device:
    from mars_viz.speculators.devices import bytes_free, bytes_used

    place, weights = backend.place, backend.target.weights + backend.drafter.weights
    names = backend.target.name, backend.drafter.name
    free, template = bytes_free(place), backend.tokenizer.has_template
    return Device(backend.device, backend.dtype, bytes_used(place), free, weights, names, backend.notes, template)


def _release() -> None:
    from mars_viz.speculators.devices import give_back

    give_back()


def prepare(models: Models[Any]) -> Events:
    """Import the model libraries before a user needs them, as the work of a job."""
    try:
        libraries(models.set_doing)
    finally:
        models.set_doing()
    yield {}
    return None


def unload(models: Models[Any]) -> Events:
    """Drop the models, as the work of a job."""
    models.rest()
    yield {}
    return None


MAPPING_SECONDS = 120.0
"""Working time after which the job stops a map, because sweeps wait behind it. A map may be resumed any number of
times."""
BRANCHES = 48  # maximum number of branches decoded at once for a map, which limits the memory for caches


@dataclass(frozen=True, slots=True)
class Decoded(Progress):
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

    record: Callable[..., Recording]  # takes a pair, a prompt and settings
    chart: Callable[[Any, Run], Mapping | None] | None = None  # makes the mapper; either None if nothing is mapped
    store: RunStore | None = None  # store that saves the run from its first round on; None to save nothing
    name: str = ""  # name of the saved run; empty for a new name
    maker: str = ""  # mark of the browser that started the run, saved with it


def decode_job(prompt: str, settings: Settings, ways: Ways, choice: BackendChoice = BUILT_IN) -> Job[Decoded]:
    """Return a job that decodes one prompt with the models of `choice`, then maps the run's dial. Waiting decodes run
    before the map."""
    progress, work = Decoded(prompt=prompt, settings=settings), partial(_decode, prompt, settings, ways)
    return Job(progress, work, choice, new_tokens=settings.max_new_tokens)


def finished_job(run: Run, saved: str) -> Job[Decoded]:
    progress = Decoded(JobState.DONE, prompt=run.prompt, settings=run.settings, so_far=run, saved=saved)
    return Job(replace(progress, tokens=len(run.token_ids), rounds=len(run.rounds)), nothing)


def map_job(run: Run, saved: str, ways: Ways, choice: BackendChoice = BUILT_IN) -> Job[Decoded]:
    """Return a job that only maps `run`, resuming its map. `saved` is the run's name in the store, if it has one."""
    progress = Decoded(prompt=run.prompt, settings=run.settings, so_far=run, complete=True, saved=saved)
    return Job(progress, partial(_map, run, saved, ways), choice, Rank.MAP, new_tokens=run.settings.max_new_tokens)


def _decode(prompt: str, settings: Settings, ways: Ways, pair: Any) -> Events:
    """Decode to the end of the text, save the run while it grows, and map it unless cancelled. An error of the disk
    ends the saving and not the decode. An unfinished run stays in the store as interrupted."""
    recorder, store, saved, unsaved = ways.record(pair, prompt, settings), ways.store, "", ""

    def tried(save: Callable[..., Any], *what: object) -> Any:
        nonlocal unsaved
        try:
            return save(*what)
        except BadInput as error:
            unsaved = f"The run is not saved: {error}"

    journal = None if store is None else tried(store.begin, ways.name, ways.maker)
    rounds, writes, stopped = 0, Throttle(), True
    try:
        with suppress(Interrupted):  # completed rounds are kept
            for rounds, _ in enumerate(recorder, start=1):
                yield {"tokens": len(recorder.token_ids), "rounds": rounds, "so_far": recorder.run}
                if journal is not None and not unsaved:
                    writes(lambda: tried(journal.write, recorder.run()))
            stopped = False
        if not rounds:
            return None
        run = recorder.run()
        if store is not None and journal is not None:
            saved = tried(store.finish, journal, run) or ""
        yield {"so_far": run, "complete": True, "saved": saved, "unsaved": unsaved}
    finally:
        if store is not None and journal is not None and not saved:
            store.leave(journal)
    return None if stopped else (yield from _map(run, saved, ways, pair))


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


def chart(backend: Any, run: Run) -> Mapping | None:
    """Return the mapper that resumes the run's map, or begins that of its dial over the useful range, at every draft
    length up to the run's own. None if there is no map and the rule has no dial."""
    if run.map is None and rule_named(run.settings.rule).dial is None:
        return None
    how: dict[str, Any] = {"chat": bool(run.provenance.chat), "history": run.history, "title": run.title}
    span = useful_span(run.settings) if run.map is None else run.map.span
    return Mapping(backend, run.prompt, run.settings, span, budget=Budget(branches=BRANCHES), run=run, **how)


@dataclass(frozen=True, slots=True)
class Raced(Progress):
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
    return Job(Raced(prompt=prompt, settings=settings), work, choice, new_tokens=settings.max_new_tokens)


def _race(make: Callable[[Any], Racing], folder: Path | None, name: str, maker: str, pair: Any) -> Events:
    """Race to the end. A cancelled race is discarded."""
    racer, complete = make(pair), False
    for step in racer:
        yield {"step": step} if complete else {"step": step, "texts": racer.texts}
        if not complete and step.turn != RECORDED:
            complete = True
            yield {"texts": racer.texts()}
    news: dict[str, Any] = {"race": racer.race()}
    if folder is not None:
        try:
            news["saved"] = RaceStore(folder).save(news["race"], name, maker)
        except BadInput as error:
            news["unsaved"] = f"The race is not saved: {error}"
    return news


Walk = Callable[[Any, Run, Sequence[Stand]], Iterable[Together]]  # each step is a batched pass


@dataclass(frozen=True, slots=True)
class Walked(Progress):
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


def measure(settings: Settings, backend: Any, most: int = 0) -> Iterator[TaskStep]:
    """Measure the cost of passes over up to γ tokens with these settings, or of rounds of up to `most` texts."""
    from mars_viz.speculators.costs import Measuring, MeasuringBatches

    measuring: Measuring[Any] = Measuring(backend, settings.gamma, settings=settings)
    measuring = MeasuringBatches(backend, settings, most) if most else measuring
    for share in measuring:
        yield share, None
    yield 1.0, measuring.costs()


PER_TASK = 20  # number of exercises graded per built-in task in free wording
LOW = 0.5  # smallest θ of the maps used for grading


def grade(pair: Any, per_task: int = PER_TASK) -> Iterator[TaskStep]:
    """Map `per_task` built-in exercises of each kind in free wording, and yield the number of right answers at
    every θ."""
    settings = Settings(rule="mars", max_new_tokens=144)
    span = RuleDial(rule_named("mars")).span(LOW, None, (settings.gamma,))
    prompts = builtin_prompts(per_task, kinds=FREE_WORDING).items
    items = sorted(prompts, key=lambda item: int(item.id.rsplit("-", 1)[1]))  # alternate the kinds
    grades: list[Steps] = []
    for done, item in enumerate(items, start=1):
        dial_map = Mapping(pair, item.prompt, settings, span).finish()
        if dial_map.complete:  # 1 where the text answers the exercise correctly and 0 elsewhere, along the dial
            grades.append(along_dial(dial_map.segments, partial(_right, item, dial_map.frame)))
        right = combined(lambda *each: np.sum(each, axis=0), *grades) if grades else None
        yield done / len(items), None if right is None else GradedExercises(len(grades), right)


def _right(item: PromptItem, frame: Run, segment: Segment) -> float:
    return grader_named(item.grader).grade(item.answer or "", frame.decode(segment.token_ids))
