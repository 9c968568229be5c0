"""Branches of a dial map: walks with an interval of dial values, which rounds split.

A breakpoint inside a branch's interval, at a node or row that the branch reaches, splits the branch. A block drafted
for γ tokens also serves shorter ones, so the walks for several γ share speculations. If the dial is a controller's
threshold, the rule's dial is fixed, and each length to which the controller cuts the block is a piece of its own.
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
    """A walk that is valid for all dial values with low <= dial < high."""

    low: float
    high: float
    """Start of the next branch."""
    gamma: int
    """Block length."""
    prefix: Prefix
    """The prompt and the text so far."""
    rounds: tuple[Round, ...] = ()
    """The rounds that led to `prefix`."""
    finished: bool = False
    """True if the text is complete."""


class Judged:
    """Answers with a rule's cached verdicts; extends branches by one round."""

    def __init__(
        self,
        rule: Rule,
        answers: Mapping[Prefix, Answer],
        prompt: Prefix,
        ending: Ending,
        controller: Controller | None = None,
        dial: float | None = None,
    ):
        """Map the rule's dial, or the controller's threshold at this value of the rule's dial."""
        self._rule = rule
        self._controller, self._dial = controller, dial
        self._answers = answers
        self._prompt = prompt
        self._ending = ending
        self._judged: dict[tuple[Prefix, int], tuple[Answer, Verdicts]] = {}
        self._breakpoints: dict[tuple[Prefix, int], np.ndarray] = {}

    def roots(self, span: Span) -> list[Branch]:
        """Return a branch for each block length over the whole range of the dial."""
        return [Branch(span.low, span.top, gamma, self._prompt) for gamma in span.gammas]

    def advanced(self, branches: Iterable[Branch]) -> list[Branch]:
        """Return all branches after one more round, in order."""
        return [child for branch in branches for child in self._grown(branch)]

    def _grown(self, branch: Branch) -> Iterator[Branch]:
        """Yield the pieces into which one more round splits the branch; the branch itself if it is finished or has no
        answer."""
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
        """Return the branch's next round at this value of the mapped dial, and the smallest larger value that may
        change it."""
        if self._controller is None:
            round_ = step(*self._at(branch.prefix, branch.gamma), at, self._ending, text)
            return round_, next_flip(round_, at)
        stops = self._stops(branch)
        length = self._controller.drafted(stops, at)
        round_ = step(*self._at(branch.prefix, length), self._dial, self._ending, text)
        return round_, float(min(stops[stops > at], default=math.inf))

    def _stops(self, branch: Branch) -> np.ndarray:
        """Return the breakpoint at which each token leaves the branch's next block, float64 [N]."""
        assert self._controller is not None
        key = (branch.prefix, branch.gamma)
        if key not in self._breakpoints:
            block = shortened(self._answers[branch.prefix].speculation, branch.gamma)
            self._breakpoints[key] = self._controller.breakpoints(block)
        return self._breakpoints[key]

    def _at(self, prefix: Prefix, length: int) -> tuple[Answer, Verdicts]:
        """Return the answer cut to `length` tokens, with its verdicts."""
        key = (prefix, length)
        if key not in self._judged:
            answer = self._answers[prefix]
            answer = replace(answer, speculation=shortened(answer.speculation, length))
            self._judged[key] = answer, self._rule.judge(answer.speculation)
        return self._judged[key]


def _alike(one: Round, other: Round) -> bool:
    """Return True if two rounds of one answer have equal draft length, accepted nodes and text."""
    drafted = len(one.speculation) == len(other.speculation)
    return drafted and one.token_ids == other.token_ids and one.decision.kept == other.decision.kept


def next_flip(round_: Round, dial: float) -> float:
    """Return the smallest dial value above `dial` at which the round's decision may change; inf if there is none.

    `dial` is the value at which the round was decided. Only breakpoints, and starts of gaps, at nodes and rows that the
    walk reaches count.
    """
    speculation, verdicts, decision = round_.speculation, round_.verdicts, round_.decision
    reached = np.full(len(speculation) + 1, verdicts.policy is Policy.LONGEST)  # which looks at all that may be kept
    reached[[0, *(node + 1 for node in decision.kept)]] = True
    judged = reached[speculation.judging_rows]
    flips = np.append(verdicts.breakpoints[judged], verdicts.row_breakpoints[decision.row])
    if verdicts.gap_from is not None:
        flips = np.append(flips, verdicts.gap_from[judged])
    return float(min(flips[flips > dial], default=math.inf))
