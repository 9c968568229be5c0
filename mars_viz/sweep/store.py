"""A sweep's folder: `sweep.json`, the Parquet data set `results/`, and the prompts; no other module accesses them.

Wall-clock checks in it belong to `checks`. A finished prompt is a file of `results/`; its texts are one of `texts/`.
After an interruption finished prompts remain and form a valid data set. Prompts finish in the set's order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import pyarrow as pa

from mars_viz.bounds import LARGEST
from mars_viz.costs import Costs
from mars_viz.errors import BadInput, RunFileError, StorageError, contained, disk_refusals
from mars_viz.locks import held
from mars_viz.prompts import PromptItem, PromptSet, load_prompts, to_jsonl
from mars_viz.runfiles import check_free
from mars_viz.sweep import texts
from mars_viz.sweep.columns import Lines, schema
from mars_viz.sweep.plan import Plan, differences, from_json, set_hash, to_json, with_prompts
from mars_viz.sweep.texts import DataSet, PromptTexts
from mars_viz.writer import make_folder, remove_leftovers, to_read, write_file

_FURTHER = 100  # maximum number of folders without a sweep that are searched for sweeps, and of entries checked in each
_SHEET, _RESULTS, _PROMPTS, _REST = "sweep.json", "results", "prompts.jsonl", "rest.jsonl"
_KEPT = "Make room or choose another place. Finished prompts are kept; go on with --resume."


class SweepStore:
    """A folder with a sweep."""

    def __init__(self, folder: Path, plan: Plan, costs: Costs | None):
        self.folder = folder
        self.plan = plan
        self.costs = costs
        remedy = ". Remove it and go on with --resume, or sweep again into a new folder."
        self.results, self.texts = DataSet(folder / _RESULTS, schema(plan), remedy), texts.data_set(folder)

    def finished(self) -> int:
        """Return the number of finished prompts, the first of the set. Raises BadInput if files are missing."""
        files = self.results.files
        start = len(files.batches) * texts.BATCH
        later = sorted(each for each in files.singles if each >= start)
        if sorted(files.batches) != list(range(len(files.batches))) or later != list(range(start, start + len(later))):
            raise RunFileError(
                f"{self.results.folder} lacks files between others. Take a fresh copy, or sweep into a new folder."
            )
        return start + len(later)

    def append(self, index: int, lines: Lines, read: PromptTexts | None = None) -> None:
        """Write the next finished prompt's texts, then its lines. Raises BadInput if the disk refuses."""
        with disk_refusals(self.folder, remedy=_KEPT):
            if read is not None:
                self.texts.write(index, read.line(index))
            self.results.write(index, lines)
            if index % texts.BATCH == texts.BATCH - 1:
                self._merge()

    def tidy(self) -> None:
        """Merge complete batches, and remove leftovers of interruptions and texts without results. Only for the process
        that sweeps, at its start, because it checks every file."""
        with disk_refusals(self.folder, remedy=_KEPT):
            make_folder(self.results.folder)
            for each in (self.results.folder, self.folder):
                remove_leftovers(each)
            if self.texts.folder.is_dir():
                make_folder(self.texts.folder)
                remove_leftovers(self.texts.folder)
                for index in self.texts.files.singles:
                    if self.results.files.holding(index) is None:
                        (self.texts.folder / texts.prompt_file(index)).unlink(missing_ok=True)
            self._merge()

    def _merge(self) -> None:
        self.results.merge()
        if self.texts.folder.is_dir():
            with suppress(RunFileError):  # a damaged one, which is named when it is read
                self.texts.merge()

    def tables(self) -> Iterator[pa.Table]:
        """Yield the finished prompts in order, a file at a time, without answers. Raises BadInput if damaged."""
        columns = [name for name in self.results.schema.names if name != "answer"]
        for name in self.results.files.names:
            yield self.results.read(name, columns)

    def told(self, first: int, end: int) -> list[tuple[str, str]]:
        """Return the target's own text after each finished prompt from `first` to before `end`, in a sweep of later
        turns, and the reason if there is none."""
        files, outcomes = self.results.files, dict[int, tuple[str, str]]()
        for name in dict.fromkeys(filter(None, map(files.holding, range(first, end)))):
            table = self.results.read(name, ["prompt", "answer", "error"])
            outcomes |= {row["prompt"]: (row["answer"], row["error"]) for row in table.to_pylist()}
        return [outcomes[index] for index in range(first, end)]

    def prompts(self) -> PromptSet:
        """Return the swept prompts. Raises BadInput if the folder lacks them or contains another set."""
        path = self.folder / _PROMPTS
        again = "Go on with `mars-viz sweep --resume` and the file that it was begun with, or start a new sweep."
        try:
            to_read(self.folder, _PROMPTS)
        except OSError as error:
            raise RunFileError(
                f"{self.folder} does not hold the prompts of its sweep ({_PROMPTS}: {error.strerror}). {again}"
            ) from error
        prompts = load_prompts(path, turns=self.plan.turns, own=True)
        prompts = replace(prompts, name=self.plan.prompt_set, scores=self.plan.scores)
        if set_hash(prompts) != self.plan.prompt_set_sha256:
            prompts = prompts.first(self.plan.prompts)  # killed while it took more on
        if set_hash(prompts) != self.plan.prompt_set_sha256:
            raise RunFileError(f"{path} is not what was swept. {again}")
        return prompts

    def rest(self) -> tuple[PromptItem, ...]:
        """Return the prompts of the set beyond a limit; may be empty. Raises BadInput for an unreadable file."""
        path = self.folder / _REST
        try:
            to_read(self.folder, _REST)
            if not path.stat().st_size:
                return ()
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise RunFileError(f"{path} cannot be read ({error.strerror}). Take a fresh copy, or delete it.") from error
        return load_prompts(path, turns=self.plan.turns, own=True).items

    def take_on(self, prompts: PromptSet) -> None:
        """Extend the sweep to `prompts`, which must start with the current ones; does nothing if there are no more.
        Raises BadInput if the disk refuses. Only for the process that sweeps."""
        if open_store(self.folder).plan.prompts < self.plan.prompts:
            self._keep(prompts)

    def _keep(self, prompts: PromptSet) -> None:
        with disk_refusals(self.folder, remedy=_KEPT):
            write_file(self.folder / _PROMPTS, to_jsonl(prompts), synced=True)
            if prompts.rest or (self.folder / _REST).exists():
                write_file(self.folder / _REST, to_jsonl(replace(prompts, items=prompts.rest)), synced=True)
            write_file(self.folder / _SHEET, to_json(self.plan, self.costs), synced=True)


def create(folder: Path, plan: Plan, costs: Costs | None, prompts: PromptSet) -> SweepStore:
    """Create a sweep in a new folder. Raises BadInput if the folder is in use or the disk refuses."""
    check_new(folder)
    with disk_refusals(folder, remedy=_KEPT):
        folder.mkdir(parents=True, exist_ok=True)
        make_folder(folder / _RESULTS)
    store = SweepStore(folder, plan, costs)
    with held(folder):
        check_new(folder)  # somebody else may have been quicker
        store._keep(prompts)
    return store


def keep_costs(folder: Path, costs: Costs) -> None:
    """Store these costs in a sweep. Raises BadInput without a sweep or if the disk refuses."""
    plan = open_store(folder).plan
    with disk_refusals(folder, remedy=_KEPT):
        write_file(folder / _SHEET, to_json(plan, costs), synced=True)


def begin(folder: Path, plan: Plan, costs: Costs | None, prompts: PromptSet) -> SweepStore:
    """Return the sweep in a folder, or create one. Raises like `resume` and `create`."""
    return resume(folder, plan, prompts) if holds_sweep(folder) else create(folder, plan, costs, prompts)


def check_new(folder: Path, *, resume: bool = False) -> None:
    """Raise BadInput if no sweep can start in a folder: it has other contents than leftovers, or cannot be written.
    With `resume` it may contain a sweep."""
    with disk_refusals(folder, remedy=_KEPT):
        exists = folder.exists()
    if not exists:
        check_free(folder)
        return
    if holds_sweep(folder):
        if resume:
            return
        raise StorageError(f"{folder} holds a sweep already. Go on with it (--resume), or choose another folder.")
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise RunFileError(f"{folder} is no folder. Choose another name.")
    results = folder / _RESULTS
    leftovers = {_RESULTS, _PROMPTS, _REST} if results.is_dir() and not results.is_symlink() else set()
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    if any(name not in leftovers and not name.startswith(".") for name in names):
        raise StorageError(f"{folder} is not empty. Choose another folder for the sweep.")


def holds_sweep(folder: Path) -> bool:
    """Return True if the folder contains a sweep."""
    return (folder / _SHEET).is_file()


def open_store(folder: Path) -> SweepStore:
    """Return the sweep in a folder. Raises BadInput if there is none."""
    try:
        with to_read(folder, _SHEET).open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise RunFileError(
            f"{folder} holds no sweep ({_SHEET}: {error.strerror}). Choose a folder written by `mars-viz sweep`."
        ) from error
    try:
        plan, costs = from_json(data)
    except BadInput as error:
        raise RunFileError(f"{folder} cannot be opened: {error}") from error
    return SweepStore(folder, plan, costs)


@dataclass(frozen=True, slots=True)
class SweepEntry:
    """A folder with a sweep, for lists."""

    path: Path
    plan: Plan | None  # None if unreadable
    finished: int = 0  # number of finished prompts
    error: str = ""  # the problem and its remedy; may be empty

    @property
    def complete(self) -> bool:
        return self.plan is not None and self.finished == self.plan.prompts


def list_sweeps(folder: Path) -> list[SweepEntry]:
    """Return the sweeps in a folder, newest first and unreadable ones last; empty if the folder does not exist. Sweeps
    of a grid are one level deeper. Reads no results. Raises BadInput for a folder that cannot be listed."""
    try:
        children = {path: holds_sweep(path) for path in sorted(folder.iterdir())}
    except FileNotFoundError:
        return []
    except OSError as error:
        reason = f"{folder} cannot be listed ({error.strerror}). Choose another folder for results."
        raise RunFileError(reason) from error
    paths, entries = [path for path, holds in children.items() if holds], []
    further = [path for path, holds in children.items() if not holds and not path.name.startswith(".")]
    for path in further[:_FURTHER]:
        with suppress(OSError):  # a file, or not for us
            paths += sorted(inner for inner in islice(to_read(path).iterdir(), _FURTHER) if holds_sweep(inner))
    for path in sorted(paths, key=lambda path: path.name):
        try:
            with contained(f"The sweep {path.name}", "Delete it, or take a fresh copy."):
                store = open_store(path)
                entries.append(SweepEntry(path, store.plan, store.finished()))
        except BadInput as error:
            entries.append(SweepEntry(path, None, error=str(error)))
    return sorted(entries, key=lambda entry: "" if entry.plan is None else entry.plan.provenance.created, reverse=True)


def resume(folder: Path, plan: Plan, prompts: PromptSet) -> SweepStore:
    """Return the sweep in a folder to continue; `prompts` may extend its own (`take_on` stores them). Raises BadInput
    if it differs from `plan`, or while another process sweeps into it."""
    store = open_store(folder)
    grown = with_prompts(store.plan, prompts)
    if reasons := differences(grown, plan):
        raise RunFileError(
            f"{folder} holds another sweep: {'; '.join(reasons)}. Resume it as it was begun, or choose a new folder."
        )
    with held(folder):
        store.tidy()
    return SweepStore(folder, grown, store.costs)


def in_begun_order(folder: Path, prompts: PromptSet) -> PromptSet:
    """Return these prompts in the order of the sweep in this folder, followed by new ones. Unchanged if there is no
    sweep, or one of other prompts."""
    if not holds_sweep(folder):
        return prompts
    store = open_store(folder)
    if set_hash(prompts.first(store.plan.prompts)) != store.plan.prompt_set_sha256:
        with suppress(BadInput):  # other prompts, or a folder that does not hold its own
            return replace(prompts, items=store.prompts().with_more(prompts).items)
    return prompts
