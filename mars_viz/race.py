"""Races: one prompt decoded by the target alone, strictly and relaxed, one after the other, with timings.

Each lane is first decoded without timing, to warm up and to record all decisions. Several timed turns follow, with the
lanes in sequence and no more computation than the rule needs. The race contains the times of each lane's middle turn.
On disk it is a folder with race.json and the run folders `strict` and `relaxed`. Recorded races are replayed without
models; only `Racing` loads them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from enum import Enum
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mars_viz.bounds import LARGEST, headed, parsed
from mars_viz.chat import NO_HISTORY, History
from mars_viz.costs import Factor, too_fast
from mars_viz.errors import BadInput, RunFileError, SettingError, contained
from mars_viz.exploration import walk
from mars_viz.recording import Recording
from mars_viz.records import Round, emitted
from mars_viz.rules import rule_named
from mars_viz.run import Run, Settings
from mars_viz.runfiles import check_free, naming
from mars_viz.runfiles.codec import MANIFEST, MAP_NAMES, NAMES, decode, encode, missing_file, stamp
from mars_viz.runfiles.manifest import Stamp, one_line
from mars_viz.runstore import Store
from mars_viz.writer import to_read, write_folder

if TYPE_CHECKING:
    from mars_viz.speculators.backend import Backend


class RaceLane(Enum):
    """The three ways to decode."""

    ALONE = "alone"  # the target alone, one token per pass
    STRICT = "strict"  # speculative and lossless
    RELAXED = "relaxed"  # speculative, with the chosen rule


def _goes_forward(clock: np.ndarray) -> bool:
    """Return True for at least one time, and times that rise from 0."""
    return bool(len(clock) and np.isfinite(clock).all() and (np.diff(clock, prepend=0.0) > 0).all())


@dataclass(frozen=True, slots=True)
class Solo:
    """The text of the target alone."""

    token_ids: tuple[int, ...]
    clock: tuple[float, ...]  # seconds from the start to each token, without the prompt's pass

    def __post_init__(self) -> None:
        """Raise BadInput if the clock decreases or does not match the text."""
        if len(self.token_ids) != len(self.clock) or not _goes_forward(np.array(self.clock)):
            raise RunFileError("The autoregressive lane needs a later time for each token. Record the race again.")


@dataclass(frozen=True, slots=True)
class Race:
    """Three decodes of one prompt on one device.

    The rounds' timings are those of the speculative lanes, measured with the minimal evidence.
    """

    title: str
    alone: Solo  # the autoregressive lane; its pieces are in the strict run
    strict: Run
    relaxed: Run
    turns: tuple[tuple[float, ...], ...] = ()
    """Seconds of each turn by lane, in the order of `RaceLane`. Clocks of `alone` and the runs are those of the lane's
    middle turn. Empty for a single turn, as in older files."""

    def __post_init__(self) -> None:
        """Raise BadInput if the lanes do not belong together."""
        one, other = self.strict, self.relaxed
        names = ("target", "drafter", "dtype", "eos_ids")
        same_models = all(getattr(one.provenance, name) == getattr(other.provenance, name) for name in names)
        # device details after the comma may differ
        same_models &= len({run.provenance.device.partition(",")[0] for run in (one, other)}) == 1
        fits = (
            same_models
            and one.prompt_ids == other.prompt_ids
            and all(_goes_forward(round_clock(run)) for run in (one, other))
            and set(self.alone.token_ids) <= one.pieces.keys()
            and all(len(turn) == len(RaceLane) and np.isfinite(turn).all() and min(turn) > 0 for turn in self.turns)
            and all(np.isclose(self.taken[lane], end).any() for lane, end in self.seconds.items())
        )
        if not fits:
            why = "The lanes of a race have one prompt, one pair and one device, and times that fit its turns."
            raise RunFileError(f"{why} Record the race again.")

    @property
    def taken(self) -> dict[RaceLane, np.ndarray]:
        """float64 [turns]; seconds of every turn of each lane, without the prompt's pass."""
        turns = np.array(self.turns or [tuple(self.seconds.values())], np.float64)
        return {lane: turns[:, place] for place, lane in enumerate(RaceLane)}

    def over(self, lane: RaceLane, other: RaceLane) -> Factor:
        """Return the measured ratio of tokens per second: median and range over turns, compared within each turn.

        The range is NaN for a single turn. Over the target alone it is capped at τ, the theoretical maximum.
        """
        ratios = self.taken[other] / self.taken[lane] * len(self.token_ids[lane]) / len(self.token_ids[other])
        estimate = float(np.median(ratios))
        if len(ratios) == 1:
            return Factor(estimate, np.nan, np.nan)
        run = self.runs[lane]
        most = run.tau if run is not None and other is RaceLane.ALONE else np.inf
        return Factor(estimate, float(ratios.min()), max(estimate, min(float(ratios.max()), most)))

    @property
    def objection(self) -> str:
        """Why its speed-ups are impossible, as a sentence; empty if they are possible."""
        for lane, run in self.runs.items():
            if run is not None and (speed_up := self.over(lane, RaceLane.ALONE).estimate) > run.tau:
                return too_fast(speed_up, run.tau, "race again")
        return ""

    @property
    def seconds(self) -> dict[RaceLane, float]:
        """Measured wall clock of each lane's middle turn, without the prompt's pass."""
        ends = (self.alone.clock[-1], float(round_clock(self.strict)[-1]), float(round_clock(self.relaxed)[-1]))
        return dict(zip(RaceLane, ends, strict=True))

    @property
    def runs(self) -> dict[RaceLane, Run | None]:
        """Runs of the speculative lanes; None for the target alone."""
        return {RaceLane.ALONE: None, RaceLane.STRICT: self.strict, RaceLane.RELAXED: self.relaxed}

    @property
    def token_ids(self) -> dict[RaceLane, tuple[int, ...]]:
        """Text of each lane."""
        return {lane: (self.alone if run is None else run).token_ids for lane, run in self.runs.items()}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row per lane: times of the middle turn and the range of all turns (measured), and counts (exact)."""
        rows, texts, possible = [], self.token_ids, not self.objection
        for lane, run in self.runs.items():
            over, turns, tokens = self.over(lane, RaceLane.ALONE), self.taken[lane], len(texts[lane])
            passes = tokens if run is None else len(run.rounds)
            row = {
                "lane": lane.value,
                "rule": "" if run is None else run.settings.rule,
                "dial": None if run is None else run.settings.dial,
                "draft": "" if run is None else run.settings.draft,
                "turns": len(turns),
                "seconds_measured": self.seconds[lane],
                "seconds_least": float(turns.min()),
                "seconds_most": float(turns.max()),
                "tokens_per_second_measured": tokens / self.seconds[lane],
                "over_autoregressive_measured": over.estimate if possible else None,
                "over_autoregressive_low": over.low if possible else None,
                "over_autoregressive_high": over.high if possible else None,
                "tokens": tokens,
                "target_passes": passes,
                "tau": tokens / passes,
                "rolled_back": 0 if run is None else sum(round_.rolled_back for round_ in run.rounds),
                "same_text": texts[lane] == texts[RaceLane.ALONE],
            }
            rows.append(row)
        return rows


def round_clock(run: Run) -> np.ndarray:
    """float64 [R]; seconds from the start to the end of each round."""
    return np.cumsum([round_.timing.total for round_ in run.rounds], dtype=np.float64)


TURNS = 5  # default number of timed turns
SEVERAL_TEXTS = "This device did not decode the same text twice, so the race cannot be shown. Take the dtype float32."
RECORDED = 0  # the turn without timing


@dataclass(frozen=True, slots=True)
class RaceStep:
    """Progress of a race."""

    lane: RaceLane
    tokens: int  # tokens of the lane so far
    turn: int  # timed turn from 1, or `RECORDED`
    turns: int = TURNS  # number of timed turns


@dataclass(frozen=True, slots=True)
class RaceTexts:
    """The texts of a race in progress."""

    alone: tuple[str, ...] = ()  # pieces of the target's own text
    strict: Run | None = None  # None before its first round
    relaxed: Run | None = None  # None before its first round


def check_race(settings: Settings) -> None:
    """Raise SettingError for a relaxed lane that cannot be raced."""
    rule = rule_named(settings.rule)
    if rule.dial is None:
        raise SettingError(f"{rule.title} has no dial, so there is nothing relaxed to race; choose another rule.")
    if settings.control is not None:
        raise SettingError(
            "A race is by the clock, and the models draft all γ tokens whatever a draft-length controller leaves of "
            "them; race without one."
        )


class Racing:
    """A race in progress: iterate to the end, or stop at any time, and take the race."""

    def __init__(
        self,
        backend: Backend,
        prompt: str,
        settings: Settings,
        *,
        chat: bool | None = None,
        history: History = NO_HISTORY,
        title: str = "",
        turns: int = TURNS,
    ):
        """`settings` are those of the relaxed lane. Raises BadInput for a rule without a dial, a draft-length
        controller, an even number of turns, which has no middle turn, and as `Recording` does."""
        check_race(settings)
        if turns < 1 or turns % 2 == 0:
            raise SettingError(f"A race of {turns} turns has no middle one. Take an odd number, such as {TURNS}.")
        self._backend, self._turns = backend, turns
        lanes = {RaceLane.STRICT: replace(settings, rule="strict", dial=None), RaceLane.RELAXED: settings}
        self._recordings = {
            lane: Recording(backend, prompt, each, chat=chat, history=history, title=title)
            for lane, each in lanes.items()
        }
        self._prompt = self._recordings[RaceLane.STRICT].prompt_ids
        self._title = title or prompt
        self._written: list[int] = []
        self._alone: list[Solo] = []
        self._rounds: dict[RaceLane, list[list[Round]]] = {}

    def __iter__(self) -> Iterator[RaceStep]:
        from mars_viz.speculators.backend import writing_alone

        settings = self._recordings[RaceLane.STRICT].settings
        self._alone, self._rounds = [], {lane: [] for lane in self._recordings}
        for turn in range(RECORDED, self._turns + 1):
            ids, clock = list[int](), list[float]()
            self._written = self._written if turn else ids
            for token, seconds in writing_alone(self._backend, self._prompt, settings):
                ids.append(token)
                clock.append(seconds)
                yield RaceStep(RaceLane.ALONE, len(ids), turn, self._turns)
            if turn:
                self._alone.append(Solo(tuple(ids), tuple(clock)))
            for lane, recording in self._recordings.items():
                rounds = list[Round]()
                for round_ in self._walk(lane) if turn else recording:
                    rounds.append(round_)
                    yield RaceStep(lane, len(emitted(rounds)), turn, self._turns)
                if turn:
                    self._rounds[lane].append(rounds)

    def texts(self) -> RaceTexts:
        """Return the lanes' texts so far."""
        pieces = self._backend.pieces_of(self._written)
        strict, relaxed = (each.run() if each.token_ids else None for each in self._recordings.values())
        return RaceTexts(tuple(pieces[token].text for token in self._written), strict, relaxed)

    def finish(self) -> Race:
        """Race to the end and return the race."""
        for _ in self:
            pass
        return self.race()

    def race(self) -> Race:
        """Return the race. Raises BadInput if it is not finished, or if a lane's texts differ between turns."""
        if len(self._rounds.get(RaceLane.RELAXED, ())) < self._turns:
            raise SettingError("The race is not over yet; let it run to its end.")
        recorded = {lane: each.run() for lane, each in self._recordings.items()}
        runs = {lane: [timed(run, rounds) for rounds in self._rounds[lane]] for lane, run in recorded.items()}
        if {each.token_ids for each in self._alone} != {tuple(self._written)}:
            raise SettingError(SEVERAL_TEXTS)
        seconds = {RaceLane.ALONE: [each.clock[-1] for each in self._alone]}
        seconds |= {lane: [each.provenance.seconds for each in turns] for lane, turns in runs.items()}
        middle = {lane: int(np.argsort(each, kind="stable")[self._turns // 2]) for lane, each in seconds.items()}
        strict, relaxed = (turns[middle[lane]] for lane, turns in runs.items())
        pieces = {**self._backend.pieces_of(self._written), **strict.pieces}
        turns = tuple(zip(*(seconds[lane] for lane in RaceLane), strict=True))
        return Race(
            one_line(self._title), self._alone[middle[RaceLane.ALONE]], replace(strict, pieces=pieces), relaxed, turns
        )

    def _walk(self, lane: RaceLane) -> Iterator[Round]:
        """Return a lane's rounds; the speculator and its caches are released with them."""
        settings = self._recordings[lane].settings
        rule = rule_named(settings.rule)
        speculator = self._backend.speculator(settings, rule.needs)
        speculator.prefill(self._prompt)
        return walk(speculator, rule, settings.dial, self._prompt, self._backend.ending(settings))


def timed(run: Run, rounds: Sequence[Round]) -> Run:
    """Return the run with the timings of these rounds. Raises BadInput if their texts differ."""
    if [round_.token_ids for round_ in run.rounds] != [round_.token_ids for round_ in rounds]:
        raise SettingError(SEVERAL_TEXTS)
    clocked = tuple(replace(mine, timing=theirs.timing) for mine, theirs in zip(run.rounds, rounds, strict=True))
    seconds = sum(round_.timing.total for round_ in rounds)
    return replace(run, rounds=clocked, provenance=replace(run.provenance, seconds=seconds))


ABOUT = "race.json"
FORMAT = "mars-viz-race"
SCHEMA = 2
ONE_TURN = 1  # older schema, in which each lane was timed once

_RUNS = (RaceLane.STRICT.value, RaceLane.RELAXED.value)
_FILES = (ABOUT, *(f"{run}/{name}" for run in _RUNS for name in (*NAMES, *MAP_NAMES)))


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
    write_folder(path, ({ABOUT: text.encode()} | files).items())
    return path


def load_race(path: str | PathLike[str]) -> Race:
    """Read the race in a folder. Raises BadInput, with the remedy, unless it is complete."""
    path = Path(path)
    with naming(path):
        files = {name: to_read(path, name).read_bytes() for name in _FILES if (path / name).exists()}
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


def list_races(folder: str | PathLike[str]) -> list[RaceEntry]:
    """Return the races in a folder by name, broken ones with their error; empty if the folder does not exist."""
    try:
        paths = sorted(to_read(Path(folder)).iterdir())
    except OSError:
        return []
    entries = []
    for path in paths:
        if path.name.startswith(".") or not (path / ABOUT).exists():
            continue
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
    if set(about.manifests) != set(_RUNS) or set(about.seconds) != {lane.value for lane in RaceLane}:
        raise RunFileError(f"{ABOUT} does not name the lanes of a race. Take a fresh copy.")
    return about


class RaceStore(Store):
    """Stores races."""

    noun = "race"
    about = ABOUT
    gone = "There is no race of that name here any more; choose another from the list."

    def list(self) -> list[RaceEntry]:
        """Return the visible races, the newest last."""
        return [entry for entry in list_races(self.folder) if self.makers.shows(entry.path.name)]

    def deleted(self) -> tuple[RaceEntry, ...]:
        """Return the visible races in the bin, the newest last."""
        with suppress(OSError):
            self._check()
            return tuple(entry for entry in list_races(self.bin) if self.makers.shows(entry.path.name))
        return ()

    def save(self, race: Race, name: str, maker: str = "") -> str:
        """Save a race under this name and return it; `maker` identifies the browser. Raises BadInput on failure."""
        with self._changing(name, "saved"):
            self.makers.note(name, maker)
            try:
                return save_race(race, self.folder / name).name
            except BadInput:
                self.makers.drop(name)
                raise

    def _check(self) -> None:
        """Raise OSError if the folder is a link made by another user."""
        with suppress(FileNotFoundError):
            to_read(self.folder)

    def _entry(self, name: str) -> tuple[Path, str, bool]:
        match = next((entry for entry in self.list() if entry.path.name == name), None)
        if match is None:
            raise RunFileError(self.gone)
        return match.path, match.title, match.manifest is not None
