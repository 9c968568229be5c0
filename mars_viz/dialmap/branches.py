"""A walk that carries the interval of dial values it stands for, and how a round splits it.

A breakpoint inside a branch's interval, at a node or row that the branch reaches, splits it. A block drafted for γ
tokens answers for every shorter one too, so the walks for several γ share their speculations. Where the dial is a
controller's threshold, the rule's stays where it is, and every length that the controller cuts the block to is a piece
of its own. Knows walks, rules and intervals; asks nobody for a speculation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from mars_viz.controllers import Controller
from mars_viz.dialmap.dial_range import Span
from mars_viz.records import Policy, Round, Verdicts
from mars_viz.replay import shortened
from mars_viz.rules import Rule
from mars_viz.walk import Answer, Ending, step

Prefix = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Branch:
    """A walk for all dial values from `low` up to, but not including, `high`."""

    low: float
    """Its smallest dial value."""
    high: float
    """Where the next one begins."""
    gamma: int
    """Tokens of a block that it looks at."""
    prefix: Prefix
    """The prompt and the text so far."""
    rounds: tuple[Round, ...] = ()
    """How it got there."""
    finished: bool = False
    """True if its text is complete."""


class Judged:
    """The answers after a prompt with a rule's verdicts on them, each judged once, and how branches grow by them."""

    def __init__(
        self,
        rule: Rule,
        answers: Mapping[Prefix, Answer],
        prompt: Prefix,
        ending: Ending,
        controller: Controller | None = None,
        dial: float | None = None,
    ):
        """Over the rule's dial, or with a controller over its threshold, at this value of the rule's dial."""
        self._rule = rule
        self._controller, self._dial = controller, dial
        self._answers = answers
        self._prompt = prompt
        self._ending = ending
        self._judged: dict[tuple[Prefix, int], tuple[Answer, Verdicts]] = {}
        self._breakpoints: dict[tuple[Prefix, int], np.ndarray] = {}

    def roots(self, span: Span) -> list[Branch]:
        """A branch for each block length, which stands for the whole range of the dial."""
        return [Branch(span.low, span.top, gamma, self._prompt) for gamma in span.gammas]

    def advanced(self, branches: Iterable[Branch]) -> list[Branch]:
        """All of them after one more round, in their order."""
        return [child for branch in branches for child in self._grown(branch)]

    def _grown(self, branch: Branch) -> Iterator[Branch]:
        """The branch after one more round, in as many pieces as the round cuts it into; itself where it cannot go
        on, since it is finished or nobody has answered."""
        if branch.finished or branch.prefix not in self._answers:
            yield branch
            return
        text = branch.prefix[len(self._prompt) :]
        piece: Branch | None = None
        high = branch.low
        while high < branch.high:
            low = high
            round_, flip = self._decided(branch, low, text)
            high = min(flip, branch.high)
            if piece is not None and _alike(piece.rounds[-1], round_):
                piece = replace(piece, high=high)
                continue
            if piece is not None:
                yield piece
            finished = self._ending.reached(text + round_.token_ids)
            grown = branch.prefix + round_.token_ids
            piece = Branch(low, high, branch.gamma, grown, (*branch.rounds, round_), finished)
        assert piece is not None  # an interval is never empty
        yield piece

    def _decided(self, branch: Branch, at: float, text: Prefix) -> tuple[Round, float]:
        """The branch's next round where the dial that is mapped stands at this value, and the smallest value above at
        which it may be another."""
        if self._controller is None:
            round_ = step(*self._at(branch.prefix, branch.gamma), at, self._ending, text)
            return round_, next_flip(round_, at)
        stops = self._stops(branch)
        length = self._controller.drafted(stops, at)
        round_ = step(*self._at(branch.prefix, length), self._dial, self._ending, text)
        return round_, float(min(stops[stops > at], default=math.inf))

    def _stops(self, branch: Branch) -> np.ndarray:
        """float64 [N]; where each token leaves the branch's next block."""
        assert self._controller is not None
        key = (branch.prefix, branch.gamma)
        if key not in self._breakpoints:
            whole = shortened(self._answers[branch.prefix].speculation, branch.gamma)
            self._breakpoints[key] = self._controller.breakpoints(whole)
        return self._breakpoints[key]

    def _at(self, prefix: Prefix, length: int) -> tuple[Answer, Verdicts]:
        """The answer as so short a draft, judged."""
        key = (prefix, length)
        if key not in self._judged:
            answer = self._answers[prefix]
            answer = replace(answer, speculation=shortened(answer.speculation, length))
            self._judged[key] = answer, self._rule.judge(answer.speculation)
        return self._judged[key]


def _alike(one: Round, other: Round) -> bool:
    """True for rounds of one answer that drafted as much, kept the same nodes and wrote the same."""
    drafted = len(one.speculation) == len(other.speculation)
    return drafted and one.token_ids == other.token_ids and one.decision.kept == other.decision.kept


def next_flip(round_: Round, dial: float) -> float:
    """The smallest dial value above this one, at which the round was decided, where the decision may be another;
    infinite where there is none.

    Only breakpoints at nodes and rows that the walk looks at count, and where the gaps of such nodes begin.
    """
    speculation, verdicts, decision = round_.speculation, round_.verdicts, round_.decision
    reached = np.full(len(speculation) + 1, verdicts.policy is Policy.LONGEST)  # which looks at all that may be kept
    reached[[0, *(node + 1 for node in decision.kept)]] = True
    judged = reached[speculation.judging_rows]
    flips = np.append(verdicts.breakpoints[judged], verdicts.row_breakpoints[decision.row])
    if verdicts.gap_from is not None:
        flips = np.append(flips, verdicts.gap_from[judged])
    return float(min(flips[flips > dial], default=math.inf))
