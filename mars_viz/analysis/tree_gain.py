"""Value of branching: tokens per pass with the best tree of n nodes and with a chain of n, from a drafter's choices.

The choices are how often the target's token was the drafter's first, second, or any choice.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from mars_viz.records import Round
from mars_viz.run import Run
from mars_viz.shapes import LONGEST_PATH, MOST_CHILDREN, best_paths

_ROUNDS = 500  # maximum number of rounds of a run used for the chances of children
_FEWEST = 20  # minimum number of places for reliable chances
_RAREST = 0.01  # children with a lower chance are left out


@dataclass(frozen=True, slots=True)
class Choices:
    """Rank of the target's best token among the drafter's, at the verified places."""

    places: int  # number of places
    first: int  # how often it was the drafter's first choice
    second: int  # how often it was the second choice

    @property
    def alpha(self) -> float:
        """Share of places with the first choice. NaN without places."""
        return self.first / self.places if self.places else np.nan

    @property
    def rescued(self) -> float:
        """Share with the second choice among the other places. NaN without any."""
        missed = self.places - self.first
        return self.second / missed if missed else np.nan


def choices(run: Run) -> Choices:
    """Count the choices of a run: rows on the path taken whose draft has a recorded law."""
    ranks = Counter(rank for round_ in run.rounds for rank in _ranks(round_))
    return Choices(ranks.total(), ranks[0], ranks[1])


@dataclass(frozen=True, slots=True)
class ChildChances:
    """Chances that the target's best token is the drafter's first, second, ... choice. In a greedy decode by the strict
    rule these are the chances that a node's children are kept, from which static trees are built."""

    accept: tuple[float, ...]  # rounded to three digits, falling, at least `_RAREST`; empty for too few places
    places: int  # number of places used: the first ones of a long run


def child_chances(run: Run) -> ChildChances:
    """Return the chances of a run; none above temperature 0, at which other tokens may be kept."""
    ranks = Counter(rank for round_ in run.rounds[:_ROUNDS] for rank in _ranks(round_))
    places = ranks.total()
    if run.settings.temperature or places < _FEWEST:
        return ChildChances((), places)
    shares = sorted((count / places for rank, count in ranks.items() if rank >= 0), reverse=True)
    return ChildChances(tuple(round(share, 3) for share in shares if share >= _RAREST)[:MOST_CHILDREN], places)


def _ranks(round_: Round) -> list[int]:
    """Return the rank of the target's best token in the drafter's list at each row of the path; -1 if it is not
    listed."""
    spec = round_.speculation
    if spec.draft_ids.shape[1] < 2:
        return []
    first_child = {int(row): node for node, row in reversed(list(enumerate(spec.judging_rows)))}
    ranks = []
    for row in [0, *(node + 1 for node in round_.decision.kept[: round_.kept])]:
        if row in first_child:
            at = np.flatnonzero(spec.draft_ids[first_child[row]] == spec.top_ids[row, 0])
            ranks.append(int(at[0]) if len(at) else -1)
    return ranks


def tree_tokens(alpha: float, rescued: float, nodes: int) -> np.ndarray:
    """Return the mean tokens per pass with the best tree of 1, 2, ... nodes, float64 [nodes].

    A node's first child is the target's token with probability α, otherwise its second child with probability
    `rescued`. A node is kept with the product along its path, and the correction or bonus adds one token: 1 plus the
    sum of the products, which the best tree maximises (Sequoia, Chen et al. 2024, arXiv 2402.12374, section 3.1).
    """
    chances = sorted((alpha, (1 - alpha) * rescued), reverse=True)
    accept = tuple(chance for chance in chances if chance > 0)
    if not accept:
        return np.ones(nodes)
    paths = best_paths(accept, LONGEST_PATH, nodes)
    kept = np.array([np.prod([accept[rank] for rank in path]) for path in paths])
    return 1 + np.cumsum(np.append(kept, np.zeros(nodes - len(kept))))
