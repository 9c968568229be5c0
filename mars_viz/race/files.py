"""Races on disk: a folder with race.json and the run folders `strict` and `relaxed`, written atomically."""

from __future__ import annotations

import io
import json
import sys
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import TypeVar

from mars_viz import bounds
from mars_viz.errors import BadInput, RunFileError, contained
from mars_viz.race.records import Race, RaceLane, Solo
from mars_viz.runfiles import load_run
from mars_viz.runfiles.codec import MANIFEST, MAP_NAMES, NAMES, decode, encode, missing_file, stamp
from mars_viz.runfiles.codec import room as room_of_run
from mars_viz.runfiles.folders import check_free, write_folder
from mars_viz.runfiles.manifest import LARGEST, Stamp, parsed, strict_json
from mars_viz.runfiles.zips import ZipLayout, unpacked, vet
from mars_viz.writer import to_read

ABOUT = "race.json"
FORMAT = "mars-viz-race"
SCHEMA = 2
ONE_TURN = 1  # older schema, in which each lane was timed once

T = TypeVar("T")
_RUNS = (RaceLane.STRICT.value, RaceLane.RELAXED.value)


@dataclass(frozen=True, slots=True)
class RaceManifest:
    """The contents of race.json."""

    title: str
    target: str  # the target of both runs, for lists
    device: str  # in words, for lists
    seconds: Mapping[str, float]  # measured wall clock by lane, for lists
    alone: Solo
    turns: tuple[tuple[float, ...], ...]  # seconds of each turn by lane; empty for a single turn
    manifests: Mapping[str, Stamp]  # checksum of each run's manifest, which contains those of its tables


@dataclass(frozen=True, slots=True)
class RaceEntry:
    """A folder with a race, possibly broken."""

    path: Path
    title: str  # the race's title, or the folder's name if it is broken
    manifest: RaceManifest | None = None  # None if the race is broken
    error: str = ""  # problem and remedy


def save_race(race: Race, path: str | PathLike[str]) -> Path:
    """Write the race to a new folder and return its path. Raises BadInput if that fails."""
    path = Path(path)
    check_free(path)
    runs = {RaceLane.STRICT.value: encode(race.strict), RaceLane.RELAXED.value: encode(race.relaxed)}
    about = RaceManifest(
        title=race.title,
        target=race.strict.provenance.target,
        device=race.strict.provenance.device,
        seconds={lane.value: seconds for lane, seconds in race.seconds.items()},
        alone=race.alone,
        turns=race.turns,
        manifests={name: stamp(files[MANIFEST]) for name, files in runs.items()},
    )
    text = json.dumps({"format": FORMAT, "schema": SCHEMA} | asdict(about), allow_nan=False, ensure_ascii=False)
    files = {f"{name}/{file}": data for name, run in runs.items() for file, data in run.items()}
    write_folder({ABOUT: text.encode()} | files, path)
    return path


def decode_race(files: Mapping[str, bytes]) -> Race:
    """Return the race of these files, by path in its folder. Raises BadInput unless it is complete."""
    about, (strict, relaxed) = _of_lanes(files, decode)
    for name in _RUNS:
        _check_lane(files[f"{name}/{MANIFEST}"], about.manifests[name], name)
    return Race(about.title, about.alone, strict, relaxed, about.turns)


def room(files: Mapping[str, bytes]) -> int:
    """Estimate the memory in bytes that the race needs; see `runfiles.codec.room`."""
    return sum(_of_lanes(files, room_of_run)[1])


def _of_lanes(files: Mapping[str, bytes], of: Callable[[dict[str, bytes]], T]) -> tuple[RaceManifest, list[T]]:
    """Return the contents of race.json, and a value of the files of each lane's run."""
    if ABOUT not in files:
        raise missing_file(ABOUT)
    about, values = _parsed(files[ABOUT]), []
    for name in _RUNS:
        lane = {file.removeprefix(f"{name}/"): data for file, data in files.items() if file.startswith(f"{name}/")}
        try:
            values.append(of(lane))
        except BadInput as error:
            raise RunFileError(f"its run {name} cannot be opened: {error}") from error
    return about, values


def load_race(path: str | PathLike[str]) -> Race:
    """Read the race in a folder. Raises BadInput, with the remedy, unless it is complete."""
    path = Path(path)
    about, runs = _about(path), []
    for lane in (path / name for name in _RUNS):
        runs.append(load_run(lane))  # checks all tables against the manifest
        _check_lane(to_read(lane, MANIFEST).read_bytes(), about.manifests[lane.name], str(lane))
    strict, relaxed = runs
    try:
        return Race(about.title, about.alone, strict, relaxed, about.turns)
    except BadInput as error:
        raise RunFileError(f"{path} cannot be opened: {error}") from error


def list_races(folder: str | PathLike[str]) -> list[RaceEntry]:
    """Return the races in a folder by name, broken ones with their error; empty if the folder does not exist."""
    try:
        there = sorted(to_read(Path(folder)).iterdir())
        paths = [path for path in there if not path.name.startswith(".") and path.is_dir()]
    except OSError:
        return []
    entries = []
    for path in (path for path in paths if (path / ABOUT).exists()):
        try:
            with contained(f"The race {path.name}", "Delete it, or take a fresh copy."):
                about = _about(path)
                entries.append(RaceEntry(path, about.title or path.name, about))
        except BadInput as error:
            entries.append(RaceEntry(path, path.name, error=str(error)))
    return entries


def _parsed(data: bytes) -> RaceManifest:
    fields = strict_json(data, ABOUT)
    if not isinstance(fields, dict) or fields.pop("format", None) != FORMAT:
        raise RunFileError(f"{ABOUT} is not that of a race. Choose a folder written by MARS Viz.")
    schema = fields.pop("schema", None)
    if schema not in (ONE_TURN, SCHEMA) or isinstance(schema, bool):
        raise RunFileError(
            f"It has the schema {bounds.shortened(schema)}; this MARS Viz reads {SCHEMA} and below. "
            "Update, or record it again."
        )
    if schema == ONE_TURN:
        fields["turns"] = []
    about = parsed(RaceManifest, fields, ABOUT)
    bounds.check(about, ABOUT)
    if set(about.manifests) != set(_RUNS) or set(about.seconds) != {lane.value for lane in RaceLane}:
        raise RunFileError(f"{ABOUT} does not name the lanes of a race. Take a fresh copy.")
    return about


def _about(path: Path) -> RaceManifest:
    try:
        with to_read(path, ABOUT).open("rb") as file:
            return _parsed(file.read(LARGEST + 1))
    except BadInput as error:
        raise RunFileError(f"{path} cannot be opened: {error}") from error
    except OSError as error:
        raise RunFileError(f"{path} cannot be opened ({error.strerror}). Choose a folder that holds a race.") from error


def _check_lane(about: bytes, expected: Stamp, name: str) -> None:
    if stamp(about) != expected:
        raise RunFileError(f"{name} is not the run that the race was recorded with. Take a fresh copy.")


RACE = ZipLayout("race", frozenset((ABOUT, *(f"{run}/{name}" for run in _RUNS for name in (*NAMES, *MAP_NAMES)))), 64)
VETTING = (sys.executable, "-m", __package__)  # command of the sandbox process


def write_zip(path: Path) -> bytes:
    """Return the race in a folder as a zip. Raises BadInput if it cannot be read."""
    buffer = io.BytesIO()
    try:
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in sorted(RACE.names):
                if (path / name).is_file():
                    archive.write(to_read(path, name), f"{path.name}/{name}")
    except OSError as error:
        raise RunFileError(f"{path} cannot be read ({error.strerror}). Check that it can be.") from error
    return buffer.getvalue()


def read_zip(data: bytes, into: Path) -> None:
    """Unpack the zip of a race into the new folder `into`, after a sandbox process has read it.

    Raises BadInput, and leaves nothing behind, unless it is a complete race.
    """
    check_free(into)
    try:
        files = unpacked(data, RACE)
        vet(data, VETTING, RACE.noun)
    except BadInput as error:
        raise RunFileError(f"The zip cannot be opened: {error}") from error
    write_folder(files, into)
