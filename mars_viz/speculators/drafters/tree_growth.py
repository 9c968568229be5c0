"""How a tree is drafted level by level, whoever makes the logits. Knows logits and shapes; knows no models.

EAGLE-2's dynamic tree (Li et al. 2024, arXiv 2406.16858; `topK_genrate` in SafeAILab/EAGLE): of every level the k
likeliest paths are gone on with, each by its k likeliest tokens; of all that were met the likeliest n are the tree. A
path is as likely as the product of the drafter's probabilities, so a node is never likelier than its parent, and the
tree of fewer nodes is the likeliest part of the larger one.

Sequoia's static tree (Chen et al. 2024, arXiv 2402.12374) is grown alike, by the measured chance that a node's first,
second, … child is kept in place of the drafter's probabilities: its form is known before anything is drafted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mars_viz.shapes import Shape, best_paths
from mars_viz.speculators.draft import Draft
from mars_viz.speculators.host_copy import sent
from mars_viz.speculators.topk import largest


@dataclass(frozen=True, slots=True)
class Level:
    """The w nodes of a level that something is drafted after, of each of B trees."""

    depth: int
    """1 for those that follow the prefix."""
    ids: Tensor
    """int64 [B, w]; in the target's vocabulary."""
    parents: Tensor
    """int64 [B, w]; which of the level before each follows; 0 in the first."""
    sees: np.ndarray
    """bool [B, w, W]; which of the W nodes of all levels so far each sees: those it follows, and itself."""


Deeper = Callable[[Level], Tensor]
"""The raw logits [B, w, V'] after each node of a level."""


@dataclass(frozen=True, slots=True)
class _Met:
    """Candidates [B, C], on the host."""

    ids: np.ndarray
    """int64; in the target's vocabulary."""
    scores: np.ndarray
    """float32; the logarithm of the path's probability."""
    parents: np.ndarray
    """int64; the place of each one's parent among all candidates, -1 for the prefix."""
    rows: np.ndarray
    """int64; which of all rows of logits each was drafted from."""

    @classmethod
    def after(cls, nodes: np.ndarray, row: int, ids: np.ndarray, scores: np.ndarray) -> _Met:
        """What was drafted after the nodes at these places [B, m], whose rows of logits begin at `row`."""
        m = nodes.shape[1]
        each = ids.shape[1] // m
        rows = np.broadcast_to(np.arange(row, row + m).repeat(each), ids.shape)
        return cls(ids, scores, nodes.repeat(each, 1), rows)


def grown(first: Tensor, deeper: Deeper, shape: Shape, nodes: int, vocabulary: Tensor | None = None) -> Draft:
    """Trees of at most so many nodes, from the raw logits [B, V'] after each prefix; `vocabulary` as in `Draft`.

    Laws stay where they are; which nodes are gone on with is worked out on the host, which has to know it anyway.
    """
    b, k, device = len(first), min(shape.children, first.shape[-1]), first.device
    plan = _Plan(shape, nodes) if shape.accept else None
    texts, rows, seats, begin = np.arange(b)[:, None], [first.unsqueeze(1)], 1, 0
    ids, scores = _likeliest(rows[0], np.zeros((b, 1), np.float32), k, vocabulary)
    if plan is not None:
        scores = plan.scores(scores)
    met, sees = [_Met.after(np.full((b, 1), -1), 0, ids, scores)], np.zeros((b, 1, 0), bool)
    for depth, width in enumerate(shape.widths(nodes), start=1):
        best = np.argsort(-scores, axis=1, kind="stable")[:, :width]  # [B, w], of what was met in the level before
        above, parents = begin + best, best // k
        begin += scores.shape[1]
        own = np.eye(best.shape[1], dtype=bool)[None].repeat(b, 0)
        sees = np.concatenate([sees[texts, parents], own], 2)
        chosen = Level(depth, sent(ids[texts, best], device), sent(parents, device), sees)
        rows.append(deeper(chosen))  # [B, w, V']
        ids, scores = _likeliest(rows[-1], scores[texts, best], k, vocabulary)  # [B, w · k]
        if plan is not None:
            scores = plan.scores(scores, best[0].tolist())
        met.append(_Met.after(above, seats, ids, scores))
        seats += best.shape[1]
    together = _Met(*(np.concatenate([getattr(each, name) for each in met], 1) for name in _Met.__slots__))
    return _draft(together, torch.cat(rows, 1), nodes, vocabulary)


class _Plan:
    """A static tree while it grows: its form alone says which nodes it has."""

    def __init__(self, shape: Shape, nodes: int):
        paths = best_paths(shape.accept, shape.depth, nodes)
        self._places = {path: -float(i) for i, path in enumerate(paths)}
        self._level: list[tuple[int, ...]] = [()]

    def scores(self, like: np.ndarray, chosen: Sequence[int] = (0,)) -> np.ndarray:
        """Of the children [B, C] of these nodes of the level before: the earlier in the plan the larger, and -inf for
        those that it has not."""
        each = like.shape[1] // len(chosen)
        self._level = [(*self._level[i], rank) for i in chosen for rank in range(each)]
        planned = np.array([self._places.get(path, -np.inf) for path in self._level], like.dtype)
        return np.broadcast_to(planned, like.shape)


def _likeliest(logits: Tensor, scores: np.ndarray, k: int, vocabulary: Tensor | None) -> tuple[np.ndarray, np.ndarray]:
    """The k likeliest tokens after each of m nodes, [B, m · k], from their logits [B, m, V'], and how likely the paths
    are that they end, from those of the nodes [B, m]."""
    found = largest(logits, k)
    shares = logits.log_softmax(-1).gather(-1, found.ids).cpu().numpy()
    ids = found.ids if vocabulary is None else vocabulary[found.ids]
    return ids.flatten(1).cpu().numpy(), (scores[..., None] + shares).reshape(len(scores), -1)


def _draft(met: _Met, rows: Tensor, nodes: int, vocabulary: Tensor | None) -> Draft:
    """The likeliest candidates as trees, of rows of logits [B, R, V']."""
    trees = [_preorder(scores, parents, nodes) for scores, parents in zip(met.scores, met.parents, strict=True)]
    lengths = tuple(len(tree.places) for tree in trees)
    places, texts = np.zeros((len(trees), max(lengths)), np.int64), np.arange(len(trees))[:, None]
    for i, tree in enumerate(trees):
        places[i, : lengths[i]] = tree.places
    return Draft(
        sent(met.ids[texts, places], rows.device),
        rows[sent(texts, rows.device), sent(met.rows[texts, places], rows.device)],
        vocabulary,
        lengths,
        tuple(tree.parents for tree in trees),
        tuple(tree.budgets for tree in trees),
    )


@dataclass(frozen=True, slots=True)
class _Tree:
    """Nodes in depth-first preorder, siblings by falling score."""

    places: list[int]
    """Of each node among the candidates."""
    parents: list[int]
    """-1 for the prefix."""
    budgets: np.ndarray
    """int32 [N]; of how many nodes the smallest tree is that has each."""


def _preorder(scores: np.ndarray, parents: np.ndarray, nodes: int) -> _Tree:
    """The likeliest so many candidates [C] as a tree; the first one of equals, so that a parent comes before its
    children. A candidate that cannot be drafted, of score -inf, is left out."""
    order = np.argsort(-scores, kind="stable")[:nodes]
    order = order[scores[order] > -np.inf].tolist()
    children: dict[int, list[int]] = {}
    for place in order:
        children.setdefault(int(parents[place]), []).append(place)
    found, node_of, waiting = _Tree([], [], np.empty(0)), {-1: -1}, children.get(-1, [])[::-1]
    while waiting:
        place = waiting.pop()
        node_of[place] = len(found.places)
        found.places.append(place)
        found.parents.append(node_of[int(parents[place])])
        waiting += children.get(place, [])[::-1]
    rank = {place: i for i, place in enumerate(order, start=1)}
    return _Tree(found.places, found.parents, np.array([rank[place] for place in found.places], np.int32))
