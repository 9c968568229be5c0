"""Traversal verification: a tree of drawn paths is judged from its leaves upwards."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from mars_viz.evidence import Of
from mars_viz.records import Speculation, Verdicts
from mars_viz.rules.base import OnTrees
from mars_viz.rules.block_verification import BlockVerification


class Traversal(BlockVerification):
    """Take the first node, children before parents, with u <= w; emit a sample of the remaining p there.

    w is 1 above the first token and min(1, w_parent p(x)/q(x)) after a node. If a node is not taken, the row above
    loses its token: with S = Σ (w p - q)+ there, p becomes (w p - q)+/S, w becomes S/(S + 1 - w), and q loses the
    token. In a chain this is block verification; at temperature 0 it is the strict rule.
    """

    name = "traversal"
    title = "Traversal verification"
    summary = "Judges a tree of drawn paths from its leaves upwards, so that a whole path is weighed before it is cut."
    formula = "x, or a token drafted after it, is the first from the leaves upwards with u ≤ w"
    source = "arXiv 2505.12398 (summary read); paths that begin alike are one, so q loses each refused token"
    on_trees = OnTrees.DRAWN
    tries = "nodes are tried from the leaves upwards, children before parents, and the first kept takes its whole path"
    needs = ("block_mass", "traversal_stop", "traversal_emission")
    chances = "traversal_stop"
    left: ClassVar[str] = "traversal_emission"
    """Column with samples of the remaining p."""

    def _judge(self, speculation: Speculation) -> Verdicts:
        if speculation.temperature == 0 or speculation.kind is not Of.DRAWN:
            return super()._judge(speculation)
        keeps = up_to_first(speculation, getattr(speculation, self.chances))
        return self._strictly(speculation, keeps, getattr(speculation, self.left))


def up_to_first(speculation: Speculation, chances: np.ndarray) -> np.ndarray:
    """Return, for each draft, the path down to the first node whose coin is at most its chance, bool [N]. Children come
    before their parents. The path is empty if no node passes."""
    parents, nodes = speculation.parents, np.arange(len(speculation))
    begins = (parents < 0) & (speculation.siblings == 0)  # of each draft, where many stand end to end
    first = np.maximum.accumulate(np.where(begins, nodes, 0))
    above = parents.tolist()
    ends = nodes.tolist()  # the last node below each, in preorder
    for node in reversed(ends[:]):
        if above[node] >= 0:
            ends[above[node]] = max(ends[above[node]], ends[node])
    passes = (chances > 0) & (speculation.coins <= chances)
    order = np.lexsort((-nodes, np.array(ends)))
    keeps = np.zeros(len(nodes), bool)
    settled = set[int]()
    for node in order[passes[order]].tolist():
        if int(first[node]) in settled:
            continue
        settled.add(int(first[node]))
        while node >= 0:
            keeps[node] = True
            node = above[node]
    return keeps
