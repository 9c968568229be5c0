"""Running a race: the target alone, strict and relaxed, really decoded one after the other on one device.

Each speculative lane is decoded twice: once by the clock, computing no more than its rule needs, and once to record
what every round decided; the record gets the clock's times. Knows pairs and clocks; loads the model libraries when
asked to race.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mars_viz.errors import BadInput
from mars_viz.race.records import Lane, Race, Solo
from mars_viz.recording import Recording
from mars_viz.records import Round
from mars_viz.rules import rule_named
from mars_viz.run import Run, Settings
from mars_viz.walk import walk

if TYPE_CHECKING:
    from mars_viz.speculators.loading import Pair

WARM_UP = 2
"""Steps of each lane that are taken before its clock starts, and thrown away."""


@dataclass(frozen=True, slots=True)
class Step:
    """Where a race in the making stands."""

    lane: Lane
    """Which lane is decoded."""
    tokens: int
    """Of it so far."""
    timed: bool
    """True by the clock; False while its decisions are recorded."""


class Racing:
    """A race in the making: iterate it to the end, or stop whenever, and take the race."""

    def __init__(self, pair: Pair, prompt: str, settings: Settings, *, chat: bool = False, title: str = ""):
        """`settings` are the relaxed lane's. Raises BadInput for a rule without a dial, or what `Recording` refuses."""
        rule = rule_named(settings.rule)
        if rule.dial is None:
            raise BadInput(f"{rule.title} has no dial, so there is nothing relaxed to race; choose another rule.")
        self._pair = pair
        strict = replace(settings, rule="strict", dial=None)
        self._recordings = {
            Lane.STRICT: Recording(pair, prompt, strict, chat=chat, title=title),
            Lane.RELAXED: Recording(pair, prompt, settings, chat=chat, title=title),
        }
        self._settings = {Lane.STRICT: strict, Lane.RELAXED: replace(settings, dial=rule.checked_dial(settings.dial))}
        self._prompt = self._recordings[Lane.STRICT].prompt_ids
        self._title = title or prompt
        self._alone: Solo | None = None
        self._runs: dict[Lane, Run] = {}

    def __iter__(self) -> Iterator[Step]:
        """Race to the end, a token or a round at a time."""
        for _ in itertools.islice(self._single(), WARM_UP):
            yield Step(Lane.ALONE, 0, True)
        ids, clock = [], []
        for token, seconds in self._single():
            ids.append(token)
            clock.append(seconds)
            yield Step(Lane.ALONE, len(ids), True)
        self._alone = Solo(tuple(ids), tuple(clock))
        for lane in (Lane.STRICT, Lane.RELAXED):
            for _ in itertools.islice(self._walk(lane), WARM_UP):
                yield Step(lane, 0, True)
            rounds: list[Round] = []
            for round_ in self._walk(lane):
                rounds.append(round_)
                yield Step(lane, sum(len(each.token_ids) for each in rounds), True)
            recording = self._recordings[lane]
            for _ in recording:
                yield Step(lane, len(recording.token_ids), False)
            self._runs[lane] = timed(recording.run(), rounds)

    def finish(self) -> Race:
        """Race to the end and return the race."""
        for _ in self:
            pass
        return self.race()

    def race(self) -> Race:
        """The race. Raises BadInput where it was not run to its end."""
        if self._alone is None or len(self._runs) < len(self._recordings):
            raise BadInput("The race is not over yet; let it run to its end.")
        from mars_viz.speculators.pieces import pieces_of

        strict = self._runs[Lane.STRICT]
        pieces = {**pieces_of(self._pair.tokenizer, set(self._alone.token_ids)), **strict.pieces}
        line = " ".join(self._title.split())
        title = line if len(line) <= 60 else f"{line[:59]}…"
        return Race(title, self._alone, replace(strict, pieces=pieces), self._runs[Lane.RELAXED])

    def _single(self) -> Iterator[tuple[int, float]]:
        from mars_viz.speculators.autoregressive import writing_alone

        for written in writing_alone(self._pair, self._prompt, self._settings[Lane.STRICT]):
            yield written.token, written.seconds

    def _walk(self, lane: Lane) -> Iterator[Round]:
        from mars_viz.speculators.extent import Extent
        from mars_viz.speculators.local import LocalSpeculator

        settings = self._settings[lane]
        rule = rule_named(settings.rule)
        speculator = LocalSpeculator(self._pair, settings, Extent.least(rule.needs, recorded=False))
        speculator.prefill(self._prompt)
        return walk(speculator, rule, settings.dial, self._prompt, self._pair.ending(settings))


def timed(run: Run, rounds: Sequence[Round]) -> Run:
    """The recorded run with the times of these rounds. Raises BadInput where they are not the same decode."""
    if [round_.token_ids for round_ in run.rounds] != [round_.token_ids for round_ in rounds]:
        raise BadInput(
            "This device did not decode the same text twice, so the race cannot be shown. Take the dtype float32."
        )
    clocked = tuple(replace(mine, timing=theirs.timing) for mine, theirs in zip(run.rounds, rounds, strict=True))
    seconds = sum(round_.timing.total for round_ in rounds)
    return replace(run, rounds=clocked, provenance=replace(run.provenance, seconds=seconds))
