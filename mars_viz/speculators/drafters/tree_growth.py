"""How a tree is drafted level by level, whoever makes the logits. Knows logits and shapes; knows no models.

EAGLE-2's dynamic tree (Li et al. 2024, arXiv 2406.16858; `topK_genrate` in SafeAILab/EAGLE): of every level the k
likeliest paths are gone on with, each by its k likeliest tokens; of all that were met the likeliest n are the tree. A
path is as likely as the product of the drafter's probabilities, so a node is never likelier than its parent, and the
tree of fewer nodes is the likeliest part of the larger one.

Sequoia's static tree (Chen et al. 2024, arXiv 2402.12374) is grown alike, by the measured chance that a node's first,
second, … child is kept in place of the drafter's probabilities: its form is known before anything is drafted.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from mars_viz.shapes import Shape, best_paths
from mars_viz.speculators.draft import Draft, rows_at
from mars_viz.speculators.host_copy import sent
from mars_viz.speculators.topk import largest
from mars_viz.trees import also_itself


@dataclass(frozen=True, slots=True)
class Level:
    """The w nodes of a level that something is drafted after, of each of B trees."""

    depth: int
    """1 for those that follow the prefix."""
    ids: Tensor
    """int64 [B, w]; in the target's vocabulary."""
    parents: list[list[int]]
    """[B, w]; which of the level before each follows; 0 in the first."""
    sees: list[list[bytes]]
    """[B, w]; which of the W nodes of all levels so far each sees, a byte for each: 1 for those it follows, and
    itself."""


Deeper = Callable[[Level], Tensor]
"""The raw logits [B, w, V'] after each node of a level."""


def grown(first: Tensor, deeper: Deeper, shape: Shape, nodes: int, vocabulary: Tensor | None = None) -> Draft:
    """Trees of at most so many nodes, from the raw logits [B, V'] after each prefix; `vocabulary` as in `Draft`.

    Laws stay where they are; which nodes are gone on with is worked out on the host, which has to know it anyway: in
    lists, since arrays so small take longer to start than lists to work on.
    """
    k, widths = min(shape.children, first.shape[-1]), shape.widths(nodes)
    trees = [_Growing(k) for _ in first]
    plan = _planned(shape, nodes, k) if shape.accept else (None,) * (len(widths) + 1)
    rows = [first.unsqueeze(1)]
    _meet(trees, rows[0], vocabulary, plan[0])
    for depth, width in enumerate(widths, start=1):
        ids, parents, sees = zip(*(tree.gone_on_with(width) for tree in trees), strict=True)
        rows.append(deeper(Level(depth, sent(ids, first.device), list(parents), list(sees))))  # [B, w, V']
        _meet(trees, rows[-1], vocabulary, plan[depth])
    return _draft([tree.likeliest(nodes) for tree in trees], torch.cat(rows, 1), vocabulary)


@lru_cache(maxsize=64)
def _planned(shape: Shape, nodes: int, k: int) -> tuple[list[float], ...]:
    """Of a static tree, whose form says which nodes it has, what stands for the scores of each level's candidates: the
    earlier in the plan the larger, and -inf for those that it has not."""
    places = {path: -float(i) for i, path in enumerate(best_paths(shape.accept, shape.depth, nodes))}
    chosen: list[tuple[int, ...]] = [()]
    found: list[list[float]] = []
    for width in (*shape.widths(nodes), 0):
        level = [(*path, rank) for path in chosen for rank in range(k)]
        found.append([places.get(path, -math.inf) for path in level])
        chosen = [level[i] for i in _largest_first(found[-1], range(len(level)))[:width]]
    return tuple(found)


def _meet(trees: Sequence[_Growing], logits: Tensor, vocabulary: Tensor | None, planned: list[float] | None) -> None:
    """Let the k likeliest tokens after each of m nodes, by the logits [B, m, V'], be candidates: scored as `planned`,
    or by the drafter's law."""
    found = largest(logits, trees[0].each)
    ids = (found.ids if vocabulary is None else vocabulary[found.ids]).flatten(1).tolist()
    if planned is not None:
        for tree, own in zip(trees, ids, strict=True):
            tree.meet(own, planned)
        return
    shares = logits.log_softmax(-1).gather(-1, found.ids).tolist()
    for tree, own, these in zip(trees, ids, shares, strict=True):
        tree.meet(own, tree.along_paths(these))


class _Growing:
    """What one text's tree is chosen from, while it is grown: after each row of logits its k likeliest tokens."""

    def __init__(self, each: int):
        """Nothing is met yet."""
        self.each = each
        """k: the candidate at place c was drafted from row c // k."""
        self._ids: list[int] = []  # of the candidates, in the target's vocabulary
        self._scores: list[float] = []  # float32; the logarithms of their paths' probabilities, or what was planned
        self._above = [-1]  # of each row the place of the candidate that it comes after; the prefix has none
        self._sees: list[bytes] = []  # of each row but the first which of them it sees
        self._begin, self._first = 0, 0  # the first candidate and the first row of the last level

    def along_paths(self, shares: Sequence[Sequence[float]]) -> Sequence[float]:
        """Scores of the candidates after the last m rows, whose logarithms these are, [m, k], in float32."""
        before = [self._scores[place] if place >= 0 else 0.0 for place in self._above[-len(shares) :]]
        return array("f", [score + share for score, own in zip(before, shares, strict=True) for share in own])

    def meet(self, ids: Sequence[int], scores: Sequence[float]) -> None:
        """Let these be the next candidates."""
        self._begin = len(self._ids)
        self._ids += ids
        self._scores += scores

    def gone_on_with(self, width: int) -> tuple[list[int], list[int], list[bytes]]:
        """Of the last level the likeliest so many: tokens, which of the level before they follow, and what they see."""
        best = _largest_first(self._scores, range(self._begin, len(self._ids)))[:width]
        parents = [place // self.each - self._first for place in best]
        self._first = len(self._above)
        for place in best:
            row = place // self.each
            self._sees.append(also_itself(self._sees[row - 1] if row else b"", len(self._sees)))
            self._above.append(place)
        count = len(self._sees)
        sees = [seen.ljust(count, b"\0") for seen in self._sees[count - len(best) :]]
        return [self._ids[place] for place in best], parents, sees

    def likeliest(self, nodes: int) -> _Tree:
        """The likeliest so many candidates as a tree; the first one of equals, so that a parent comes before its
        children. A candidate that cannot be drafted, of score -inf, is left out."""
        order = _largest_first(self._scores, range(len(self._ids)))[:nodes]
        rank = {place: i for i, place in enumerate(order, start=1) if self._scores[place] > -math.inf}
        children: dict[int, list[int]] = {}
        for place in rank:
            children.setdefault(self._above[place // self.each], []).append(place)
        places: list[int] = []
        parents: list[int] = []
        node_of, waiting = {-1: -1}, children.get(-1, [])[::-1]
        while waiting:
            place = waiting.pop()
            node_of[place] = len(places)
            places.append(place)
            parents.append(node_of[self._above[place // self.each]])
            waiting += children.get(place, [])[::-1]
        return _Tree(
            tokens=[self._ids[place] for place in places],
            rows=[place // self.each for place in places],
            parents=tuple(parents),
            budgets=np.array([rank[place] for place in places], np.int32),
        )


def _largest_first(scores: Sequence[float], places: range) -> list[int]:
    """These places, the first one of equals first."""
    return sorted(places, key=scores.__getitem__, reverse=True)


@dataclass(frozen=True, slots=True)
class _Tree:
    """Nodes in depth-first preorder, siblings by falling score."""

    tokens: list[int]
    """In the target's vocabulary."""
    rows: list[int]
    """Of all rows of logits that which each was drafted from."""
    parents: tuple[int, ...]
    """-1 for the prefix."""
    budgets: np.ndarray
    """int32 [N]; of how many nodes the smallest tree is that has each."""


def _draft(trees: Sequence[_Tree], rows: Tensor, vocabulary: Tensor | None) -> Draft:
    """The trees, of rows of logits [B, R, V']."""
    lengths = tuple(len(tree.tokens) for tree in trees)
    filling = [(max(lengths) - length) * [0] for length in lengths]
    places = [tree.rows + zeros for tree, zeros in zip(trees, filling, strict=True)]
    tokens = [tree.tokens + zeros for tree, zeros in zip(trees, filling, strict=True)]
    return Draft(
        sent(tokens, rows.device),
        rows_at(rows, sent(places, rows.device)),
        vocabulary,
        lengths,
        tuple(tree.parents for tree in trees),
        tuple(tree.budgets for tree in trees),
    )
