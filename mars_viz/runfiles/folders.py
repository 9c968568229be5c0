"""Runs in folders: saving, loading, listing. The only module that touches a run's files on disk.

A run is written to a temporary folder that is renamed when it is complete, so an interruption leaves no partial run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
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
    with _naming(path):
        about = _read(path, MANIFEST)
        tables = tables_of(manifest.from_json(about))
        return decode({MANIFEST: about} | {name: _read(path, name) for name in tables})


def check_free(path: str | PathLike[str]) -> None:
    """Raise BadInput if a folder cannot be created at this path, because it exists or its parent cannot be written."""
    path = Path(path)
    try:
        if path.exists() or path.is_symlink():
            raise StorageError(f"{path} exists already. Choose another name, or remove it first.")
        existing = next(parent for parent in path.absolute().parents if parent.exists() or parent.is_symlink())
        probe = writer.beside(existing / path.name)
        probe.mkdir()  # permissions do not tell of every kind of folder
        probe.rmdir()
    except OSError as error:
        raise StorageError(f"{path} cannot be written ({error.strerror}). Choose another place.") from error


@dataclass(frozen=True, slots=True)
class RunEntry:
    """A folder with a run or the files of a broken one."""

    path: Path
    title: str  # the run's title, or the folder's name for a broken run
    manifest: Manifest | None = None  # None for a broken run
    error: str | None = None  # the problem and its remedy, if the run is broken


def list_runs(folder: str | PathLike[str]) -> list[RunEntry]:
    """Return the runs in a folder by name, including broken ones with their error; empty if the folder does not exist.
    Reads manifests only: a damaged table of the right size shows when the run is loaded."""
    folder = Path(folder)
    try:
        paths = sorted(folder.iterdir(), key=_counting)
        return [entry for path in paths if (entry := run_in(path)) is not None]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunFileError(f"{folder} cannot be listed ({error.strerror}). Choose a folder of runs.") from error


def run_in(path: Path) -> RunEntry | None:
    """Return the entry of one folder as in `list_runs`; None if it is not meant as a run."""
    if path.name.startswith(".") or not path.is_dir():
        return None
    sizes = _sizes(path)
    if sizes.keys().isdisjoint((*NAMES, *MAP_NAMES)):
        return None
    try:
        with contained(f"The run {path.name}", "Delete it, or take a fresh copy."), _naming(path):
            about = _about((path / MANIFEST).read_bytes() if sizes.get(MANIFEST) else _read(path, MANIFEST))
            for name in tables_of(about):
                if sizes.get(name) != about.files[name].bytes:
                    _check_file(path, name)
                    raise RunFileError(f"{name} is not what was written. Take a fresh copy, or record the run again.")
    except BadInput as error:
        return RunEntry(path, path.name, error=str(error))
    return RunEntry(path, about.heading, about)


def _counting(path: Path) -> list[str | int]:
    """Return a sort key that puts '2-story' before '10-story'."""
    return [int(part) if place % 2 else part for place, part in enumerate(re.split("([0-9]+)", path.name))]


def _about(data: bytes) -> Manifest:
    """Parse a manifest; small ones are cached, because every page lists every run on each redraw."""
    return _remembered(data) if len(data) <= _SMALL else manifest.from_json(data)


_remembered = lru_cache(maxsize=4096)(manifest.from_json)  # by what is written there, so none is ever stale


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
def _naming(path: Path) -> Iterator[None]:
    """Add the run's path to every error raised in the block."""
    try:
        yield
    except BadInput as error:
        raise RunFileError(f"{path} cannot be opened: {error}") from error
    except OSError as error:
        raise RunFileError(f"{path} cannot be opened ({error.strerror}). Check that it can be read.") from error
