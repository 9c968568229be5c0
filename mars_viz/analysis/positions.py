"""Every drafted position of a run as flat arrays, for figures: the target's view, which is the same for any rule, and
the judgement at one dial value.

P is the number of drafted positions of the run, in order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mars_viz.analysis.metrics import Basis, basis, own_or, strict_walk
from mars_viz.analysis.settled_text import settled_text
from mars_viz.records import Outcome
from mars_viz.rules import Rule, Scale, rule_named
from mars_viz.rules.base import best_p, drafted_p
from mars_viz.run import Run
from mars_viz.trace import OUTCOMES


@dataclass(frozen=True, slots=True)
class FlatPositions:
    """Drafted positions in order, seen by the target."""

    round_index: np.ndarray  # int64 [P]; the round of each position, from 0
    depth: np.ndarray  # int64 [P]; place within the block, from 1
    tokens: np.ndarray  # int64 [P]
    rank: np.ndarray  # int64 [P]; the target's rank of the drafted token, from 1
    p: np.ndarray  # float64 [P]; the target's probability of the drafted token
    share: np.ndarray  # float64 [P]; that probability over the best token's, p(x)/p1
    margin: np.ndarray  # float64 [P]; z1 - z2 of the judging law, in logits
    ratio: np.ndarray  # float64 [P]; z2 / z1 of the judging law, NaN if z1 is 0
    written: np.ndarray  # int64 [P]; tokens of the recorded text before the position's round

    def __len__(self) -> int:
        return len(self.tokens)


def drafted(run: Run) -> FlatPositions:
    """Return the run's drafted positions."""
    trace = run.trace
    block, rows = trace.speculations.whole, trace.judging_rows
    p, best = drafted_p(block), best_p(block)
    return FlatPositions(
        round_index=trace.round_index,
        depth=block.depths.astype(np.int64),
        tokens=block.tokens.astype(np.int64),
        rank=block.ranks.astype(np.int64),
        p=p,
        share=np.divide(p, best, out=np.full_like(p, np.nan), where=best > 0),
        margin=block.margin[rows],
        ratio=block.ratio[rows],
        written=np.repeat(np.cumsum(trace.text_lengths) - trace.text_lengths, trace.lengths),
    )


@dataclass(frozen=True, slots=True)
class Course:
    """Growth of a text, round by round."""

    written: np.ndarray  # int64 [R]; total tokens after each round, ascending
    rolled_back: np.ndarray  # int64 [R]; total drafted tokens rolled back up to each round


@dataclass(frozen=True, slots=True)
class Courses:
    """Growth of a setting's text and of the strict end's own text, which may differ in length."""

    ours: Course  # the setting's text: its own, or the recorded blocks judged at it
    strict: Course


@dataclass(frozen=True, slots=True)
class Positions:
    """Drafted positions in order, with their outcomes at one dial value and at the rule's strict end."""

    rule: Rule  # the judging rule
    dial: float | None  # None for a rule without a dial
    basis: Basis
    """Basis of `outcomes` and of `courses.ours`. Comparisons of outcomes with the strict end's are block-local."""
    rounds: int  # rounds of the run; a round without drafted tokens has no position
    round_index: np.ndarray  # int64 [P]; the round of each position, from 0
    z1: np.ndarray  # float32 [P]; the target's largest raw logit at the position
    z2: np.ndarray  # float32 [P]; the target's second largest raw logit
    ratio: np.ndarray  # float64 [P]; z2 / z1, NaN if z1 is 0
    runner_up: np.ndarray  # bool [P]; the drafted token is the target's second best
    movable: np.ndarray  # bool [P]; the verdict has a breakpoint, so the dial decides it
    outcomes: np.ndarray  # int8 [P]; outcome at `dial`, as an index of `OUTCOMES`
    strict_outcomes: np.ndarray  # int8 [P]; outcome at the strict end, on the same prefixes
    courses: Courses | None = None  # both texts, if a map contains the strict end's
    trees: bool = False  # True if drafts branch, so that no round can keep all of its nodes

    def __len__(self) -> int:
        return len(self.round_index)

    @property
    def scale(self) -> Scale | None:
        """The quantity to draw the dial's value against, if the dial moves a verdict here."""
        return self.rule.scale if self.dial is not None and self.movable.any() else None

    @property
    def words(self) -> str:
        """The basis of figures in a line or two."""
        if self.dial is None or (self.basis is Basis.EXACT) == (self.courses is not None):
            return self.basis.words
        if self.courses is not None:
            return f"{self.basis.words} What strict takes is exact: its own text is known."
        return f"{self.basis.words} Tokens spared alone are block-local: strict's own text is not known here."

    def are(self, outcome: Outcome) -> np.ndarray:
        """Return the positions with this outcome at `dial`, bool [P]."""
        matches: np.ndarray = self.outcomes == OUTCOMES.index(outcome)
        return matches

    def strictly(self, outcome: Outcome) -> np.ndarray:
        """Return the positions with this outcome at the strict end, bool [P]."""
        matches: np.ndarray = self.strict_outcomes == OUTCOMES.index(outcome)
        return matches

    def per_round(self, chosen: np.ndarray) -> np.ndarray:
        """Return the number of chosen positions (bool [P]) in each round, int64 [rounds]."""
        return np.bincount(self.round_index[chosen], minlength=self.rounds)


def positions(run: Run, dial: float | None = None) -> Positions:
    """Return the run's drafted positions at this dial value; None is the run's own. Raises BadInput for a bad value."""
    rule, trace, at = rule_named(run.settings.rule), run.trace, own_or(run, dial)
    text, rows = settled_text(run, trace, at), trace.judging_rows
    z1, z2 = trace.best[rows, 0], trace.best[rows, 1]
    wide = z1.astype(np.float64)
    strictly = settled_text(run, trace, own_or(run, None if rule.dial is None else rule.dial.strict))
    courses, walked = None, strict_walk(run)
    if walked is not None:
        lost = np.bincount(trace.round_index[~trace.in_text(text)], minlength=len(trace))
        theirs = np.array([(len(round_.token_ids), round_.rolled_back) for round_ in walked], np.int64).reshape(-1, 2)
        ours = Course(np.cumsum(text.lengths), np.cumsum(lost))
        courses = Courses(ours, Course(*np.cumsum(theirs, axis=0).T))
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
        courses=courses,
        trees=trace.speculations.whole.is_tree,
    )
