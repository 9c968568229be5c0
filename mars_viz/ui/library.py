"""Catalog of the runs that a tab can open: recorded runs on the server, and the tab's own decoded or uploaded runs. All
tabs share a memory cache of recorded runs."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mars_viz import default_folders, samples
from mars_viz.errors import BadInput, RunFileError, contained
from mars_viz.escapes import visible
from mars_viz.run import Run
from mars_viz.runlist import labels_of, listed_runs, of_tab
from mars_viz.runstore import GONE, ListedRun, Makers, RunOrigin, RunStatus, read
from mars_viz.ui import theme
from mars_viz.ui.classroom import rights
from mars_viz.ui.classroom.rights import class_view
from mars_viz.ui.links import View
from mars_viz.ui.session import Session, bound

MOST = 32  # maximum number of cached runs; more than on Compare, or each rerun would read them all again

NOTHING_YET = "There is no run here yet. Decode a prompt on Explore first, or open the zip of a run's folder there."
NO_SAMPLES = f"This server shows no sample runs ({samples.VARIABLE})."
NONE_CHOSEN = f"{NO_SAMPLES} Choose a run from the list, or decode a prompt on Explore."
_OWN = re.compile(r"(live|upload)-[0-9a-f]{8}")  # ids of a tab's own runs


@dataclass(frozen=True, slots=True)
class RunCatalogue:
    own: Mapping[str, Run]  # runs decoded or uploaded in this tab, by id, oldest first
    recorded: Mapping[str, ListedRun]
    """Recorded runs on the server by id, which is a name and not a path: the samples, then saved runs."""
    error: str = ""  # why the recorded runs cannot be listed; empty if they can
    shown: View | None = None  # the run that a class is shown; it takes precedence over samples when no run was chosen
    missing: str = "There is no run of the link's name here; choose another from the list."

    @property
    def samples(self) -> frozenset[str]:
        return frozenset(run_id for run_id, entry in self.recorded.items() if entry.origin is RunOrigin.SAMPLE)

    @property
    def entries(self) -> dict[str, ListedRun]:
        """All runs by id: the tab's own runs, newest first, then the recorded ones."""
        own = {run_id: of_tab(run_id, run) for run_id, run in reversed(list(self.own.items()))}
        return own | dict(self.recorded)

    @property
    def labels(self) -> dict[str, str]:
        """Unique label of each run by id, in the order of `entries`."""
        facts = {
            run_id: f"{run_id} (cannot be read)" if entry.facts is None or entry.error else entry.facts
            for run_id, entry in self.entries.items()
        }
        labels = labels_of(facts)
        for run_id in self.own:
            labels[run_id] = f"{'Uploaded' if run_id.startswith('upload') else 'Decoded'}: {labels[run_id]}"
        return told_apart(labels)

    def line(self, run_id: str) -> str:
        entry = self.entries.get(run_id)
        return "" if entry is None else entry.line

    @property
    def default(self) -> str:
        """Id of the run shown when none was chosen: the class's run, the first readable sample, or this tab's newest
        run, in this order. Empty if there is none."""
        if self.shown is not None and self.has(self.shown.run):
            return self.shown.run
        samples = self.samples
        readable = (name for name, entry in self.recorded.items() if name in samples and not entry.error)
        return next(readable, next(reversed(list(self.own)), ""))

    def described(self, run_id: str) -> str:
        if run_id in self.own:
            return f"Your run, {self.labels[run_id]}"
        whose = "Sample run" if run_id in self.samples else "Run recorded on this server"
        return f"{whose}: {self.labels[run_id]}"

    def has(self, run_id: str) -> bool:
        return run_id in self.own or run_id in self.recorded

    def landed(self, view: View) -> tuple[View, str]:
        """Return the view with an existing run, and a message if the requested run is missing. The view has no run if
        none was requested and there is no default."""
        if self.has(view.run):
            return view, ""
        default = self.shown if self.shown is not None and self.shown.run == self.default else View(self.default)
        if not view.run:
            return (default if view == View() else replace(view, run=default.run)), ""
        return replace(default, overlay=view.overlay), self.lost(view.run)

    def lost(self, run_id: str) -> str:
        if _OWN.fullmatch(run_id):
            lost = "The link's run was opened in a tab that is gone, and is not kept here; open its zip again."
        else:
            lost = self.missing
        return lost + (" A sample is shown instead." if self.default in self.samples else "")

    def opened(self, run_id: str) -> Run:
        """Return the run. Raises BadInput if it is missing or cannot be read."""
        if not (self.own or self.recorded):
            raise RunFileError(NOTHING_YET)
        if not run_id:
            raise RunFileError(NONE_CHOSEN)
        if run_id in self.own:
            return self.own[run_id]
        entry = self.recorded.get(run_id)
        if entry is None:
            raise RunFileError(GONE)
        if entry.error or entry.path is None:
            raise RunFileError(entry.error)
        try:
            changed = max((file.stat().st_mtime_ns for file in entry.path.iterdir()), default=0)
        except OSError as error:
            why = f"{run_id} is not there any more ({error.strerror}); choose another from the list."
            raise RunFileError(why) from error
        with contained(f"The run {run_id}"):
            return _loaded(entry.path, changed)

    def tried(self, run_id: str, fit: Callable[[Run], object] = lambda run: None) -> tuple[Run | None, str]:
        """Return (run, "") after calling `fit`, or (None, error message)."""
        try:
            run = self.opened(run_id)
            with contained(f"The run {run_id}"):
                fit(run)
        except BadInput as error:
            return None, str(error)
        return run, ""


def shelf(session: Session) -> RunCatalogue:
    try:
        entries = seen(listed_runs(default_folders.runs(), samples.runs_folder()))
    except BadInput as error:
        return RunCatalogue(session.runs, {}, str(error))
    if not os.environ.get(default_folders.RUNS):  # without a chosen folder, list the newest first
        entries.sort(key=lambda entry: "" if entry.origin is RunOrigin.SAMPLE else entry.name, reverse=True)
    entries.sort(key=lambda entry: (entry.origin is not RunOrigin.SAMPLE, entry.standing is RunStatus.INTERRUPTED))
    recorded = {}
    for entry in entries:
        if entry.standing is RunStatus.INTERRUPTED and entry.facts is not None:
            entry = replace(entry, facts=replace(entry.facts, title=f"{entry.heading} (interrupted)"))
        if entry.standing in (RunStatus.WHOLE, RunStatus.BROKEN) or entry.opens:
            recorded[entry.name] = entry
    catalogue = RunCatalogue(session.runs, recorded, shown=class_view())
    if rights.is_student():
        return replace(catalogue, missing=rights.UNSEEN)
    return catalogue


def seen(listed: Iterable[ListedRun]) -> list[ListedRun]:
    makers = Makers(default_folders.runs()).seen_by(rights.sees())
    return [run for run in listed if run.origin is RunOrigin.SAMPLE or makers.shows(run.name)]


def in_view(
    session: Session, notices: list[str], fit: Callable[[Run], object] = lambda run: None
) -> tuple[RunCatalogue, Run | None, str]:
    """Return the tab's catalog, the viewed run after `fit`, and the reason if there is no run. A message about a
    missing run is added to `notices`."""
    catalog = shelf(session)
    session.view, lost = catalog.landed(session.view)
    notices.extend(filter(None, [lost]))
    run, problem = catalog.tried(session.view.run, fit)
    return catalog, run, problem


def samples_of(catalog: RunCatalogue) -> Iterator[Run]:
    """Yield the readable samples in order, up to the size of the cache."""
    shipped = catalog.samples
    for run_id in islice((name for name in catalog.recorded if name in shipped), MOST):
        with suppress(BadInput):
            yield catalog.opened(run_id)


def suited(catalog: RunCatalogue, lacks: Callable[[Run], str], first: str = "") -> str:
    """Return the id of a suitable run: the sample `first`, another sample, or this tab's newest run, in this order.
    Empty if there is none. `lacks` returns an empty string for suitable runs."""
    shipped = catalog.samples
    samples_in_order = (name for name in (first, *catalog.recorded) if name in shipped)

    def able(run_id: str) -> bool:
        reasons: list[str] = []
        return catalog.tried(run_id, lambda run: reasons.append(lacks(run)))[0] is not None and reasons == [""]

    return next(filter(able, (*samples_in_order, *reversed(list(catalog.own)))), "")


def picker(
    place: DeltaGenerator,
    labels: Mapping[str, str],
    shown: str,
    chosen: Callable[[str], object],
    *,
    disabled: bool = False,
) -> None:
    bound(
        place.selectbox,
        "Run",
        "run",
        shown or None,
        chosen,
        options=list(labels),
        format_func=lambda run_id: labels.get(run_id, run_id),
        disabled=disabled or not labels,
        placeholder="No run yet",
        label_visibility="collapsed",
    )


def told_apart(labels: Mapping[str, str]) -> dict[str, str]:
    """Return unique labels by id. Equal labels get their id, because a picker identifies its options by label."""
    labels = {name: visible(label) for name, label in labels.items()}
    counts = Counter(labels.values())
    return {name: label if counts[label] == 1 else f"{label} · {name}" for name, label in labels.items()}


def second_line(catalog: RunCatalogue, run_id: str) -> None:
    if line := catalog.line(run_id):
        with st.container(key="what-made"):
            theme.small(line)


@st.cache_resource(max_entries=MOST, show_spinner=False)
def _loaded(path: Path, changed: int) -> Run:
    """`changed` is part of the cache key, so that a changed folder is read again."""
    return read(path)
