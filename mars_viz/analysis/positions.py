"""Every drafted position of a run as flat arrays, judged at one dial value: what the figures are drawn from.

Knows records; knows no figures and no browser. P is the number of drafted positions of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mars_viz.analysis.metrics import Basis, basis, own_or, strict_walk
from mars_viz.analysis.settled_text import settled_text
from mars_viz.records import Outcome, Round
from mars_viz.rules import Rule, Scale, rule_named
from mars_viz.run import Run
from mars_viz.trace import OUTCOMES, SettledText, Trace


@dataclass(frozen=True, slots=True)
class Course:
    """A text as it grows, round by round."""

    written: np.ndarray
    """int64 [R]; its tokens after each round, ascending."""
    rolled_back: np.ndarray
    """int64 [R]; drafted tokens that were rolled back on the way there."""


@dataclass(frozen=True, slots=True)
class Courses:
    """What a setting writes beside the strict end's own text, whatever their lengths."""

    ours: Course
    """The setting's, as far as it is known: of its own text, or of each recorded block judged at it."""
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
    """What `outcomes` and ours of `courses` stand on; what compares outcomes with the strict end's is block-local."""
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
    """Both texts, where a map holds the strict end's."""
    trees: bool = False
    """True where drafts branch, so that no round can keep all of its own."""

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
        if self.dial is None or (self.basis is Basis.EXACT) == (self.courses is not None):
            return self.basis.words
        if self.courses is not None:
            return f"{self.basis.words} What strict takes is exact: its own text is known."
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
    rule, trace, at = rule_named(run.settings.rule), run.trace, own_or(run, dial)
    text, rows = settled_text(run, trace, at), trace.judging_rows
    z1, z2 = trace.best[rows, 0], trace.best[rows, 1]
    wide = z1.astype(np.float64)
    strictly = settled_text(run, trace, own_or(run, None if rule.dial is None else rule.dial.strict))
    strict = strict_walk(run)
    return Positions(
        rule=rule,
        dial=at,
        basis=basis(trace, text.settled),
        rounds=len(trace),
        round_index=trace.round_index,
        z1=z1,
        z2=z2,
        ratio=np.divide(z2.astype(np.float64), wide, out=np.full_like(wide, np.nan), where=wide != 0),
        runner_up=trace.second[rows] == trace.tokens,
        movable=~np.isnan(trace.verdicts.breakpoints),
        outcomes=trace.outcomes(text),
        strict_outcomes=trace.outcomes(strictly),
        courses=None if strict is None else Courses(_course(trace, text), _walked(strict)),
        trees=trace.speculations.whole.is_tree,
    )


def _course(trace: Trace, text: SettledText) -> Course:
    lost = np.bincount(trace.round_index[~trace.in_text(text)], minlength=len(trace))
    return Course(np.cumsum(text.lengths), np.cumsum(lost))


def _walked(rounds: Sequence[Round]) -> Course:
    written, lost = [len(round_.token_ids) for round_ in rounds], [round_.rolled_back for round_ in rounds]
    return Course(np.cumsum(written, dtype=np.int64), np.cumsum(lost, dtype=np.int64))
