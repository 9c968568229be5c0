"""Races on disk: a folder with race.json and the run folders `strict` and `relaxed`; zips; and the store of races."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path

from mars_viz import bounds
from mars_viz.errors import BadInput, RunFileError, contained, disk_refusals
from mars_viz.race.records import Race, RaceLane, Solo
from mars_viz.run import Run
from mars_viz.runfiles.codec import MANIFEST, MAP_NAMES, NAMES, decode, encode, missing_file, stamp
from mars_viz.runfiles.folders import check_free, naming, write_folder
from mars_viz.runfiles.manifest import LARGEST, Stamp, headed, parsed
from mars_viz.runfiles.zips import ZipLayout, packed, uploaded
from mars_viz.runstore import Store, checked_name, new_name
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
        if stamp(lane[MANIFEST]) != about.manifests[name]:
            raise RunFileError(f"{name} is not the run that the race was recorded with. Take a fresh copy.")
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
            with contained(f"The race {path.name}", "Delete it, or take a fresh copy."), naming(path):
                with to_read(path, ABOUT).open("rb") as file:
                    about = _parsed(file.read(LARGEST + 1))
                entries.append(RaceEntry(path, about.title or path.name, about))
        except BadInput as error:
            entries.append(RaceEntry(path, path.name, error=str(error)))
    return entries


def _parsed(data: bytes) -> RaceManifest:
    fields, schema = headed(data, ABOUT, "race", SCHEMA, ONE_TURN)
    if schema == ONE_TURN:
        fields["turns"] = []
    about = parsed(RaceManifest, fields, ABOUT)
    bounds.check(about, ABOUT)
    if set(about.manifests) != set(_RUNS) or set(about.seconds) != {lane.value for lane in RaceLane}:
        raise RunFileError(f"{ABOUT} does not name the lanes of a race. Take a fresh copy.")
    return about


RACE = ZipLayout(
    "race",
    f"{__name__}:RACE",
    frozenset((ABOUT, *(f"{run}/{name}" for run in _RUNS for name in (*NAMES, *MAP_NAMES)))),
    64,
    decode_race,
)


def write_zip(path: Path) -> bytes:
    """Return the race in a folder as a zip. Raises BadInput if it cannot be read."""
    with disk_refusals(path, "read", "Check that it can be.", RunFileError):
        names = [name for name in sorted(RACE.names) if (path / name).is_file()]
        return packed((f"{path.name}/{name}", to_read(path, name).read_bytes()) for name in names)


def read_zip(data: bytes, into: Path) -> None:
    """Unpack the zip of a race into the new folder `into`.

    Raises BadInput as `runfiles.zips.uploaded`, and leaves nothing behind then.
    """
    check_free(into)
    write_folder(uploaded(data, RACE), into)


class RaceStore(Store):
    """Stores races."""

    noun = "race"
    about = ABOUT
    gone = "There is no race of that name here any more; choose another from the list."

    def __init__(self, folder: str | PathLike[str], taken: Collection[str] = ()) -> None:
        """Open the store as `Store`. `taken` are names of other races."""
        super().__init__(folder)
        self._taken = frozenset(taken)

    def list(self) -> list[RaceEntry]:
        """Return the visible races, the newest last."""
        return [entry for entry in list_races(self.folder) if self.makers.shows(entry.path.name)]

    def deleted(self) -> tuple[RaceEntry, ...]:
        """Return the visible races in the bin, the newest last."""
        with suppress(OSError):
            self._check()
            return tuple(entry for entry in list_races(self.bin) if self.makers.shows(entry.path.name))
        return ()

    def bring(self, data: bytes, name: str) -> str:
        """Save the race of a zip and return its name, which is new if `name` is taken or invalid.

        Raises BadInput unless it is a complete race, and then saves nothing.
        """
        try:
            name = checked_name(name, "race")
            check_free(self.folder / name)
            name = new_name("race") if name in self._taken else name  # that of a recorded race
        except BadInput:
            name = new_name("race")
        self._check_to_save(name)
        read_zip(data, self.folder / name)
        return name

    def save(self, race: Race, name: str, maker: str = "") -> str:
        """Save a race under this name and return it; `maker` identifies the browser. Raises BadInput on failure."""
        self._check_to_save(name)
        self.makers.note(name, maker)
        try:
            return save_race(race, self.folder / name).name
        except BadInput:
            self.makers.drop(name)
            raise

    def _check_to_save(self, name: str) -> None:
        with disk_refusals(name, "saved", "Check that you may write there, and try again."):
            self._check()

    def _check(self) -> None:
        """Raise OSError if the folder is a link made by another user."""
        with suppress(FileNotFoundError):
            to_read(self.folder)

    def _entry(self, name: str) -> tuple[Path, str, bool]:
        match = next((entry for entry in self.list() if entry.path.name == name), None)
        if match is None:
            raise RunFileError(self.gone)
        return match.path, match.title, match.manifest is not None
