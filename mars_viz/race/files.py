"""Races on disk: a folder with race.json and the run folders `strict` and `relaxed`, written atomically."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path

from mars_viz import bounds
from mars_viz.errors import BadInput, RunFileError, contained
from mars_viz.race.records import Race, RaceLane, Solo
from mars_viz.run import Run
from mars_viz.runfiles.codec import MANIFEST, MAP_NAMES, NAMES, decode, encode, missing_file, stamp
from mars_viz.runfiles.folders import check_free, naming, write_folder
from mars_viz.runfiles.manifest import LARGEST, Stamp, parsed, strict_json
from mars_viz.runfiles.zips import ZipLayout, packed, uploaded
from mars_viz.writer import to_read

ABOUT = "race.json"
FORMAT = "mars-viz-race"
SCHEMA = 2
ONE_TURN = 1  # older schema, in which each lane was timed once

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
    if ABOUT not in files:
        raise missing_file(ABOUT)
    about, runs = _parsed(files[ABOUT]), list[Run]()
    for name in _RUNS:
        lane = {file.removeprefix(f"{name}/"): data for file, data in files.items() if file.startswith(f"{name}/")}
        try:
            runs.append(decode(lane))
        except BadInput as error:
            raise RunFileError(f"its run {name} cannot be opened: {error}") from error
        _check_lane(lane[MANIFEST], about.manifests[name], name)
    strict, relaxed = runs
    return Race(about.title, about.alone, strict, relaxed, about.turns)


def load_race(path: str | PathLike[str]) -> Race:
    """Read the race in a folder. Raises BadInput, with the remedy, unless it is complete."""
    path = Path(path)
    with naming(path):
        names = [name for name in sorted(RACE.names) if (path / name).exists()]
        return decode_race({name: to_read(path, name).read_bytes() for name in names})


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
    with naming(path), to_read(path, ABOUT).open("rb") as file:
        return _parsed(file.read(LARGEST + 1))


def _check_lane(about: bytes, expected: Stamp, name: str) -> None:
    if stamp(about) != expected:
        raise RunFileError(f"{name} is not the run that the race was recorded with. Take a fresh copy.")


RACE = ZipLayout(
    "race",
    f"{__name__}:RACE",
    frozenset((ABOUT, *(f"{run}/{name}" for run in _RUNS for name in (*NAMES, *MAP_NAMES)))),
    64,
    decode_race,
)


def write_zip(path: Path) -> bytes:
    """Return the race in a folder as a zip. Raises BadInput if it cannot be read."""
    try:
        names = [name for name in sorted(RACE.names) if (path / name).is_file()]
        return packed((f"{path.name}/{name}", to_read(path, name).read_bytes()) for name in names)
    except OSError as error:
        raise RunFileError(f"{path} cannot be read ({error.strerror}). Check that it can be.") from error


def read_zip(data: bytes, into: Path) -> None:
    """Unpack the zip of a race into the new folder `into`.

    Raises BadInput as `runfiles.zips.uploaded`, and leaves nothing behind then.
    """
    check_free(into)
    write_folder(uploaded(data, RACE), into)
