"""Runs in folders: saving, loading, listing. The only module that touches a run's files on disk.

A run is written to a temporary folder that is renamed when it is complete, so an interruption leaves no partial run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from os import PathLike
from pathlib import Path

from mars_viz import writer
from mars_viz.errors import BadInput, RunFileError, StorageError, contained, disk_refusals
from mars_viz.run import Run
from mars_viz.runfiles import manifest
from mars_viz.runfiles.codec import MANIFEST, MAP_NAMES, NAMES, decode, encode, missing_file, tables_of
from mars_viz.runfiles.manifest import Manifest
from mars_viz.writer import is_ours, to_read

_SMALL = 1 << 14  # bytes of a manifest that is kept in memory; one with a very long prompt is larger
_remembered = lru_cache(maxsize=4096)(manifest.from_json)  # every page lists every run on each redraw


def save_run(run: Run, path: str | PathLike[str]) -> Path:
    """Write the run to a new folder and return its path. Raises BadInput if the path exists, if the run could not be
    read again, or if the disk refuses."""
    path = Path(path)
    check_free(path)
    write_folder(encode(run), path)
    return path


def load_run(path: str | PathLike[str]) -> Run:
    """Read the run in a folder. Raises BadInput, naming the file and the remedy, for anything but a complete run.

    The result is consistent: lengths agree, parents come first, every decision follows from its verdicts, and every
    token has its text. Segments of its dial map are computed on first access.
    """
    path = Path(path)
    with naming(path):
        about = _read(path, MANIFEST)
        tables = tables_of(manifest.from_json(about))
        return decode({MANIFEST: about} | {name: _read(path, name) for name in tables})


def check_free(path: str | PathLike[str]) -> None:
    """Raise BadInput if a folder cannot be created at this path, because it exists or its parent cannot be written."""
    path = Path(path)
    with disk_refusals(path, remedy="Choose another place."):
        if path.exists() or path.is_symlink():
            raise StorageError(f"{path} exists already. Choose another name, or remove it first.")
        existing = next(parent for parent in path.absolute().parents if parent.exists() or parent.is_symlink())
        probe = writer.beside(existing / path.name)
        probe.mkdir()  # permissions do not tell of every kind of folder
        probe.rmdir()


class RunStatus(Enum):
    """The state of a saved run."""

    WHOLE = "whole"  # complete
    GROWING = "growing"  # being decoded
    INTERRUPTED = "interrupted"  # the decoding process ended early; its rounds so far are saved
    BROKEN = "broken"  # unreadable
    DELETED = "deleted"  # in the bin, complete or not


class RunOrigin(Enum):
    """The origin of a run."""

    SAMPLE = "sample"  # a sample; read-only
    SAVED = "saved"  # decoded here, or copied to the folder
    TAB = "tab"  # only in the memory of a browser tab


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run of a list."""

    name: str  # its unique id, as in links; of a saved run the name of its folder
    origin: RunOrigin
    standing: RunStatus
    facts: Manifest | None  # None if it is unreadable; of a growing run `rounds` is 0 after the first segment
    path: Path | None = None  # its folder or journal; None for a run in a tab's memory
    error: str = ""  # problem and remedy; empty if there is none

    @property
    def heading(self) -> str:
        """The title, the start of the prompt, or the id; one line."""
        return self.name if self.facts is None else self.facts.heading

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags in order."""
        return () if self.facts is None else self.facts.tags

    @property
    def line(self) -> str:
        """The summary, or the error."""
        text = self.error if self.facts is None or self.error else self.facts.line
        return text if self.standing in (RunStatus.WHOLE, RunStatus.BROKEN) else f"{text} · {self.standing.value}"

    @property
    def opens(self) -> bool:
        """True if it can be opened."""
        return not self.error and self.standing in (RunStatus.WHOLE, RunStatus.INTERRUPTED)


def list_runs(folder: str | PathLike[str], origin: RunOrigin = RunOrigin.SAVED) -> list[ListedRun]:
    """Return the runs in a folder by name, including broken ones with their error; empty if the folder does not exist.
    Reads manifests only: a damaged table of the right size shows when the run is loaded."""
    folder = Path(folder)
    with disk_refusals(folder, "listed", "Choose a folder of runs.", RunFileError), suppress(FileNotFoundError):
        paths = sorted(folder.iterdir(), key=_counting)
        return [entry for path in paths if (entry := run_in(path, origin)) is not None]
    return []


def run_in(path: Path, origin: RunOrigin = RunOrigin.SAVED) -> ListedRun | None:
    """Return the entry of one folder as in `list_runs`; None if it is not meant as a run."""
    if path.name.startswith(".") or not path.is_dir():
        return None
    sizes = _sizes(path)
    if sizes.keys().isdisjoint((*NAMES, *MAP_NAMES)):
        return None
    try:
        with contained(f"The run {path.name}", "Delete it, or take a fresh copy."), naming(path):
            data = (path / MANIFEST).read_bytes() if sizes.get(MANIFEST) else _read(path, MANIFEST)
            about = _remembered(data) if len(data) <= _SMALL else manifest.from_json(data)
            for name in tables_of(about):
                if sizes.get(name) != about.files[name].bytes:
                    _check_file(path, name)
                    raise RunFileError(f"{name} is not what was written. Take a fresh copy, or record the run again.")
    except BadInput as error:
        return ListedRun(path.name, origin, RunStatus.BROKEN, None, path, str(error))
    return ListedRun(path.name, origin, RunStatus.WHOLE, about, path)


def _counting(path: Path) -> list[str | int]:
    """Return a sort key that puts '2-story' before '10-story'."""
    return [int(part) if place % 2 else part for place, part in enumerate(re.split("([0-9]+)", path.name))]


def _sizes(path: Path) -> dict[str, int | None]:
    """Return the size of each file in a folder, None for other entries. One scan of the folder takes a third of the
    time of one request per file. A folder that cannot be scanned counts as having a manifest."""

    def plain(entry: os.DirEntry[str]) -> bool:
        return entry.is_file() and (not entry.is_symlink() or is_ours(Path(entry.path)))

    try:
        with os.scandir(to_read(path)) as there:
            return {entry.name: entry.stat().st_size if plain(entry) else None for entry in there}
    except FileNotFoundError:  # it has gone meanwhile
        return {}
    except OSError:
        return {MANIFEST: None}


def write_folder(files: Mapping[str, bytes], path: Path) -> None:
    """Write files ('folder/file' included) to a new folder, which is renamed when complete. Raises BadInput if the disk
    refuses."""
    with disk_refusals(path, remedy="Choose another place, or make room."):
        writer.write_folder(path, files)


def _check_file(path: Path, name: str) -> None:
    if not path.is_dir():
        if path.exists():
            raise RunFileError("it is a file. Choose a folder written by MARS Viz; unpack a run's zip first.")
        raise RunFileError("the folder does not exist. Choose a folder written by MARS Viz.")
    if not (path / name).is_file():
        raise missing_file(name)


def _read(path: Path, name: str) -> bytes:
    _check_file(path, name)
    return to_read(path, name).read_bytes()


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the path to every error raised in the block, as BadInput."""
    with disk_refusals(path, "opened", "Check that it can be read.", RunFileError):
        try:
            yield
        except BadInput as error:
            raise RunFileError(f"{path} cannot be opened: {error}") from error
