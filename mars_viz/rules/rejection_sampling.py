"""Rejection sampling, the lossless rule of speculative sampling."""

from __future__ import annotations

import numpy as np

from mars_viz.records import Emission, Speculation, Verdicts
from mars_viz.rules.base import OnTrees, Rule


class RejectionSampling(Rule):
    """Keep x iff u <= p(x) / q(x); else emit a sample of norm((p - q)+). At temperature 0 both laws are one-hot."""

    name = "rejection-sampling"
    title = "Rejection sampling"
    summary = "Keeps a drafted token with probability p/q, which preserves the target's distribution exactly."
    formula = "u ≤ p(x)/q(x)"
    source = "Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318"
    lossless = True
    on_rejection = Emission.RESIDUAL
    on_trees = OnTrees.JUDGED
    tries = "siblings are tried in draft order, by coins against p/q as those refused before leave it"

    def _judge(self, speculation: Speculation) -> Verdicts:
        """Verdicts without breakpoints."""
        return self._strictly(speculation, coin_keeps(speculation))


def coin_keeps(speculation: Speculation) -> np.ndarray:
    """bool [N]; u <= p(x) / q(x), with one-hot laws at temperature 0 and q one-hot for a draft that was not drawn.

    Of siblings, none of which was drawn, p is what is left once those before were refused: they are taken out of it.
    Of drawn ones both p and q are what is left.
    """
    if speculation.temperature == 0:
        return speculation.tokens == speculation.top_ids[speculation.judging_rows, 0]
    if speculation.is_drawn_tree:
        return (speculation.p_left > 0) & (speculation.coins * speculation.q_left <= speculation.p_left)
    if speculation.is_tree:
        return (speculation.p > 0) & (speculation.coins * left_of_p(speculation) <= speculation.p)
    return (speculation.p > 0) & (speculation.coins * drafted_q(speculation) <= speculation.p)


def left_of_p(speculation: Speculation) -> np.ndarray:
    """float64 [N]; how much of the target's law is left when each node is tried: all but its earlier siblings."""
    return np.maximum(1 - tried_before(speculation), 0)


def tried_before(speculation: Speculation) -> np.ndarray:
    """float64 [N]; what the target's law gives the siblings that are tried before each node together."""
    rows, siblings, p = speculation.judging_rows, speculation.siblings, speculation.p.astype(np.float64)
    found, so_far = np.zeros(len(p)), np.zeros(len(speculation.top_ids))
    for rank in range(int(siblings.max(initial=0))):  # row by row, so that a sum is the same whatever else is judged
        nodes = siblings == rank
        so_far[rows[nodes]] += p[nodes]
        later = siblings == rank + 1
        found[later] = so_far[rows[later]]
    return found


def drafted_q(speculation: Speculation) -> np.ndarray:
    """float32 [N]; q(x), 1 for a draft that was not drawn."""
    return speculation.q if speculation.sampled else np.ones_like(speculation.q)
