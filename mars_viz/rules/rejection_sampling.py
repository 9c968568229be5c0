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
        return self._strictly(speculation, coin_keeps(speculation))


def coin_keeps(speculation: Speculation) -> np.ndarray:
    """Return u <= p(x) / q(x), bool [N], with one-hot laws at temperature 0 and one-hot q for a deterministic draft.
    Deterministic siblings: p loses the siblings rejected before. Drawn siblings: p and q are the remaining laws."""
    if speculation.temperature == 0:
        return speculation.tokens == speculation.top_ids[speculation.judging_rows, 0]
    if speculation.is_drawn_tree:
        return (speculation.p_left > 0) & (speculation.coins * speculation.q_left <= speculation.p_left)
    if speculation.is_tree:
        return (speculation.p > 0) & (speculation.coins * left_of_p(speculation) <= speculation.p)
    return (speculation.p > 0) & (speculation.coins * drafted_q(speculation) <= speculation.p)


def left_of_p(speculation: Speculation) -> np.ndarray:
    """Return the share of the target's law left when each node is tried, without its earlier siblings; float64 [N]."""
    return np.maximum(1 - tried_before(speculation), 0)


def tried_before(speculation: Speculation) -> np.ndarray:
    """Return the target's total probability of the siblings tried before each node, float64 [N]."""
    rows, siblings, p = speculation.judging_rows, speculation.siblings, speculation.p.astype(np.float64)
    before, so_far = np.zeros(len(p)), np.zeros(len(speculation.top_ids))
    for rank in range(int(siblings.max(initial=0))):  # row by row, so that a sum is the same whatever else is judged
        nodes = siblings == rank
        so_far[rows[nodes]] += p[nodes]
        later = siblings == rank + 1
        before[later] = so_far[rows[later]]
    return before


def drafted_q(speculation: Speculation) -> np.ndarray:
    """Return q(x), float32 [N]; 1 for a deterministic draft."""
    return speculation.q if speculation.sampled else np.ones_like(speculation.q)
