"""The runs of a site: where they are read from, and the name of each in addresses and files. Knows run files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mars_viz.errors import RunFileError
from mars_viz.report import file_name
from mars_viz.run import Run
from mars_viz.runfiles import list_runs, load_run, read_zip

MOST_RUNS = 200
"""Of a site; each is compared with all others."""
_LONGEST = 60  # characters of a name


@dataclass(frozen=True, slots=True)
class SiteRun:
    """A run of a site."""

    name: str
    """In addresses: small letters, digits and hyphens, no other run's."""
    run: Run
    """The run."""


def named_runs(runs: Mapping[str, Run] | Iterable[Run]) -> tuple[SiteRun, ...]:
    """Each run with a name of its own: of what it is called in a mapping, else of its title or prompt. Raises
    RunFileError for no runs and for more than `MOST_RUNS`."""
    called = runs.items() if isinstance(runs, Mapping) else ((file_name(run), run) for run in runs)
    taken, found = set[str](), []
    for wanted, run in called:
        name = _free(_plain(wanted), taken)
        taken.add(name)
        found.append(SiteRun(name, run))
    if not found:
        raise RunFileError("There are no runs to make a site of. Name run folders, zips, or a folder of runs.")
    if len(found) > MOST_RUNS:
        raise RunFileError(f"These are {len(found)} runs; a site holds at most {MOST_RUNS}. Choose some of them.")
    return tuple(found)


def _plain(wanted: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", wanted.lower()).strip("-")[:_LONGEST].strip("-") or "run"


def _free(name: str, taken: set[str]) -> str:
    tries = (name if count == 1 else f"{name}-{count}" for count in range(1, len(taken) + 2))
    return next(each for each in tries if each not in taken)


def runs_in(paths: Iterable[Path], unpacked: Path) -> dict[str, Run]:
    """The runs in these places by what each is called there: a run's folder, its zip, or a folder of runs. Zips are
    unpacked into the folder `unpacked`, which has to last as long as the runs. Raises RunFileError, and says why, for
    the first place that is none of these or holds a run that cannot be read."""
    found: dict[str, Run] = {}
    for place in paths:
        for name, run in _read(place, unpacked / str(len(found))):
            found[name if name not in found else f"{name}-{len(found)}"] = run
    return found


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
