"""The sweeps that a tab can open: those in the folder of results, those that are just beginning, and the samples.

Knows folders, jobs and Streamlit's cache; knows no models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path, PurePosixPath

import streamlit as st

from mars_viz import locks, samples
from mars_viz.controllers import NONE
from mars_viz.errors import BadInput, RunFileError, contained
from mars_viz.sweep import Plan, load_sweep
from mars_viz.sweep.grid import MOST
from mars_viz.sweep.plan import comparable
from mars_viz.sweep.store import SweepEntry, list_sweeps
from mars_viz.ui import tab_jobs
from mars_viz.ui.classroom import rights
from mars_viz.ui.library import told_apart
from mars_viz.ui.links import clipped
from mars_viz.ui.tune.cached_sweep import CachedSweep
from mars_viz.ui.tune.jobs import SweepJob
from mars_viz.ui.tune.page_state import TuneView
from mars_viz.words import number

_KEPT = 6  # sweeps in memory
_SAMPLE = "sample:"  # before the id of one that comes with the product


def jobs_in(results: Path) -> dict[str, SweepJob]:
    """Jobs on sweeps in this folder of results or one level below it, by the sweep's id, the newest last."""
    named = tab_jobs.shared_worker().names().items()
    sweeps = ((path, job) for path, job in named if isinstance(path, Path) and isinstance(job, SweepJob))
    return {path.relative_to(results).as_posix(): job for path, job in sweeps if results in tuple(path.parents)[:2]}


def new_folder(results: Path, rule: str, now: datetime | None = None) -> Path:
    """A folder for a new sweep, named by when and what; nothing is there yet, and no job is on it."""
    now = now or datetime.now(UTC)
    name = f"{now:%Y%m%d-%H%M%S}-{rule}"
    taken = jobs_in(results)
    names = (name if count == 1 else f"{name}-{count}" for count in range(1, 10_000))
    return next(results / each for each in names if each not in taken and not (results / each).exists())


@dataclass(frozen=True, slots=True)
class SweepCatalogue:
    """What a tab can choose from at one moment."""

    entries: Mapping[str, SweepEntry]
    """Sweeps on disk by id, which is the folder's name, behind its parent's where it lies one level further down; only
    looked up, never opened as a path. The newest first."""
    jobs: Mapping[str, SweepJob]
    """Jobs by the same ids: under way, or ended since the server started."""
    error: str = ""
    """Why the folder cannot be listed; empty if it can."""

    @property
    def labels(self) -> dict[str, str]:
        """A line for each sweep by its id, those that are just beginning first."""
        fresh = {
            name: f"{_named(job, name)} ({'failed' if job.progress.error else 'beginning'})"
            for name, job in self.jobs.items()
            if name in self._beginning
        }
        return told_apart(fresh | {name: self._label(entry) for name, entry in self.entries.items()})

    @property
    def _beginning(self) -> set[str]:
        """Jobs that have no folder yet. One that failed stays, with its reason; one that was cancelled is gone."""
        gone = {name for name, job in self.jobs.items() if job.progress.state.finished and not job.progress.error}
        return set(self.jobs) - set(self.entries) - gone

    def running(self, name: str) -> SweepJob | None:
        """The job on this sweep, if it is under way."""
        job = self.jobs.get(name)
        return None if job is None or job.progress.state.finished else job

    def landed(self, view: TuneView) -> tuple[TuneView, str]:
        """The view, on a sweep that there is, and a sentence where it asked for one that there is not."""
        labels = self.labels
        if view.sweep in labels:
            gone = [clipped(each) for each in view.others if each not in self.entries]
            lost = f"Not here any more, so not overlaid: {', '.join(gone)}." if gone else ""
            return replace(view, others=tuple(each for each in view.others if each in self.entries)), lost
        first = next(iter(labels), "")
        shown = "; the newest is shown" if first else ""
        lost = f"There is no sweep “{clipped(view.sweep)}” in the folder for results{shown}." if view.sweep else ""
        return replace(TuneView(sweep=first), points=view.points, confidence=view.confidence), lost

    def opened(self, name: str) -> CachedSweep | None:
        """The sweep's figures; None where nothing of it is finished yet. Raises BadInput where it cannot be read."""
        entry = self.entries.get(name)
        if entry is None or (not entry.error and not entry.finished):
            return None
        if entry.error:
            raise RunFileError(entry.error)
        try:
            changed = (entry.path / "sweep.json").stat().st_mtime_ns
        except OSError as error:
            raise RunFileError(
                f"The sweep {entry.path.name} cannot be read ({error.strerror}). Choose another."
            ) from error
        with contained(f"The sweep {entry.path.name}"):
            return _study(entry.path, entry.finished, changed)

    def beside(self, name: str) -> dict[str, str]:
        """Finished sweeps that can be compared with this one, with their labels."""
        own = self.entries[name].plan
        return told_apart(
            {
                other: _short_label(entry.plan, own)
                for other, entry in self.entries.items()
                if other != name and entry.complete and own and entry.plan and _beside(own, entry.plan)
            }
        )

    def left_beside(self, name: str) -> tuple[SweepEntry, ...]:
        """Unfinished sweeps that can go on together with this one: its rule's other variants, begun alike, that nobody
        works on; of each variant the newest."""
        own = self.entries[name]
        found: dict[str, SweepEntry] = {}
        for other, entry in self.entries.items():
            if entry.path.parent == own.path.parent and not self.running(other) and _together(own, entry):
                assert entry.plan is not None  # or it went on with none
                found.setdefault(entry.plan.settings.rule, entry)
        return tuple(each for each in found.values() if locks.holder(each.path) is None)[: MOST - 1]

    def variants(self, name: str) -> dict[str, str]:
        """Finished sweeps that make a grid with this one, with their labels: those of its rule that differ from it in
        one fixed setting, for each value the newest."""
        entry = self.entries.get(name)
        if entry is None or entry.plan is None or not entry.complete:
            return {}
        own, labels = entry.plan, self.beside(name)
        if own.cut_by is not None:
            return self._at_thresholds(name, own)
        found: dict[str, dict[float, str]] = {each.key: {} for each in own.rule.fixed}
        for other in labels:
            plan = self.entries[other].plan
            assert plan is not None  # or it could not be compared
            differ = [
                each.key for each in own.rule.fixed if plan.rule.values.get(each.key) != own.rule.values[each.key]
            ]
            alike = plan.rule.family == own.rule.family and plan.settings.drafts_like(own.settings)
            if alike and plan.rule.policy is own.rule.policy and len(differ) == 1:
                found[differ[0]].setdefault(plan.rule.values[differ[0]], other)
        most = max(found.values(), key=len, default={})
        return {other: labels[other] for other in most.values()}

    def _at_thresholds(self, name: str, own: Plan) -> dict[str, str]:
        """Those of its rule by drafts that its controller cuts at other thresholds, for each the newest."""
        found: dict[float, str] = {}
        for other, entry in self.entries.items():
            plan = entry.plan
            if other == name or plan is None or not entry.complete or not _of_a_grid(own, plan):
                continue
            assert plan.settings.control is not None
            found.setdefault(plan.settings.control.threshold, other)
        plans = {other: self.entries[other].plan for other in found.values()}
        return {other: _short_label(plan, own) for other, plan in plans.items() if plan is not None}

    def _label(self, entry: SweepEntry) -> str:
        if entry.plan is None:
            return f"{entry.path.name} (cannot be read)"
        if samples.is_sample_sweep(entry.path):
            return f"Sample · {sweep_label(entry.plan)}"
        share = "" if entry.complete else f", {number(entry.finished)} of {number(entry.plan.prompts)} done"
        return f"{sweep_label(entry.plan)} · {_when(entry.plan)}{share}"


def _beside(own: Plan, other: Plan) -> bool:
    """Whether what both compare their settings with is alike: strict by drafts of one length, or of controllers'
    thresholds the same drafts of full length by the same rule."""
    if own.controller is None or other.controller is None:
        alike = own.over == other.over and own.settings.controller == other.settings.controller
    else:
        alike = own.settings == other.settings
    return alike and comparable(own, other)


def _of_a_grid(own: Plan, other: Plan) -> bool:
    """Whether two sweeps of a rule's dial differ in the threshold at which their controller cuts drafts alone."""
    controls = own.settings.control, other.settings.control
    if None in controls or own.cut_by is not other.cut_by or own.settings.controller == other.settings.controller:
        return False
    alike = replace(own.settings, controller=NONE) == replace(other.settings, controller=NONE)
    return alike and own.span == other.span and comparable(own, other)


def _together(own: SweepEntry, other: SweepEntry) -> bool:
    """Whether two unfinished sweeps differ in their rule's fixed settings alone."""
    if own.plan is None or other.plan is None or own.complete or other.complete:
        return False
    rules = (own.plan.rule, other.plan.rule)
    alike = rules[0].family == rules[1].family and own.plan.span == other.plan.span
    alike = alike and own.plan.settings.drafts_like(other.plan.settings) and rules[0].policy is rules[1].policy
    return alike and rules[0].name != rules[1].name and comparable(own.plan, other.plan)


def _named(job: SweepJob, name: str) -> str:
    wanted = PurePosixPath(name).name
    return next((label for folder, label in job.labels.items() if folder.name == wanted), job.label)


def shelf(results: Path) -> SweepCatalogue:
    """What is in this folder of results now, and the samples after it; for a student the samples alone."""
    shipped = sample_sweeps() if samples.wanted() else {}
    if rights.is_student():
        return SweepCatalogue(shipped, {})
    jobs = jobs_in(results)
    try:
        entries = list_sweeps(results)
    except BadInput as error:
        return SweepCatalogue(shipped, jobs, str(error))
    own = {entry.path.relative_to(results).as_posix(): entry for entry in entries}
    return SweepCatalogue(own | shipped, jobs)


@cache
def sample_sweeps() -> dict[str, SweepEntry]:
    """By id, in the order of their folders' names."""
    entries = sorted(list_sweeps(samples.SWEEPS), key=lambda entry: entry.path.name)
    return {f"{_SAMPLE}{entry.path.name}": entry for entry in entries}


def sweep_label(plan: Plan) -> str:
    """'MARS · built-in tasks, 300 prompts'."""
    tree = "" if plan.settings.drafts_plainly else f", {plan.settings.draft}"
    return f"{plan.title}{tree} · {_short(plan.prompt_set)}, {number(plan.prompts)} prompts"


def _short_label(plan: Plan, own: Plan) -> str:
    """Of a sweep that shares its prompts with another: 'MARS, γ = 4 · 22 Nov 15:17'."""
    draft = "" if plan.settings.drafts_like(own.settings) else f", {plan.settings.draft}"
    return f"{plan.title}{draft} · {_when(plan)}"


def _when(plan: Plan) -> str:
    try:
        return f"{datetime.fromisoformat(plan.provenance.created):%d %b %H:%M}"
    except ValueError:
        return "some time"


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"


@st.cache_resource(max_entries=_KEPT, show_spinner=False)
def _study(path: Path, finished: int, changed: int) -> CachedSweep:
    """A sweep read; what was read of it before it went on is another."""
    return CachedSweep(load_sweep(path))
