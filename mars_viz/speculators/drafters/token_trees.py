"""Level-by-level drafting of trees of the likeliest tokens, or of drawn paths, independent of the source of logits.

EAGLE-2's dynamic tree (Li et al. 2024, arXiv 2406.16858; `topK_genrate` in SafeAILab/EAGLE): on every level the k
likeliest paths are extended, each by its k likeliest tokens; the tree is the n likeliest of all candidates. A path's
probability is the product of the drafter's probabilities, so a node is never likelier than its parent, and the tree of
fewer nodes is the likeliest part of the larger one.

Sequoia's static tree (Chen et al. 2024, arXiv 2402.12374) grows in the same way, with the measured chance that a node's
first, second, ... child is kept instead of the drafter's probabilities: its form is known before drafting.

In a tree of drawn paths, K paths are drawn independently from the drafter's law, from the prefix on or after a shared
trunk. Paths with a common beginning are merged, so that the children of a node are distinct; repeated draws are
recorded, not stored twice. The first path is the chain that the same random numbers would draw, and the tree of fewer
paths is part of the one with more.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from mars_viz.randomness import Purpose, round_uniforms
from mars_viz.run import Settings
from mars_viz.shapes import Shape, best_paths
from mars_viz.speculators.devices import sent
from mars_viz.speculators.draft import Draft, Trees, rows_at
from mars_viz.speculators.sampling import draw, largest, law, on_device
from mars_viz.trees import also_itself


@dataclass(frozen=True, slots=True)
class Level:
    """The w nodes of a level that are extended, in each of B trees."""

    depth: int  # 1 for the first level
    ids: Tensor  # int64 [B, w]; in the target's vocabulary
    parents: list[list[int]]  # [B, w]; each node's parent in the level before; 0 in the first
    sees: list[list[bytes]]
    """[B, w]; one byte for each of the W nodes of all levels so far: 1 for its ancestors and itself."""


Deeper = Callable[[Level], Tensor]  # returns the raw logits [B, w, V'] after each node of a level


def tree_drafted(
    first: Tensor,
    deeper: Deeper,
    shape: Shape,
    settings: Settings,
    starts: Sequence[int],
    nodes: int,
    vocabulary: Tensor | None = None,
) -> Draft:
    """Return trees of this shape with at most `nodes` nodes, from the raw logits [B, V'] after prefixes of `starts`
    tokens. `vocabulary` is as in `Draft`."""
    shape = shape.within(nodes)
    if shape.drawn:
        return drawn(first, deeper, shape, settings, starts, vocabulary)
    return grown(first, deeper, shape, nodes, vocabulary)


def grown(first: Tensor, deeper: Deeper, shape: Shape, nodes: int, vocabulary: Tensor | None = None) -> Draft:
    """Return trees of at most `nodes` nodes, from the raw logits [B, V'] after each prefix; `vocabulary` as in `Draft`.

    Laws stay on the device. The host chooses the extended nodes, which it needs to know in any case, with lists,
    because arrays of this size take longer to start.
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
    return _draft([tree.likeliest(nodes) for tree in trees], torch.cat(rows, 1), vocabulary, are_drawn=False)


@lru_cache(maxsize=64)
def _planned(shape: Shape, nodes: int, k: int) -> tuple[list[float], ...]:
    """Return scores of each level's candidates in a static tree: by their place in the plan, -inf for others."""
    places = {path: -float(i) for i, path in enumerate(best_paths(shape.accept, shape.depth, nodes))}
    chosen: list[tuple[int, ...]] = [()]
    level_scores: list[list[float]] = []
    for width in (*shape.widths(nodes), 0):
        level = [(*path, rank) for path in chosen for rank in range(k)]
        level_scores.append([places.get(path, -math.inf) for path in level])
        chosen = [level[i] for i in _largest_first(level_scores[-1], range(len(level)))[:width]]
    return tuple(level_scores)


def _meet(trees: Sequence[_Growing], logits: Tensor, vocabulary: Tensor | None, planned: list[float] | None) -> None:
    """Add the k likeliest tokens after each of m nodes, by the logits [B, m, V'], as candidates. They are scored as
    `planned`, or by the drafter's law."""
    likeliest = largest(logits, trees[0].each)[1]
    ids = (likeliest if vocabulary is None else vocabulary[likeliest]).flatten(1).tolist()
    shares = logits.log_softmax(-1).gather(-1, likeliest).tolist() if planned is None else [()] * len(ids)
    for tree, tree_ids, these in zip(trees, ids, shares, strict=True):
        tree.meet(tree_ids, planned, these)


class _Growing:
    """Candidates of one text's tree while it grows: after each row of logits its k likeliest tokens."""

    def __init__(self, each: int):
        self.each = each  # k: candidate c was drafted from row c // k
        self._ids: list[int] = []  # of the candidates, in the target's vocabulary
        self._scores: list[float] = []  # float32; the logarithms of their paths' probabilities, or what was planned
        self._above = [-1]  # of each row the place of the candidate that it comes after; the prefix has none
        self._sees: list[bytes] = []  # of each row but the first which of them it sees
        self._begin, self._first = 0, 0  # the first candidate and the first row of the last level

    def meet(self, ids: Sequence[int], planned: Sequence[float] | None, shares: Sequence[Sequence[float]]) -> None:
        """Add the candidates after the last m rows, with `planned` scores or, in float32, those of their paths by the
        logarithms `shares` [m, k]."""
        if planned is None:
            before = [self._scores[place] if place >= 0 else 0.0 for place in self._above[-len(shares) :]]
            planned = array("f", [score + share for score, row in zip(before, shares, strict=True) for share in row])
        self._begin = len(self._ids)
        self._ids += ids
        self._scores += planned

    def gone_on_with(self, width: int) -> tuple[list[int], list[int], list[bytes]]:
        """Return the likeliest candidates of the last level: tokens, parents in the level before, and visible nodes."""
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

    def likeliest(self, nodes: int) -> TokenTree:
        """Return the likeliest candidates as a tree. Among equal ones the first counts, so that a parent comes before
        its children. Candidates that cannot be drafted, with score -inf, are left out."""
        best = _largest_first(self._scores, range(len(self._ids)))[:nodes]
        rank = {place: i for i, place in enumerate(best, start=1) if self._scores[place] > -math.inf}
        rows = {place: place // self.each for place in rank}
        return TokenTree.of({at: (self._ids[at], self._above[row], row, rank[at], 0) for at, row in rows.items()})


def _largest_first(scores: Sequence[float], places: range) -> list[int]:
    return sorted(places, key=scores.__getitem__, reverse=True)


def drawn(
    first: Tensor,
    deeper: Deeper,
    shape: Shape,
    settings: Settings,
    starts: Sequence[int],
    vocabulary: Tensor | None = None,
) -> Draft:
    """Return trees of drawn paths; see `tree_drafted`. Each path is read as if it were alone."""
    paths = range(shape.children)
    keyed = [[round_uniforms(settings.seed, at, Purpose.DRAFT, shape.depth, path) for path in paths] for at in starts]
    uniforms = on_device(np.array(keyed), first.device)  # [B, K, depth]; those of the first path are a chain's
    rows, sees, levels, drawn_from = first.unsqueeze(1), [b""], [], []
    for depth in range(1, shape.depth + 1):
        width = 1 if depth <= shape.trunk else shape.children
        above = [*range(width)] if width == rows.shape[1] else [0] * width  # each its own, or all the one
        rows, begins = rows[:, above], len(sees[0])
        sees = [also_itself(sees[parent], begins + i) for i, parent in enumerate(above)]
        sees = [seen.ljust(begins + width, b"\0") for seen in sees]
        picked = draw(law(rows, settings), uniforms[:, :width, depth - 1])  # [B, w]
        levels.append(picked if vocabulary is None else vocabulary[picked])
        drawn_from.append(rows)
        if depth < shape.depth:
            b = len(first)
            rows = deeper(Level(depth, levels[-1], [above] * b, [sees] * b))  # [B, w, V']
    on_host = [level.cpu().numpy() for level in levels]
    trees = [TokenTree.of_paths([level[i].tolist() for level in on_host]) for i in range(len(first))]
    return _draft(trees, torch.cat(drawn_from, 1), vocabulary, are_drawn=True)


@dataclass(frozen=True, slots=True)
class TokenTree:
    """Nodes in depth-first preorder: siblings by falling score, or in the order in which they were first drawn."""

    tokens: list[int]  # in the target's vocabulary
    parents: list[int]  # -1 for the prefix
    places: list[int]  # index of the row of logits that each node was drafted from
    budgets: list[int]
    """Size of the smallest tree with each node: its rank, or the order in which it was first drawn, path by path."""
    draws: list[int]  # see `Speculation.draws`; 0 if the tree is not drawn

    @classmethod
    def of(cls, nodes: Mapping[int, Sequence[int]]) -> TokenTree:
        """Number nodes of [token, parent, place, budget, draws] in preorder; the prefix is -1 among parents."""
        children: dict[int, list[int]] = {}
        for node, (_, parent, *_) in nodes.items():
            children.setdefault(parent, []).append(node)
        order, waiting = list[int](), children.get(-1, [])[::-1]
        while waiting:
            order.append(waiting.pop())
            waiting += children.get(order[-1], ())[::-1]
        number = {-1: -1} | {node: i for i, node in enumerate(order)}
        tokens, parents, places, budgets, draws = ([nodes[node][i] for node in order] for i in range(5))
        return cls(tokens, [number[parent] for parent in parents], places, budgets, draws)

    @classmethod
    def of_paths(cls, levels: Sequence[Sequence[int]]) -> TokenTree:
        """Build from one text's drawn tokens [w] per level: one per path, or one that all paths share."""
        nodes: dict[int, list[int]] = {}  # in the order of drawing
        node_of: dict[tuple[int, int], int] = {}
        begins = np.cumsum([0, *map(len, levels)]).tolist()
        for path in range(max(map(len, levels))):
            node = -1
            for begin, level in zip(begins, levels, strict=False):
                at = path if len(level) > 1 else 0
                child = node_of.setdefault((node, level[at]), len(nodes))
                if child == len(nodes):
                    nodes[child] = [level[at], node, begin + at, child + 1, 0]
                if at == path:
                    nodes[child][-1] |= 1 << path
                node = child
        return cls.of(nodes)


def _draft(trees: Sequence[TokenTree], rows: Tensor, vocabulary: Tensor | None, *, are_drawn: bool) -> Draft:
    lengths = tuple(len(tree.parents) for tree in trees)
    places, tokens = (np.zeros((len(trees), max(lengths)), np.int64) for _ in range(2))
    for i, tree in enumerate(trees):
        places[i, : lengths[i]], tokens[i, : lengths[i]] = tree.places, tree.tokens
    parents, budgets = tuple(tuple(tree.parents) for tree in trees), (np.array(t.budgets, np.int32) for t in trees)
    draws = tuple(np.array(tree.draws, np.int32) for tree in trees) if are_drawn else None
    branching = Trees(parents, tuple(budgets), draws)
    return Draft(sent(tokens, rows.device), rows_at(rows, sent(places, rows.device)), vocabulary, lengths, branching)
