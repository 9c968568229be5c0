"""Greedy multi-path block verification: one of several drawn paths is chosen and judged as a block."""

from __future__ import annotations

from mars_viz.rules.traversal import Traversal


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
    left = "greedy_emission"
