"""Run a race: decode with the target alone, strictly and relaxed, one after the other on one device.

Each lane is first decoded without timing, to warm up and to record all decisions. Several timed turns follow, with the
lanes in sequence and no more computation than the rule needs. The race contains the times of each lane's middle turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mars_viz.chat import NO_HISTORY, History
from mars_viz.errors import SettingError
from mars_viz.exploration import walk
from mars_viz.race.records import BY_THE_CLOCK, Race, RaceLane, Solo
from mars_viz.recording import Recording
from mars_viz.records import Round, emitted
from mars_viz.rules import rule_named
from mars_viz.run import Run, Settings
from mars_viz.runfiles.manifest import one_line

if TYPE_CHECKING:
    from mars_viz.speculators.autoregressive import WrittenToken
    from mars_viz.speculators.backend import Backend

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
        rule = rule_named(settings.rule)
        if rule.dial is None:
            raise SettingError(f"{rule.title} has no dial, so there is nothing relaxed to race; choose another rule.")
        if settings.control is not None:
            raise SettingError(BY_THE_CLOCK)
        if turns < 1 or turns % 2 == 0:
            raise SettingError(f"A race of {turns} turns has no middle one. Take an odd number, such as {TURNS}.")
        self._backend, self._turns = backend, turns
        strict = replace(settings, rule="strict", dial=None)
        self._recordings = {
            RaceLane.STRICT: Recording(backend, prompt, strict, chat=chat, history=history, title=title),
            RaceLane.RELAXED: Recording(backend, prompt, settings, chat=chat, history=history, title=title),
        }
        self._settings = {
            RaceLane.STRICT: strict,
            RaceLane.RELAXED: replace(settings, dial=rule.checked_dial(settings.dial)),
        }
        self._prompt = self._recordings[RaceLane.STRICT].prompt_ids
        self._title = title or prompt
        self._written: list[int] = []
        self._alone: list[Solo] = []
        self._rounds: dict[RaceLane, list[list[Round]]] = {lane: [] for lane in self._recordings}

    def __iter__(self) -> Iterator[RaceStep]:
        self._written, self._alone = [], []
        for written in self._single():
            self._written.append(written.token)
            yield RaceStep(RaceLane.ALONE, len(self._written), RECORDED, self._turns)
        for lane, recording in self._recordings.items():
            self._rounds[lane] = []
            for _ in recording:
                yield RaceStep(lane, len(recording.token_ids), RECORDED, self._turns)
        for turn in range(1, self._turns + 1):
            ids, clock = [], []
            for written in self._single():
                ids.append(written.token)
                clock.append(written.seconds)
                yield RaceStep(RaceLane.ALONE, len(ids), turn, self._turns)
            self._alone.append(Solo(tuple(ids), tuple(clock)))
            for lane, turns in self._rounds.items():
                turns.append([])
                for round_ in self._walk(lane):
                    turns[-1].append(round_)
                    yield RaceStep(lane, len(emitted(turns[-1])), turn, self._turns)

    def texts(self) -> RaceTexts:
        """Return the lanes' texts so far."""
        pieces = self._backend.pieces_of(self._written)
        begun = {lane: each.run() if each.token_ids else None for lane, each in self._recordings.items()}
        return RaceTexts(
            tuple(pieces[token].text for token in self._written), begun[RaceLane.STRICT], begun[RaceLane.RELAXED]
        )

    def finish(self) -> Race:
        """Race to the end and return the race."""
        for _ in self:
            pass
        return self.race()

    def race(self) -> Race:
        """Return the race. Raises BadInput if it is not finished, or if a lane's texts differ between turns."""
        if min(len(self._alone), *map(len, self._rounds.values())) < self._turns or not self._alone:
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

    def _single(self) -> Iterator[WrittenToken]:
        from mars_viz.speculators.autoregressive import writing_alone

        return writing_alone(self._backend, self._prompt, self._settings[RaceLane.STRICT])

    def _walk(self, lane: RaceLane) -> Iterator[Round]:
        """Return a lane's rounds; the speculator and its caches are released with them."""
        settings = self._settings[lane]
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
