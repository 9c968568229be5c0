"""Runs in folders: saving, loading, listing. The only module that touches a run's files on disk.

A run gets its name in one step, by renaming a finished folder beside it: an interruption leaves nothing behind that
looks like a run.
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
from mars_viz.runfiles.codec import MANIFEST, MAP_NAMES, NAMES, decode, encode, tables_of
from mars_viz.runfiles.manifest import Manifest
from mars_viz.writer import is_ours, to_read

_SMALL = 1 << 14  # bytes of a manifest that is kept in memory; one with a very long prompt is larger


def save_run(run: Run, path: str | PathLike[str]) -> Path:
    """Write the run to a new folder and return its path.

    Raises BadInput where something of that name exists already, where the run could not be read again, or where the
    disk refuses.
    """
    path = Path(path)
    check_free(path)
    write_folder(encode(run), path)
    return path


def load_run(path: str | PathLike[str]) -> Run:
    """Read the run in a folder. Raises BadInput, naming the file and the remedy, for anything that is not a whole run.

    What it returns is consistent: lengths agree, parents come first, every decision follows from its verdicts, every
    token has its text. Its dial map's segments are walked when they are first asked for.
    """
    path = Path(path)
    with _naming(path):
        about = _read(path, MANIFEST)
        tables = tables_of(manifest.from_json(about))
        return decode({MANIFEST: about} | {name: _read(path, name) for name in tables})


def check_free(path: str | PathLike[str]) -> None:
    """Raise BadInput where a folder of that name cannot be made: something is there, or where it would lie cannot be
    written to."""
    path = Path(path)
    try:
        if path.exists() or path.is_symlink():
            raise StorageError(f"{path} exists already. Choose another name, or remove it first.")
        there = next(parent for parent in path.absolute().parents if parent.exists() or parent.is_symlink())
        probe = writer.beside(there / path.name)
        probe.mkdir()  # permissions do not tell of every kind of folder
        probe.rmdir()
    except OSError as error:
        raise StorageError(f"{path} cannot be written ({error.strerror}). Choose another place.") from error


@dataclass(frozen=True, slots=True)
class RunEntry:
    """A folder that holds a run, or should."""

    path: Path
    """The folder."""
    title: str
    """The run's title, or the folder's name where the run is broken."""
    manifest: Manifest | None = None
    """What the run is; None where it is broken."""
    error: str | None = None
    """What is wrong with it, and the remedy; None where nothing is."""


def list_runs(folder: str | PathLike[str]) -> list[RunEntry]:
    """The runs in a folder by name, broken ones with their error; none where there is no such folder.

    Reads manifests only: a table that is damaged but of the right size shows when the run is loaded.
    """
    folder = Path(folder)
    try:
        paths = [path for path in folder.iterdir() if not path.name.startswith(".") and path.is_dir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunFileError(f"{folder} cannot be listed ({error.strerror}). Choose a folder of runs.") from error
    paths.sort(key=lambda path: _counting(path.name))
    return [entry for path in paths if (entry := _meant(path, _sizes(path))) is not None]


def run_in(path: Path) -> RunEntry | None:
    """The entry of one folder, as `list_runs` has it; None where no run is meant to be there."""
    if path.name.startswith(".") or not path.is_dir():
        return None
    return _meant(path, _sizes(path))


def _meant(path: Path, sizes: Mapping[str, int | None]) -> RunEntry | None:
    return None if sizes.keys().isdisjoint((*NAMES, *MAP_NAMES)) else _entry(path, sizes)


def _counting(name: str) -> list[str | int]:
    """To sort by: '2-story' before '10-story'."""
    return [int(part) if place % 2 else part for place, part in enumerate(re.split("([0-9]+)", name))]


def _about(data: bytes) -> Manifest:
    """The manifest, read once as long as it stays as it is: every page lists every run whenever it is drawn."""
    return _remembered(data) if len(data) <= _SMALL else manifest.from_json(data)


_remembered = lru_cache(maxsize=4096)(manifest.from_json)  # by what is written there, so none is ever stale


def _sizes(path: Path) -> dict[str, int | None]:
    """Bytes of each file in a folder, None for what is no file: one look at the folder, where asking for each file by
    its name takes three times as long. A folder that cannot be looked into has a manifest for all that is known."""
    try:
        with os.scandir(to_read(path)) as there:
            return {entry.name: entry.stat().st_size if _is_plain(entry) else None for entry in there}
    except FileNotFoundError:  # it has gone meanwhile
        return {}
    except OSError:
        return {MANIFEST: None}


def _is_plain(entry: os.DirEntry[str]) -> bool:
    return entry.is_file() and (not entry.is_symlink() or is_ours(Path(entry.path)))


def _entry(path: Path, sizes: Mapping[str, int | None]) -> RunEntry:
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


def write_folder(files: Mapping[str, bytes], path: Path) -> None:
    """Write the files, `folder/file` included, to a new folder that gets its name last. Raises BadInput where the disk
    refuses."""
    with disk_refusals(path, remedy="Choose another place, or make room."):
        writer.write_folder(path, files)


def _check_file(path: Path, name: str) -> None:
    if not path.is_dir():
        if path.exists():
            raise RunFileError("it is a file. Choose a folder written by MARS Viz; unpack a run's zip first.")
        raise RunFileError("the folder does not exist. Choose a folder written by MARS Viz.")
    if not (path / name).is_file():
        raise RunFileError(f"{name} is missing. Choose a whole folder written by MARS Viz.")


def _read(path: Path, name: str) -> bytes:
    _check_file(path, name)
    return to_read(path, name).read_bytes()


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Let every error in the block say which run it is about."""
    try:
        yield
    except BadInput as error:
        raise RunFileError(f"{path} cannot be opened: {error}") from error
    except OSError as error:
        raise RunFileError(f"{path} cannot be opened ({error.strerror}). Check that it can be read.") from error
