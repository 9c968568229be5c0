"""Chances that drafted children of a node are kept, counted on recorded runs, and the trees that follow from them."""

from __future__ import annotations

from collections import Counter

import numpy as np

from mars_viz import shapes
from mars_viz.records import Round
from mars_viz.run import Run

_ROUNDS = 500  # maximum number of rounds of a run used for the chances of children
_FEWEST = 20  # minimum number of places for reliable chances
_RAREST = 0.01  # children with a lower chance are left out


def choices(run: Run, most: int | None = None) -> Counter[int]:
    """Count the ranks, from 0, of the target's best token in the drafter's list, -1 if it is not listed: at the rows on
    the path taken whose draft has a recorded law, in at most this many rounds."""
    return Counter(rank for round_ in run.rounds[:most] for rank in _ranks(round_))


def chances(ranks: Counter[int]) -> tuple[float, float]:
    """Return the share of places with the drafter's first choice, and that of the second among the others; 0 without
    places."""
    return ranks[0] / max(1, ranks.total()), ranks[1] / max(1, ranks.total() - ranks[0])


def child_chances(run: Run) -> tuple[tuple[float, ...], int]:
    """Return the chances that the target's best token is the drafter's first, second, ... choice, falling, and the
    number of places used.

    In a greedy decode by the strict rule these are the chances that a node's children are kept, from which static trees
    are built. There are none above temperature 0, at which other tokens may be kept, and for too few places.
    """
    ranks = choices(run, _ROUNDS)
    places = ranks.total()
    if run.settings.temperature or places < _FEWEST:
        return (), places
    shares = sorted((count / places for rank, count in ranks.items() if rank >= 0), reverse=True)
    return tuple(round(share, 3) for share in shares if share >= _RAREST)[: shapes.MOST_CHILDREN], places


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
    paths = shapes.best_paths(accept, shapes.LONGEST_PATH, nodes)
    kept = np.array([np.prod([accept[rank] for rank in path]) for path in paths])
    return 1 + np.cumsum(np.append(kept, np.zeros(nodes - len(kept))))
