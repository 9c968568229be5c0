"""What a branch is worth: tokens a pass yields with the best tree of so many nodes and with a chain of as many, and how
often a run's drafter had the target's token as its first choice, or else as its second, or as any.

Knows runs and shapes; knows no figures.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from mars_viz.records import Round
from mars_viz.run import Run
from mars_viz.shapes import LONGEST_PATH, MOST_CHILDREN, best_paths

_ROUNDS = 500
"""Rounds of a run that are asked for the chances of children."""
_FEWEST = 20
"""Places, below which these say too little."""
_RAREST = 0.01
"""Chance of a child, below which it is left out."""


@dataclass(frozen=True, slots=True)
class Choices:
    """Where the target's best token stood among the drafter's, at the places that were verified."""

    places: int
    """How many there were."""
    first: int
    """Of these, how often it was the drafter's first choice."""
    second: int
    """How often its second."""

    @property
    def alpha(self) -> float:
        """Share of places with the first choice. NaN without any."""
        return self.first / self.places if self.places else np.nan

    @property
    def rescued(self) -> float:
        """Of the other places, the share with the second choice. NaN without any."""
        missed = self.places - self.first
        return self.second / missed if missed else np.nan


def choices(run: Run) -> Choices:
    """Of the rounds of a run: each row of the path taken after which something was drafted by a recorded law."""
    found = Counter(rank for round_ in run.rounds for rank in _ranks(round_))
    return Choices(found.total(), found[0], found[1])


@dataclass(frozen=True, slots=True)
class ChildChances:
    """How often a run's drafter had the target's best token as its first, second, … choice: of a greedy decode by the
    strict rule the chance that a node's first, second, … child is kept, of which static trees are made."""

    accept: tuple[float, ...]
    """To three digits, falling, those of at least `_RAREST`; empty where too few places tell."""
    places: int
    """That were looked at: the first ones of a long run."""


def child_chances(run: Run) -> ChildChances:
    """Those of a run; of one above temperature 0, where another token than the best may be kept, none."""
    found = Counter(rank for round_ in run.rounds[:_ROUNDS] for rank in _ranks(round_))
    places = found.total()
    if run.settings.temperature or places < _FEWEST:
        return ChildChances((), places)
    shares = sorted((count / places for rank, count in found.items() if rank >= 0), reverse=True)
    return ChildChances(tuple(round(share, 3) for share in shares if share >= _RAREST)[:MOST_CHILDREN], places)


def _ranks(round_: Round) -> list[int]:
    """Of the target's best token among the drafter's candidates at each row of the path; -1 where it is none."""
    spec = round_.speculation
    if spec.draft_ids.shape[1] < 2:
        return []
    first_child = {int(row): node for node, row in reversed(list(enumerate(spec.judging_rows)))}
    path = [0, *(node + 1 for node in round_.decision.kept[: round_.kept])]
    ranks = []
    for row in path:
        if row in first_child:
            at = np.flatnonzero(spec.draft_ids[first_child[row]] == spec.top_ids[row, 0])
            ranks.append(int(at[0]) if len(at) else -1)
    return ranks


def tree_tokens(alpha: float, rescued: float, nodes: int) -> np.ndarray:
    """float64 [nodes]; tokens that a pass yields on average with the best tree of 1, 2, … nodes.

    A node's first child is the target's token with probability α, and where it is not, its second with `rescued`. A
    node is kept with the product along its path, and the correction or bonus comes on top: 1 plus the sum of the
    products, of which the best tree has the largest (Sequoia, Chen et al. 2024, arXiv 2402.12374, section 3.1).
    """
    both = sorted((alpha, (1 - alpha) * rescued), reverse=True)
    accept = tuple(chance for chance in both if chance > 0)
    if not accept:
        return np.ones(nodes)
    paths = best_paths(accept, LONGEST_PATH, nodes)
    kept = np.array([np.prod([accept[rank] for rank in path]) for path in paths])
    return 1 + np.cumsum(np.append(kept, np.zeros(nodes - len(kept))))
