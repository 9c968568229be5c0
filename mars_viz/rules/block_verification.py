"""Block verification: the number of accepted tokens is decided for the block as a whole."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from mars_viz.records import Emission, Speculation, Verdicts
from mars_viz.rules.base import OnTrees, Rule
from mars_viz.rules.rejection_sampling import coin_keeps, drafted_q


class BlockVerification(Rule):
    """Keep the first τ tokens, τ = max{i : u_i <= h_i}; emit a sample of norm((w p - q)+) with w = w_τ.

    w_0 = 1, w_i = min(1, w_(i-1) p(x_i)/q(x_i)); h_i = S_i / (S_i + 1 - w_i) with S_i = Σ (w_i p - q)+ at the next
    position, and h_γ = w_γ. This is not a prefix rule: a coin that fails early does not end the block. At temperature 0
    it is the strict rule.
    """

    name = "block-verification"
    title = "Block verification"
    summary = "Decides for the block as a whole, and keeps at least as many tokens as rejection sampling on average."
    formula = "some later or equal i has u_i ≤ h_i"
    source = "arXiv 2403.10444; vLLM's kernel (summary read)"
    lossless = True
    on_rejection = Emission.BLOCK
    on_trees = OnTrees.GREEDY
    tries = "the path is judged as one block"
    needs: ClassVar[tuple[str, ...]] = ("block_mass",)
    spans_positions = True

    def _judge(self, speculation: Speculation) -> Verdicts:
        if speculation.temperature == 0:
            return self._strictly(speculation, coin_keeps(speculation))
        return self._strictly(speculation, block_keeps(speculation))


def block_weights(speculation: Speculation) -> np.ndarray:
    """Return w after each node of its chain, float64 [N]; double precision, because it is a product along the block."""
    weights, weight = np.empty(len(speculation)), 1.0
    ratios = speculation.p.astype(np.float64) / drafted_q(speculation)
    for node, (ratio, start) in enumerate(zip(ratios.tolist(), _starts(speculation).tolist(), strict=True)):
        weights[node] = weight = min(1.0, (1.0 if start else weight) * ratio)
    return weights


def block_keeps(speculation: Speculation) -> np.ndarray:
    """Return the verdicts on each chain, bool [N]: keep up to the last node whose coin is at most its h."""
    weights, starts = block_weights(speculation), _starts(speculation)
    total = speculation.block_mass + 1 - weights
    chances = np.divide(speculation.block_mass, total, out=np.ones_like(total), where=total > 0)
    ends = np.append(starts[1:], True)[: len(starts)]
    chances[ends] = weights[ends]
    passes = (weights > 0) & (speculation.coins <= chances)
    nodes, chain = np.arange(len(starts)), np.cumsum(starts) - 1
    last = np.full(int(starts.sum()), -1)  # of each chain, the last node that passes
    np.maximum.at(last, chain[passes], nodes[passes])
    keeps: np.ndarray = nodes <= last[chain]
    return keeps


def _starts(speculation: Speculation) -> np.ndarray:
    """Return True for nodes that start a chain, bool [N]; there are several if drafts are concatenated."""
    starts: np.ndarray = speculation.parents < 0
    return starts
