"""Recursive rejection sampling with replacement: each draw of a node's children is tried in turn."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from mars_viz.evidence import Of
from mars_viz.records import Speculation, Verdicts
from mars_viz.rules.base import OnTrees
from mars_viz.rules.rejection_sampling import RejectionSampling


class RecursiveRejection(RejectionSampling):
    """Try the children of a token draw by draw: keep x iff u <= p(x)/q(x); else p becomes norm((p - q)+), with q
    unchanged. Emit a sample of the remaining p after every draw was rejected.

    A token drawn twice counts twice, although it is one node of the tree: no probability of it is left after its first
    rejection, and q is subtracted from p once more. In a chain this is rejection sampling; at temperature 0 it is the
    strict rule.
    """

    name = "recursive-rejection"
    title = "Recursive rejection, with replacement"
    summary = "Tries the drawn children of a token in turn, each draw anew, by what earlier refusals left of p."
    formula = "u ≤ p(x)/q(x), with p ← norm((p − q)₊) after each earlier draw"
    source = "SpecInfer, arXiv 2305.09781, multi-step speculative sampling (summary read)"
    on_trees = OnTrees.DRAWN
    tries = "siblings are tried in draft order, by coins against p/q, where each draw refused before took q off p"
    needs: ClassVar[tuple[str, ...]] = ("recursive_keep", "recursive_emission")
    chances = "recursive_keep"
    left: ClassVar[str] = "recursive_emission"
    """Column with samples of the remaining p after every draw was rejected."""

    def _judge(self, speculation: Speculation) -> Verdicts:
        if speculation.temperature == 0 or speculation.kind is not Of.DRAWN:
            return super()._judge(speculation)
        chances: np.ndarray = getattr(speculation, self.chances)
        keeps = (chances > 0) & (speculation.coins <= chances)
        return self._strictly(speculation, keeps, getattr(speculation, self.left))
