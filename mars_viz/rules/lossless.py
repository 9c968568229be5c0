"""Lossless rules: strict matching, rejection sampling, block verification, and rules of trees of drawn paths."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from mars_viz.records import Emission, Of, Speculation, Verdicts
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


@register
class RecursiveRejection(RejectionSampling):
    """Try the children of a token draw by draw: keep x iff u <= p(x)/q(x); else p becomes norm((p - q)+), with q
    unchanged. Emit a sample of the remaining p after every draw was rejected.

    A token drawn twice counts twice, although it is one node of the tree: no probability of it is left after its first
    rejection, and q is subtracted from p once more. In a chain this is rejection sampling; at temperature 0 it is the
    strict rule.
    """

    name = "recursive-rejection"
    title = "Recursive rejection, with replacement"
    summary = "Tries the drawn children of a token in turn, each against what earlier refusals left of p."
    formula = "u ≤ p(x)/q(x), with p ← norm((p − q)₊) after each earlier draw"
    source = "SpecInfer, arXiv 2305.09781, multi-step speculative sampling (summary read)"
    on_trees = OnTrees.DRAWN
    tries = "siblings are tried in draft order, by coins against p/q; each refused draw takes q off p"
    needs: ClassVar[tuple[str, ...]] = ("recursive_keep", "recursive_emission")
    chances = "recursive_keep"

    def _judge(self, speculation: Speculation) -> Verdicts:
        if speculation.temperature == 0 or speculation.kind is not Of.DRAWN:
            return super()._judge(speculation)
        chances: np.ndarray = getattr(speculation, self.chances)
        keeps = (chances > 0) & (speculation.coins <= chances)
        return self._strictly(speculation, keeps, getattr(speculation, self.needs[-1]))  # samples of the remaining p


@register
class KSeq(RecursiveRejection):
    """Keep the first of the k tokens drawn at a node with u <= p(x)/(ρ q(x)), with p unchanged; else emit a sample of
    norm(p - min(p/ρ, q) (1 - (1 - β)^k)/β).

    β = Σ min(p/ρ, q) is the chance that one draw is kept, and ρ in [1, k] solves 1 - (1 - β)^k = ρ β, rounded up. k
    counts a token as often as it was drawn. In a chain, k = 1 and ρ = 1, and this is rejection sampling; at temperature
    0 it is the strict rule.
    """

    name = "k-seq"
    title = "k-SEQ"
    summary = "Keeps the first of k drawn children whose coin passes p/(ρq), with one ρ for all of them."
    formula = "ρ·u ≤ p(x)/q(x), with 1 − (1 − β)^k = ρβ for β = Σ min(p/ρ, q)"
    source = "SpecTr, arXiv 2310.15141, algorithm 2 (summary read)"
    tries = "siblings are tried in draft order, by coins against p/(ρq) with one ρ for all, and p stays"
    needs = ("k_seq_keep", "k_seq_emission")
    chances = "k_seq_keep"


@register
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

    def _judge(self, speculation: Speculation) -> Verdicts:
        if speculation.temperature == 0 or speculation.kind is not Of.DRAWN:
            return super()._judge(speculation)
        keeps = up_to_first(speculation, getattr(speculation, self.chances))
        return self._strictly(speculation, keeps, getattr(speculation, self.needs[-1]))  # samples of the remaining p


@register
class GreedyMultiPath(Traversal):
    """Follow the path with the largest p(x)/q(x) at each step and keep its first τ tokens, τ = max{i : u_i <= h_i};
    emit a sample of norm((w p - q')+).

    q' is the law of that choice's draws. With F the q-mass of the K paths ranked below the tokens so far, m that of
    these tokens, and c that of the next ones ranked below x, q'(x) = [(F + m (c + q))^K - (F + m c)^K] / [(F + m)^K -
    F^K]. w and h are block verification's, with q' for q. In a chain this is block verification; at temperature 0 it is
    the strict rule.
    """

    name = "greedy-multi-path"
    title = "Greedy multi-path block verification"
    summary = "Chooses of several drawn paths the one that the target leans to most, and judges it as one block."
    formula = "x is on the path of largest p/q, and some later or equal i of it has u_i ≤ h_i"
    source = "arXiv 2602.16961 (summary and third-party code read)"
    tries = "of siblings the one of largest p/q is followed, and the path so chosen is judged as one block"
    needs = ("block_mass", "greedy_stop", "greedy_emission")
    chances = "greedy_stop"


def up_to_first(speculation: Speculation, chances: np.ndarray) -> np.ndarray:
    """Return, for each draft, the path down to the first node whose coin is at most its chance, bool [N]. Children come
    before their parents. The path is empty if no node passes."""
    parents, nodes = speculation.parents, np.arange(len(speculation))
    begins = (parents < 0) & (speculation.siblings == 0)  # the first node of each concatenated draft
    above = parents.tolist()
    ends = nodes.tolist()  # the last node below each, in preorder
    for node in reversed(ends[:]):
        if above[node] >= 0:
            ends[above[node]] = max(ends[above[node]], ends[node])
    passes = (chances > 0) & (speculation.coins <= chances)
    order = np.lexsort((-nodes, np.array(ends)))
    passing = order[passes[order]]
    _, first = np.unique(np.cumsum(begins)[passing], return_index=True)
    keeps = np.zeros(len(nodes), bool)
    for node in passing[first].tolist():
        while node >= 0:
            keeps[node] = True
            node = above[node]
    return keeps
