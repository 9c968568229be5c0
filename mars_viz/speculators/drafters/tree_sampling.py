"""Level-by-level drafting of a tree of drawn paths, independent of the source of logits.

K paths are drawn independently from the drafter's law, from the prefix on or after a shared trunk. Paths with a common
beginning are merged, so that the children of a node are distinct; repeated draws are recorded, not stored twice. The
first path is the chain that the same random numbers would draw, and the tree of fewer paths is part of the one with
more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mars_viz.randomness import Purpose, round_uniforms
from mars_viz.run import Settings
from mars_viz.shapes import Shape
from mars_viz.speculators.devices import sent
from mars_viz.speculators.draft import Draft, rows_at
from mars_viz.speculators.drafters.tree_growth import Deeper, Level, grown
from mars_viz.speculators.sampling import draw, law, on_device
from mars_viz.trees import also_itself


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


def drawn(
    first: Tensor,
    deeper: Deeper,
    shape: Shape,
    settings: Settings,
    starts: Sequence[int],
    vocabulary: Tensor | None = None,
) -> Draft:
    """Return trees of drawn paths; see `tree_drafted`. Each path is read as if it were alone."""
    uniforms = _uniforms(settings, starts, shape, first.device)  # [B, K, depth]
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
    return _draft(levels, torch.cat(drawn_from, 1), vocabulary)


def _uniforms(settings: Settings, starts: Sequence[int], shape: Shape, device: torch.device) -> Tensor:
    """Return each path's uniforms, float64 [B, K, depth]. Those of the first path are a chain's."""
    paths = range(shape.children)
    keyed = [
        [round_uniforms(settings.seed, start, Purpose.DRAFT, shape.depth, path) for path in paths] for start in starts
    ]
    return on_device(np.array(keyed), device)


def _draft(levels: Sequence[Tensor], rows: Tensor, vocabulary: Tensor | None) -> Draft:
    """Return trees of paths, with tokens [B, w] per level, drawn from rows of logits [B, R, V'] level by level."""
    on_host = [level.cpu().numpy() for level in levels]
    trees = [PathTree.of([level[i].tolist() for level in on_host]) for i in range(len(rows))]
    lengths = tuple(len(tree.parents) for tree in trees)
    places, tokens = (np.zeros((len(trees), max(lengths)), np.int64) for _ in range(2))
    for i, tree in enumerate(trees):
        places[i, : lengths[i]], tokens[i, : lengths[i]] = tree.places, tree.tokens
    return Draft(
        sent(tokens, rows.device),
        rows_at(rows, sent(places, rows.device)),
        vocabulary,
        lengths,
        tuple(tuple(tree.parents) for tree in trees),
        tuple(np.array(tree.budgets, np.int32) for tree in trees),
        tuple(np.array(tree.draws, np.int32) for tree in trees),
    )


@dataclass(frozen=True, slots=True)
class PathTree:
    """Nodes in depth-first preorder, siblings in the order in which they were first drawn."""

    tokens: list[int]
    parents: list[int]
    """-1 for the prefix."""
    places: list[int]
    """Index of each node among all draws, level by level."""
    budgets: list[int]
    """Order in which the nodes were first drawn, path by path, from 1."""
    draws: list[int]
    """See `Speculation.draws`."""

    @classmethod
    def of(cls, levels: Sequence[Sequence[int]]) -> PathTree:
        """Build from one text's tokens [w] per level: one per path, or one that all paths share."""
        met, node_of = cls([], [], [], [], []), dict[tuple[int, int], int]()
        begins = np.cumsum([0, *map(len, levels)]).tolist()
        for path in range(max(map(len, levels))):
            node = -1
            for begin, level in zip(begins, levels, strict=False):
                at = path if len(level) > 1 else 0
                child = node_of.setdefault((node, level[at]), len(met.parents))
                if child == len(met.parents):
                    for values, value in zip(met._all, (level[at], node, begin + at, child + 1, 0), strict=True):
                        values.append(value)
                if at == path:
                    met.draws[child] |= 1 << path
                node = child
        return met._in_preorder()

    @property
    def _all(self) -> tuple[list[int], ...]:
        return self.tokens, self.parents, self.places, self.budgets, self.draws

    def _in_preorder(self) -> PathTree:
        """Return the nodes in preorder instead of drawing order."""
        children: dict[int, list[int]] = {}
        for node, parent in enumerate(self.parents):
            children.setdefault(parent, []).append(node)
        order: list[int] = []
        waiting = children[-1][::-1]
        while waiting:
            order.append(waiting.pop())
            waiting += children.get(order[-1], [])[::-1]
        number = {-1: -1} | {node: i for i, node in enumerate(order)}
        tokens, parents, places, budgets, draws = ([values[node] for node in order] for values in self._all)
        return PathTree(tokens, [number[parent] for parent in parents], places, budgets, draws)
