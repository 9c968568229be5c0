"""State of the Tune page: a sweep's cached figures, one tab's view, and the sweeps that a tab can open.

These are the sweeps in the results folder, those just started, and the samples. Figures are computed on first use; all
tabs share them, so they must not depend on a tab. The sweeps are on disk and in the worker.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import streamlit as st

from mars_viz import default_folders, locks, samples
from mars_viz.analysis.intervals import Bootstrap
from mars_viz.backend_choice import BUILT_IN, BackendChoice
from mars_viz.demo import is_built_in
from mars_viz.errors import BadInput, RunFileError, contained
from mars_viz.options import option
from mars_viz.sweep import Plan, load_sweep
from mars_viz.sweep.grid import MOST, GridAxis, varied_axis
from mars_viz.sweep.measures import METHODS, Terms
from mars_viz.sweep.plan import comparable
from mars_viz.sweep.report import CachedSweep
from mars_viz.sweep.store import SweepEntry, list_sweeps
from mars_viz.sweep.sweep import SweepLoop
from mars_viz.sweep.wall_clock import WallClock
from mars_viz.ui import links, tab_jobs
from mars_viz.ui.classroom import rights
from mars_viz.ui.jobs.models import Events, Job, Progress, Rank, TaskStep
from mars_viz.ui.library import told_apart
from mars_viz.ui.links import Opened
from mars_viz.ui.session import PageState
from mars_viz.words import clipped, counted, number


@dataclass(frozen=True, slots=True)
class Sweeping(Progress):
    labels: Mapping[Path, str] = field(default_factory=dict)  # label of each sweep by its results' folder
    choice: BackendChoice = BUILT_IN  # models of the sweep
    finished: int = 0  # prompts with results, including those from before this job
    before: int = 0  # prompts finished before this job
    prompts: int = 0  # number of prompts; 0 until the models are loaded
    failed: int = 0  # prompts without results in this job
    share: float = 0.0  # finished part of the current prompt's dial
    seconds: float = 0.0  # time that this job spent on prompts, without other jobs in between

    @property
    def part(self) -> float:
        return 0.0 if not self.prompts else min(1.0, (self.finished + self.share) / self.prompts)

    @property
    def left(self) -> float:
        """Estimated remaining seconds; NaN until this job has finished a prompt."""
        done = self.finished - self.before
        return math.nan if done < 1 else (self.prompts - self.finished) * self.seconds / done


def sweep_job(
    labels: Mapping[Path, str], make: Callable[[Any], SweepLoop], choice: BackendChoice = BUILT_IN
) -> Job[Sweeping]:
    """Return a job that runs one sweep or the sweeps of a grid, with other jobs in between. Finished prompts are saved
    at once.

    `labels` has the results' folder of each sweep with its label. `make` begins or resumes them with a pair.
    """
    return Job(Sweeping(labels=labels, choice=choice), partial(_sweep, make), choice, Rank.LONG)


def _sweep(make: Callable[[Any], SweepLoop], pair: Any) -> Events:
    """Run the sweep; each step is one batched pass."""
    sweep = make(pair)
    now = sweep.progress
    yield {"finished": now.finished, "before": now.finished, "prompts": now.prompts}
    spent, began = 0.0, time.perf_counter()
    for now in sweep:
        spent += time.perf_counter() - began
        yield {"finished": now.finished, "failed": now.failed, "share": now.share, "seconds": spent}
        began = time.perf_counter()  # without the turns of other jobs
    return None


def timed_check(make: Callable[[Any], WallClock], pair: Any) -> Iterator[TaskStep]:
    """Run a wall-clock check, which `make` prepares with a pair."""
    clock = make(pair)
    for done, decodes in clock:
        yield done / decodes, None
    yield 1.0, clock.check()


def going(now: Sweeping) -> str:
    if not now.prompts:
        return "Loading the models and measuring what their passes cost on this device …"
    words = f"{number(now.finished)} of {counted(now.prompts, 'prompt')} done"
    if now.failed:
        words += f", {number(now.failed)} of them without results"
    if math.isnan(now.left):
        return words
    left = f"{number(round(now.left / 3600, 1))} hours"
    if now.left < 5400:
        left = counted(round(now.left / 60), "minute")
    if now.left < 90:
        left = counted(max(1, round(now.left)), "second")
    return f"{words}; about {left} to go"


KEY = ("accuracy", "accuracy_change", "answer", "answer_strict", "drafted_share", "tau", "length", "looping", "same")
"""Key figures next to the frontier."""
POINTS, CONFIDENCE, BCA = 1.0, 0.95, "bca"
LEAST_POINTS, MOST_CONFIDENCE = 0.001, 0.9999  # limits of the page's fields; no prompt set is large enough beyond these
MOST_COMPARED = 4  # maximum number of other sweeps on the frontier
REFRESH = 2.0  # minimum seconds between two redraws of a growing sweep
RESTS = 5.0  # minimum pause between two redraws, as a multiple of the time that the last one took


def _others(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, text.split(","))))[:MOST_COMPARED]


def _tolerated(label: str, about: str, link: str = "") -> Any:
    """Return an option in percentage points."""
    return option(POINTS, label, about, kind=float, low=LEAST_POINTS, high=100.0, step=0.5, link=link)


@dataclass(frozen=True, slots=True)
class TuneView:
    sweep: str = links.text("sweep")  # name of the sweep's folder; empty for the newest
    dial: float | None = links.number("dial")  # the chosen setting; None for the recommended one
    others: tuple[str, ...] = links.parameter("with", _others, ",".join, ())  # names of sweeps to compare with
    points: float = _tolerated(
        "Tolerated loss of accuracy, points", "A setting is safe where its loss is shown to be no larger", "loss"
    )
    confidence: float = option(
        CONFIDENCE, "Confidence", "For the safe range and all intervals of this sweep", kind=float, low=0.5,
        high=MOST_CONFIDENCE, step=0.01,
    )  # fmt: skip
    intervals: str = option(
        BCA, "Intervals by the bootstrap", "BCa corrects the percentile interval for bias and skew", choices=(*METHODS,)
    )
    cut_off: float = _tolerated("Tolerated increase of answers cut off, points", "Answers that end at the length limit")
    looping: float = _tolerated(
        "Tolerated increase of looping answers, points", "Answers that repeat a phrase without a break"
    )

    @property
    def terms(self) -> Terms:
        how = Bootstrap(self.confidence, METHODS[self.intervals])
        return Terms(self.points, how, self.cut_off, self.looping)


@dataclass(frozen=True, slots=True)
class ShownResults:
    """Results that a tab shows."""

    sweep: str
    finished: int  # number of finished prompts when they were drawn, also if nothing could be shown
    began: float  # start of the drawing, monotonic seconds
    ended: float  # end of the drawing

    def outdated(self, sweep: str, finished: int, now: float) -> bool:
        """Return True if more prompts have finished and a redraw would not slow the server down."""
        waits = max(REFRESH, RESTS * (self.ended - self.began))
        return self.sweep == sweep and finished > self.finished and now - self.ended >= waits


@dataclass(slots=True)
class TunePageState(PageState):
    names_run: ClassVar[bool] = False
    view: TuneView = field(default_factory=TuneView)
    folder: Path = field(default_factory=default_folders.sweeps)  # folder of the results
    drawn: ShownResults = ShownResults("", 0, 0.0, 0.0)
    begun: int = 0  # number of sweeps started with the form, which closes the form

    def fit(self, plan: Plan) -> None:
        wrong = links.misplaced(self.view.dial, (plan.symbol, plan.low, plan.high))
        self.settle_on(Opened(replace(self.view, dial=None), (wrong,)) if wrong else Opened(self.view))

    def open(self, sweep: str) -> None:
        """Open another sweep at its recommended setting."""
        self.look(sweep=sweep, dial=None, others=())


_KEPT = 6  # maximum number of sweeps in memory
_SAMPLE = "sample:"  # prefix of the ids of included samples


def jobs_in(results: Path) -> dict[str, Job[Sweeping]]:
    """Return the jobs of sweeps in this results folder or one level below, by the sweep's id, newest last."""
    sweeps = ((path, job) for path, job in tab_jobs.shared_worker().names().items() if isinstance(path, Path))
    return {path.relative_to(results).as_posix(): job for path, job in sweeps if results in tuple(path.parents)[:2]}


def new_folder(results: Path, rule: str, now: datetime | None = None) -> Path:
    """Return a new, unused folder for a sweep, named by time and rule."""
    now = now or datetime.now(UTC)
    name = f"{now:%Y%m%d-%H%M%S}-{rule}"
    taken = jobs_in(results)
    names = (name if count == 1 else f"{name}-{count}" for count in range(1, 10_000))
    return next(results / each for each in names if each not in taken and not (results / each).exists())


@dataclass(frozen=True, slots=True)
class SweepCatalogue:
    entries: Mapping[str, SweepEntry]
    """Sweeps on disk by id, newest first. The id is the folder's name, with the parent's if it is one level down. Ids
    are only looked up and never opened as paths."""
    jobs: Mapping[str, Job[Sweeping]]  # jobs by the same ids: unfinished, or ended since the server started
    error: str = ""  # why the folder cannot be listed; empty if it can

    @property
    def labels(self) -> dict[str, str]:
        fresh = {}  # jobs without a folder; failed ones stay with their error, cancelled ones are left out
        for name, job in self.jobs.items():
            if name not in self.entries and (job.progress.error or not job.progress.state.finished):
                labels = {folder.name: label for folder, label in job.progress.labels.items()}
                fresh[name] = f"{labels[PurePosixPath(name).name]} ({'failed' if job.progress.error else 'beginning'})"
        return told_apart(fresh | {name: self._label(entry) for name, entry in self.entries.items()})

    def running(self, name: str) -> Job[Sweeping] | None:
        """Return the unfinished job of this sweep, if any."""
        job = self.jobs.get(name)
        return None if job is None or job.progress.state.finished else job

    def landed(self, view: TuneView) -> tuple[TuneView, str]:
        """Return the view with an existing sweep, and a sentence if the requested sweep is missing."""
        labels = self.labels
        if view.sweep in labels:
            gone = [clipped(each) for each in view.others if each not in self.entries]
            lost = f"Not here any more, so not overlaid: {', '.join(gone)}." if gone else ""
            return replace(view, others=tuple(each for each in view.others if each in self.entries)), lost
        first = next(iter(labels), "")
        fallback = "; the newest is shown" if first else ""
        lost = f"There is no sweep “{clipped(view.sweep)}” in the folder for results{fallback}." if view.sweep else ""
        return replace(view, sweep=first, dial=None, others=()), lost

    def opened(self, name: str) -> CachedSweep | None:
        """Return the sweep's figures; None if no prompt has finished. Raises BadInput if it cannot be read."""
        entry = self.entries.get(name)
        if entry is None or (not entry.error and not entry.finished):
            return None
        if entry.error:
            raise RunFileError(entry.error)
        try:
            changed = (entry.path / "sweep.json").stat().st_mtime_ns
        except OSError as error:
            why = f"The sweep {entry.path.name} cannot be read ({error.strerror}). Choose another."
            raise RunFileError(why) from error
        with contained(f"The sweep {entry.path.name}"):
            return _study(entry.path, entry.finished, changed)

    def beside(self, name: str) -> dict[str, str]:
        """Return the finished sweeps that can be compared with this one, with their labels."""
        base = self.entries[name].plan
        labels = {
            other: _short_label(entry.plan, base)
            for other, entry in self.entries.items()
            if other != name and entry.complete and base and entry.plan and _same_reference(base, entry.plan)
        }
        return told_apart(labels)

    def left_beside(self, name: str) -> tuple[SweepEntry, ...]:
        """Return the unfinished sweeps that can continue together with this one: the newest of each other variant of
        its rule with the same settings that nothing is running."""
        own, newest = self.entries[name], dict[str, SweepEntry]()
        for other, entry in self.entries.items():
            if own.plan is None or entry.plan is None or entry.path.parent != own.path.parent or self.running(other):
                continue
            axis = None if own.complete or entry.complete else _grid_axis(own.plan, entry.plan)
            if axis is not None and not axis.over and own.plan.span == entry.plan.span:
                newest.setdefault(entry.plan.settings.rule, entry)
        return tuple(each for each in newest.values() if locks.holder(each.path) is None)[: MOST - 1]

    def variants(self, name: str) -> dict[str, str]:
        """Return the finished sweeps that form a grid with this one along one axis, the newest for each value, with
        their labels."""
        entry = self.entries.get(name)
        if entry is None or entry.plan is None or not entry.complete:
            return {}
        base, labels = entry.plan, self.beside(name)
        by_axis: dict[str, dict[float, str]] = {each.key: {} for each in base.rule.fixed}
        for other, each in self.entries.items():
            if other != name and each.complete and each.plan and (axis := _grid_axis(base, each.plan)):
                by_axis.setdefault(axis.setting.key, {}).setdefault(axis.value_of(each.plan.settings), other)
                labels.setdefault(other, _short_label(each.plan, base))
        return {other: labels[other] for other in max(by_axis.values(), key=len, default={}).values()}

    def _label(self, entry: SweepEntry) -> str:
        if entry.plan is None:
            return f"{entry.path.name} (cannot be read)"
        if samples.is_sample_sweep(entry.path):
            return f"Sample · {sweep_label(entry.plan)}"
        share = "" if entry.complete else f", {number(entry.finished)} of {number(entry.plan.prompts)} done"
        return f"{sweep_label(entry.plan)} · {entry.plan.provenance.created[:16].replace('T', ' ')}{share}"


def _same_reference(base: Plan, other: Plan) -> bool:
    """Return True if both have the same reference: strict with drafts of one length, or for thresholds of controllers
    the same drafts of full length and the same rule."""
    alike = base.over == other.over and base.settings.controller == other.settings.controller
    if base.over and other.over:
        alike = base.settings == other.settings
    return alike and comparable(base, other)


def _grid_axis(base: Plan, other: Plan) -> GridAxis | None:
    """Return the axis of a grid of these two sweeps of a rule's dial: the controller's threshold if one cuts drafts,
    otherwise a fixed setting. None if they form no grid."""
    if base.over or other.over or base.rule.policy is not other.rule.policy:
        return None
    with suppress(BadInput):
        axis = varied_axis([base, other])
        if bool(axis.over) == (base.cut_by is not None) and (not axis.over or base.span == other.span):
            return axis
    return None


def shelf(results: Path) -> SweepCatalogue:
    shipped = sample_sweeps() if samples.wanted() else {}
    if rights.is_student():
        return SweepCatalogue(shipped, {})
    jobs = jobs_in(results)
    try:
        entries = list_sweeps(results)
    except BadInput as error:
        return SweepCatalogue(shipped, jobs, str(error))
    by_id = {entry.path.relative_to(results).as_posix(): entry for entry in entries}
    return SweepCatalogue(by_id | shipped, jobs)


@cache
def sample_sweeps() -> dict[str, SweepEntry]:
    """Return the samples by id, in the order of their folders' names."""
    entries = sorted(list_sweeps(samples.SWEEPS), key=lambda entry: entry.path.name)
    return {f"{_SAMPLE}{entry.path.name}": entry for entry in entries}


def sweep_label(plan: Plan) -> str:
    tree, drafter = "" if plan.settings.drafts_plainly else f", {plan.settings.draft}", plan.provenance.drafter or ""
    tree += "" if is_built_in(drafter) else f", {clipped(drafter, 40)}"
    return f"{plan.title}{tree} · {clipped(plan.prompt_set, 40)}, {number(plan.prompts)} prompts"


def _short_label(plan: Plan, base: Plan) -> str:
    draft = "" if plan.settings.drafts_like(base.settings) else f", {plan.settings.draft}"
    return f"{plan.title}{draft} · {plan.provenance.created[:16].replace('T', ' ')}"


@st.cache_resource(max_entries=_KEPT, show_spinner=False)
def _study(path: Path, finished: int, changed: int) -> CachedSweep:
    """Return the figures of a sweep. The other arguments make the cache read a grown sweep again."""
    return CachedSweep(load_sweep(path))
