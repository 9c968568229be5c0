"""Every drafted position of a run as flat arrays, judged at one dial value: what the figures are drawn from.

Knows records; knows no figures and no browser. P is the number of drafted positions of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mars_viz.analysis.metrics import Basis, basis, judged_rounds, strict_rounds, strict_walk
from mars_viz.records import Outcome, Round
from mars_viz.rules import Rule, Scale, rule_named
from mars_viz.run import Run

OUTCOMES: tuple[Outcome, ...] = tuple(Outcome)
"""Outcome by its code in `Positions`."""


@dataclass(frozen=True, slots=True)
class Course:
    """A text as it grows, round by round."""

    written: np.ndarray
    """int64 [R]; its tokens after each round, ascending."""
    rolled_back: np.ndarray
    """int64 [R]; drafted tokens that were rolled back on the way there."""


@dataclass(frozen=True, slots=True)
class Courses:
    """A setting's own text beside the strict end's own, whatever their lengths."""

    ours: Course
    """The setting's."""
    strict: Course
    """The strict end's."""


@dataclass(frozen=True, slots=True)
class Positions:
    """Drafted positions in order, with what became of them at one dial value and at the rule's strict end."""

    rule: Rule
    """That judged them."""
    dial: float | None
    """The value judged at; None for a rule without a dial."""
    basis: Basis
    """What `outcomes` stand on; what compares them with the strict end is block-local, but for `courses`."""
    rounds: int
    """Rounds of the run; one that drafted nothing has no position."""
    round_index: np.ndarray
    """int64 [P]; the round of each position, from 0."""
    z1: np.ndarray
    """float32 [P]; the target's largest raw logit at the position."""
    z2: np.ndarray
    """float32 [P]; its second largest."""
    ratio: np.ndarray
    """float64 [P]; z2 / z1, NaN where z1 is 0."""
    runner_up: np.ndarray
    """bool [P]; the drafted token is the target's second best."""
    movable: np.ndarray
    """bool [P]; the dial decides the verdict: it has a breakpoint."""
    outcomes: np.ndarray
    """int8 [P]; what became of it at `dial`, as an index of `OUTCOMES`."""
    strict_outcomes: np.ndarray
    """int8 [P]; what becomes of it at the strict end, on the same prefixes."""
    courses: Courses | None = None
    """Both texts, where both are known: `basis` is exact, and a map holds the strict end's."""

    def __len__(self) -> int:
        """Number of drafted positions."""
        return len(self.round_index)

    @property
    def scale(self) -> Scale | None:
        """What the dial's value may be drawn against: what the rule compares it with, where it moves a verdict here."""
        return self.rule.scale if self.dial is not None and self.movable.any() else None

    @property
    def words(self) -> str:
        """What figures of them stand on, in a line or two."""
        if self.basis is not Basis.EXACT or self.courses is not None or self.dial is None:
            return self.basis.words
        return f"{self.basis.words} Tokens spared alone are block-local: strict's own text is not known here."

    def are(self, outcome: Outcome) -> np.ndarray:
        """bool [P]; the positions with that outcome at `dial`."""
        found: np.ndarray = self.outcomes == OUTCOMES.index(outcome)
        return found

    def strictly(self, outcome: Outcome) -> np.ndarray:
        """bool [P]; the positions with that outcome at the strict end."""
        found: np.ndarray = self.strict_outcomes == OUTCOMES.index(outcome)
        return found

    def per_round(self, chosen: np.ndarray) -> np.ndarray:
        """int64 [rounds]; how many of the chosen (bool [P]) positions each round has."""
        return np.bincount(self.round_index[chosen], minlength=self.rounds)


def positions(run: Run, dial: float | None = None) -> Positions:
    """The run's drafted positions at this dial value; None takes the run's own. Raises BadInput for a bad value."""
    rule, judged = rule_named(run.settings.rule), judged_rounds(run, dial)
    stands = basis(run, judged)
    strict = strict_walk(run) if stands is Basis.EXACT else None
    specs = [round_.speculation for round_ in judged]
    rows = [spec.judging_rows for spec in specs]
    at = list(zip(specs, rows, strict=True))
    return Positions(
        rule=rule,
        dial=rule.checked_dial(run.settings.dial if dial is None else dial),
        basis=stands,
        rounds=len(judged),
        round_index=np.repeat(np.arange(len(specs)), [len(spec) for spec in specs]),
        z1=_joined([spec.z1[row] for spec, row in at], np.float32),
        z2=_joined([spec.z2[row] for spec, row in at], np.float32),
        ratio=_joined([spec.ratio[row] for spec, row in at], np.float64),
        runner_up=_joined([spec.top_ids[row, 1] == spec.tokens for spec, row in at], np.bool_),
        movable=_joined([~np.isnan(round_.verdicts.breakpoints) for round_ in judged], np.bool_),
        outcomes=_codes(judged),
        strict_outcomes=_codes(strict_rounds(run)),
        courses=None if strict is None else Courses(_course(judged), _course(strict)),
    )


def _joined(parts: Sequence[np.ndarray], dtype: type[np.generic]) -> np.ndarray:
    return np.concatenate([np.empty(0, dtype), *parts]).astype(dtype, copy=False)


def _course(rounds: Sequence[Round]) -> Course:
    written, lost = (
        [count(round_) for round_ in rounds] for count in (lambda r: len(r.token_ids), lambda r: r.rolled_back)
    )
    return Course(np.cumsum(written, dtype=np.int64), np.cumsum(lost, dtype=np.int64))


def _codes(rounds: Sequence[Round]) -> np.ndarray:
    code = {outcome: index for index, outcome in enumerate(OUTCOMES)}
    return np.array([code[outcome] for round_ in rounds for outcome in round_.outcomes], np.int8)
