"""Read the runs of a site, and give each a name for addresses and files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mars_viz.errors import RunFileError
from mars_viz.report import file_name
from mars_viz.run import Run
from mars_viz.runfiles import list_runs, load_run, read_zip

MOST_RUNS = 200  # runs per site; each is compared with all others
_LONGEST = 60  # characters of a name


@dataclass(frozen=True, slots=True)
class SiteRun:
    """A run of a site."""

    name: str  # unique, for addresses: lower-case letters, digits and hyphens
    run: Run


def named_runs(runs: Mapping[str, Run] | Iterable[Run]) -> tuple[SiteRun, ...]:
    """Return the runs with unique names, from the mapping's keys or else from titles or prompts.

    Raises RunFileError for no runs and for more than `MOST_RUNS`.
    """
    called = runs.items() if isinstance(runs, Mapping) else ((file_name(run), run) for run in runs)
    taken, site_runs = set[str](), []
    for label, run in called:
        name = _free(_plain(label), taken)
        taken.add(name)
        site_runs.append(SiteRun(name, run))
    if not site_runs:
        raise RunFileError("There are no runs to make a site of. Name run folders, zips, or a folder of runs.")
    if len(site_runs) > MOST_RUNS:
        raise RunFileError(f"These are {len(site_runs)} runs; a site holds at most {MOST_RUNS}. Choose some of them.")
    return tuple(site_runs)


def _plain(wanted: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", wanted.lower()).strip("-")[:_LONGEST].strip("-") or "run"


def _free(name: str, taken: set[str]) -> str:
    tries = (name if count == 1 else f"{name}-{count}" for count in range(1, len(taken) + 2))
    return next(each for each in tries if each not in taken)


def runs_in(paths: Iterable[Path], unpacked: Path) -> dict[str, Run]:
    """Return the runs at these paths by name: run folders, zips, or folders of runs.

    Zips are unpacked into the folder `unpacked`, which must exist as long as the runs are used. Raises RunFileError for
    the first path without a readable run.
    """
    runs: dict[str, Run] = {}
    for place in paths:
        for name, run in _read(place, unpacked / str(len(runs))):
            runs[name if name not in runs else f"{name}-{len(runs)}"] = run
    return runs


def _read(place: Path, unpacked: Path) -> Iterator[tuple[str, Run]]:
    try:
        is_folder, is_file = place.is_dir(), place.is_file()
        holds_run = is_folder and (place / "manifest.json").exists()
    except OSError as error:
        raise RunFileError(f"{place} cannot be looked at ({error.strerror}). Check that it can be read.") from error
    if holds_run:
        yield place.resolve().name, load_run(place)
    elif is_folder:
        yield from _all_in(place)
    elif is_file:
        yield place.stem, _unzipped(place, unpacked)
    else:
        raise RunFileError(f"{place} does not exist. Name a run's folder, its zip, or a folder of runs.")


def _all_in(folder: Path) -> Iterator[tuple[str, Run]]:
    entries = list_runs(folder)
    if not entries:
        raise RunFileError(f"{folder} holds no run. Name a run's folder, its zip, or a folder of runs.")
    for entry in entries:
        if entry.error is not None:
            raise RunFileError(f"{entry.error} Or leave {entry.path.name} out: name the other runs one by one.")
        yield entry.path.name, load_run(entry.path)


def _unzipped(file: Path, into: Path) -> Run:
    try:
        with file.open("rb") as data:
            return read_zip(data, into)
    except OSError as error:
        raise RunFileError(f"{file} cannot be opened ({error.strerror}). Check that it can be read.") from error
    except RunFileError as error:
        raise RunFileError(f"{file}: {error}") from error
