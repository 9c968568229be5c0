"""Lossless rules of trees whose paths were drawn."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from mars_viz.records import Of, Speculation, Verdicts
from mars_viz.rules.base import OnTrees, register
from mars_viz.rules.lossless import BlockVerification, RejectionSampling


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


def up_to_first(speculation: Speculation, chances: np.ndarray) -> np.ndarray:
    """Return, for each draft, the path down to the first node whose coin is at most its chance, bool [N]. Children come
    before their parents. The path is empty if no node passes."""
    parents, nodes = speculation.parents, np.arange(len(speculation))
    begins = (parents < 0) & (speculation.siblings == 0)  # the first node of each concatenated draft
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
