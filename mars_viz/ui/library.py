"""The runs that a tab can open: recorded ones from a folder on the server, and its own, decoded or uploaded.

Knows folders, zips and Streamlit's cache; knows no models.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import islice
from pathlib import Path

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mars_viz import default_folders, samples
from mars_viz.errors import BadInput, RunFileError, contained
from mars_viz.escapes import visible
from mars_viz.run import Run
from mars_viz.runfiles import RunEntry, list_runs, read_zip
from mars_viz.runlist import ListedRun, RunFacts, RunOrigin, labels_of, listed_runs
from mars_viz.runlist.listed import of_tab
from mars_viz.runstore import Makers, RunStatus, read, started
from mars_viz.runstore.store import GONE
from mars_viz.ui import theme
from mars_viz.ui.classroom import rights
from mars_viz.ui.classroom.server_class import class_view
from mars_viz.ui.links import View
from mars_viz.ui.run_cache import MOST, RunCache
from mars_viz.ui.session import Session

NOTHING_YET = "There is no run here yet. Write a prompt above and press Decode, or open the zip of a run's folder."
NO_RUN = "There is no run here yet. Decode a prompt on Explore first."
NO_SAMPLES = f"This server shows no sample runs ({samples.VARIABLE})."
NONE_CHOSEN = f"{NO_SAMPLES} Choose a run from the list, or decode a prompt on Explore."
_OWN = re.compile(r"(live|upload)-[0-9a-f]{8}")  # how a tab names its own runs


@dataclass(frozen=True, slots=True)
class RunCatalogue:
    """What a tab can choose from at one moment."""

    own: Mapping[str, Run]
    """Decoded or uploaded in this tab, by id, oldest first."""
    recorded: Mapping[str, RunEntry]
    """Recorded runs on the server by id, which is a name and never a path: the samples, then those that were decoded or
    put there."""
    error: str = ""
    """Why the recorded runs cannot be listed; empty if they can."""
    samples: frozenset[str] = frozenset()
    """Ids of those recorded runs that come with the server: what a page shows where nobody has chosen a run."""
    shown: View | None = None
    """What the class is shown in a classroom: this goes before a sample where nobody has chosen a run."""
    missing: str = "There is no run of the link's name here; choose another from the list."
    """What is said of a link to a run that is not here."""
    kept_title: str = "Runs recorded on this server"
    """Whose runs those are that are no samples, as a heading."""

    @property
    def labels(self) -> dict[str, str]:
        """A line for each run by its id, no two alike: the tab's own, the newest first, then the recorded ones. It says
        what tells runs apart; `line` has the rest."""
        own = {run_id: _facts_of(run_id, run) for run_id, run in reversed(list(self.own.items()))}
        recorded = {run_id: _facts(entry) for run_id, entry in self.recorded.items()}
        labels = labels_of(own | recorded)
        return told_apart(labels | {run_id: f"{_source(run_id)}: {labels[run_id]}" for run_id in own})

    def line(self, run_id: str) -> str:
        """What made the run of that id, all of it; empty where that is not known."""
        if run_id in self.own:
            facts = _facts_of(run_id, self.own[run_id])
        else:
            facts = _facts(self.recorded[run_id]) if run_id in self.recorded else ""
        return facts if isinstance(facts, str) else facts.line

    @property
    def kept(self) -> dict[str, RunEntry]:
        """Recorded runs that are no samples: decoded here by anybody, or put there."""
        return {run_id: entry for run_id, entry in self.recorded.items() if run_id not in self.samples}

    @property
    def default(self) -> str:
        """Where nobody has chosen a run: what the class is shown, else the first readable sample, else this tab's
        newest run, never somebody else's; empty where there is none of these."""
        if self.shown is not None and self.has(self.shown.run):
            return self.shown.run
        readable = (run_id for run_id in self.recorded if run_id in self.samples and not self.recorded[run_id].error)
        return next(readable, next(reversed(list(self.own)), ""))

    def described(self, run_id: str) -> str:
        """Which run it is, and whose: a sample, one of this tab's own, or one that was recorded here by anybody."""
        if run_id in self.own:
            return f"Your run, {self.labels[run_id]}"
        whose = "Sample run" if run_id in self.samples else "Run recorded on this server"
        return f"{whose}: {self.labels[run_id]}"

    def has(self, run_id: str) -> bool:
        """True if there is a run of that id, readable or not."""
        return run_id in self.own or run_id in self.recorded

    def landed(self, view: View) -> tuple[View, str]:
        """The view, on a run that there is, and a sentence where it asked for one that there is not. Of no run where
        none was asked for and there is no default."""
        if self.has(view.run):
            return view, ""
        default = self.shown if self.shown is not None and self.shown.run == self.default else View(self.default)
        if not view.run:
            return (default if view == View() else replace(view, run=default.run)), ""
        return replace(default, overlay=view.overlay), self.lost(view.run)

    def lost(self, run_id: str) -> str:
        """That there is no run of that id, as a sentence about the link that asked for it."""
        if _OWN.fullmatch(run_id):
            lost = "The link's run was opened in a tab that is gone, and is not kept here; open its zip again."
        else:
            lost = self.missing
        return lost + (" A sample is shown instead." if self.default in self.samples else "")

    def path_of(self, run_id: str) -> Path | None:
        """Where a run is kept that was recorded; None for the tab's own."""
        return None if run_id in self.own or run_id not in self.recorded else self.recorded[run_id].path

    def opened(self, run_id: str) -> Run:
        """The run of that id. Raises BadInput where it cannot be read, or where there is none."""
        if not self.labels:
            raise RunFileError(NOTHING_YET)
        if not run_id:
            raise RunFileError(NONE_CHOSEN)
        if run_id in self.own:
            return self.own[run_id]
        entry = self.recorded.get(run_id)
        if entry is None:
            raise RunFileError(GONE)
        if entry.error is not None:
            raise RunFileError(entry.error)
        try:
            changed = max((file.stat().st_mtime_ns for file in entry.path.iterdir()), default=0)
        except OSError as error:
            raise RunFileError(
                f"{run_id} is not there any more ({error.strerror}); choose another from the list."
            ) from error
        with contained(f"The run {run_id}"):
            return _cache().opened(entry.path, changed)

    def tried(self, run_id: str, fit: Callable[[Run], object] = lambda run: None) -> tuple[Run | None, str]:
        """The run of that id, fitted to what a page asks of it; None, and why, where it cannot be read."""
        try:
            run = self.opened(run_id)
            with contained(f"The run {run_id}"):
                fit(run)
        except BadInput as error:
            return None, str(error)
        return run, ""


def shelf(session: Session) -> RunCatalogue:
    """What this tab can choose from."""
    folder = default_folders.runs()
    try:
        there = list_runs(folder)
        if not os.environ.get(default_folders.RUNS):
            there.reverse()  # nobody has put them in an order, so the newest come first
        makers = Makers(folder).seen_by(rights.sees())
        found = {entry.path.name: entry for entry in there} | interrupted(folder)
        kept = {name: entry for name, entry in found.items() if makers.shows(name)}
        lie_in = samples.runs_folder()
        shipped = {} if lie_in is None else {entry.path.name: entry for entry in list_runs(lie_in)}
    except BadInput as error:
        return RunCatalogue(session.runs, {}, str(error))
    recorded = shipped | {name: kept[name] for name in kept if name not in shipped}
    catalogue = RunCatalogue(session.runs, recorded, samples=frozenset(shipped), shown=class_view())
    if rights.is_student():
        return replace(catalogue, missing=rights.UNSEEN, kept_title="Your runs, and what the teacher shows")
    return catalogue


def runs_in_folders() -> list[ListedRun]:
    """The samples, and all that is kept here, whatever there is of it. Raises BadInput where it cannot be listed."""
    return listed_runs(default_folders.runs(), samples.runs_folder())


def all_runs(session: Session, listed: Sequence[ListedRun]) -> list[ListedRun]:
    """Every run that this tab can see: its own, the newest first, and what it may see of those in folders."""
    makers = Makers(default_folders.runs()).seen_by(rights.sees())
    kept = [run for run in listed if run.origin is RunOrigin.SAMPLE or makers.shows(run.name)]
    return [*(of_tab(name, run) for name, run in reversed(list(session.runs.items()))), *kept]


def in_view(
    session: Session, notices: list[str], fit: Callable[[Run], object] = lambda run: None
) -> tuple[RunCatalogue, Run | None, str]:
    """What this tab can choose from, the run that it looks at, fitted to what a page asks of it, and where there is
    none to be shown, why. `notices` gets what the tab's link asked for in vain."""
    on = shelf(session)
    session.view, lost = on.landed(session.view)
    notices.extend(filter(None, [lost]))
    run, problem = on.tried(session.view.run, fit)
    return on, run, problem if on.labels or not problem else NO_RUN


def interrupted(folder: Path) -> dict[str, RunEntry]:
    """The runs in a store that were cut short by the end of their process, as far as they got."""
    return {
        kept.name: RunEntry(kept.path, f"{kept.title} (interrupted)", kept.manifest)
        for kept in started(folder)
        if kept.standing is RunStatus.INTERRUPTED and not kept.error and not (folder / kept.name).exists()
    }


def samples_of(on: RunCatalogue) -> Iterator[Run]:
    """Every sample that can be read, in order; of very many, the first."""
    for run_id in islice((name for name in on.recorded if name in on.samples), MOST):
        with suppress(BadInput):
            yield on.opened(run_id)


def suited(on: RunCatalogue, lacks: Callable[[Run], str], first: str = "") -> str:
    """The id of the sample `first` if it serves, else of the first sample that does, else of this tab's newest run that
    does; empty where none does. `lacks` says what a run lacks, and is an empty string for one that serves."""
    able = (name for name in (first, *on.recorded) if name in on.samples)
    return next((name for name in (*able, *reversed(list(on.own))) if _able(on, name, lacks)), "")


def _able(on: RunCatalogue, run_id: str, lacks: Callable[[Run], str]) -> bool:
    try:
        with contained(f"The run {run_id}"):
            return not lacks(on.opened(run_id))
    except BadInput:
        return False


def add_upload(session: Session, data: bytes) -> bool:
    """Open the zip of a run's folder; what is wrong with it becomes a notice. False if it is the one read last."""
    digest = sha256(data).hexdigest()
    if digest == session.uploaded:
        return False
    session.uploaded = digest
    session.notices.clear()
    try:
        with tempfile.TemporaryDirectory() as folder:
            run = read_zip(data, Path(folder) / "run")
    except BadInput as error:
        session.notices.append(str(error))
    else:
        session.open(session.keep(run, "upload"))
    return True


def picker(place: DeltaGenerator, labels: Mapping[str, str], chosen: Callable[[], None], *, disabled: bool) -> None:
    """The choice of a run, under the key 'run', which the page sets first; `chosen` is called when it changes."""
    place.selectbox(
        "Run",
        list(labels),
        key="run",
        format_func=lambda run_id: labels.get(run_id, run_id),
        disabled=disabled or not labels,
        on_change=chosen,
        placeholder="No run yet",
        label_visibility="collapsed",
    )


def told_apart(labels: Mapping[str, str]) -> dict[str, str]:
    """Lines by id; where several read alike, each with its id besides: a picker knows its choices by what they read."""
    labels = {name: visible(label) for name, label in labels.items()}
    often = Counter(labels.values())
    return {name: label if often[label] == 1 else f"{label} · {name}" for name, label in labels.items()}


def _facts(entry: RunEntry) -> RunFacts | str:
    """What is known of a recorded run; a line in its place where that cannot be read."""
    if entry.manifest is None or entry.error is not None:
        return f"{entry.title} (cannot be read)"
    facts = RunFacts.of(entry.manifest)
    return facts if entry.title == facts.heading else replace(facts, title=entry.title)


def _facts_of(run_id: str, run: Run) -> RunFacts | str:
    """Likewise of a run of this tab."""
    try:
        with contained(f"The run {run_id}"):
            facts = RunFacts.of(run)
            assert facts.line
            return facts
    except BadInput:
        return f"{run_id} (cannot be read)"


def _source(run_id: str) -> str:
    """Where a run of this tab comes from."""
    return "Uploaded" if run_id.startswith("upload") else "Decoded"


def second_line(on: RunCatalogue, run_id: str) -> None:
    """What made the run that is shown, in small type: below a picker, whose lines say what tells runs apart;
    on a phone the text goes first."""
    if line := on.line(run_id):
        with st.container(key="what-made"):
            theme.small(line)


@st.cache_resource(show_spinner=False)
def _cache() -> RunCache:
    """The server's; a folder written anew is read anew."""
    return RunCache(read)
