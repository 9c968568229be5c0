"""k-SEQ: the first of k drawn children whose coin passes p/(ρ q) is accepted."""

from __future__ import annotations

from mars_viz.rules.recursive_rejection import RecursiveRejection


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
    left = "k_seq_emission"
