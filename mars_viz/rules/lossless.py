"""Lossless rules of chains: strict matching, rejection sampling and block verification."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from mars_viz.records import Emission, Speculation, Verdicts
from mars_viz.rules.base import OnTrees, Rule, register


@register
class Strict(Rule):
    """Keep x iff it is the target's own token y; emit y. At temperature 0, y = v1; above, y is the keyed sample of p.

    Above temperature 0 this is sample-match, as in llama.cpp, and in transformers for a drafter without q. The sample
    is keyed by position only, so the text equals, token for token, the text that the target decodes by itself.
    """

    name = "strict"
    title = "Strict"
    summary = "Keeps a drafted token only if the target itself would have written it."
    formula = "x = y, with y = v1 at T = 0 and y ~ p above"
    source = "greedy: arXiv 2211.17192; sampled: sample-match, as in llama.cpp"
    lossless = True
    on_rejection = Emission.SAMPLE
    on_trees = OnTrees.JUDGED
    tries = "of siblings only the target's own sample is kept"

    def _judge(self, speculation: Speculation) -> Verdicts:
        return self._strictly(speculation, sample_keeps(speculation))


def sample_keeps(speculation: Speculation) -> np.ndarray:
    """Return True if x is the target's own token, the keyed sample of p; bool [N]."""
    return speculation.tokens == speculation.emissions[speculation.judging_rows, Emission.SAMPLE]


@register
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


class Tossed(Rule):
    """Rejection sampling that, up to a token's breakpoint, also keeps a token that its coin rejects."""

    on_rejection = Emission.RESIDUAL

    def _judge(self, speculation: Speculation) -> Verdicts:
        return self._relaxed(speculation, coin_keeps(speculation), self._reach(speculation))

    @abstractmethod
    def _reach(self, speculation: Speculation) -> np.ndarray:
        """Return the breakpoint of each token if its coin rejects it, float64 [N]; NaN if it is never kept."""


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


@register
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
    for node, (ratio, start) in enumerate(zip(ratios.tolist(), (speculation.parents < 0).tolist(), strict=True)):
        weights[node] = weight = min(1.0, (1.0 if start else weight) * ratio)
    return weights


def block_keeps(speculation: Speculation) -> np.ndarray:
    """Return the verdicts on each chain, bool [N]: keep up to the last node whose coin is at most its h."""
    weights, starts = block_weights(speculation), speculation.parents < 0  # the starts of concatenated chains
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
