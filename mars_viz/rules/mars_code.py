"""MARS as in its released code, which differs from the paper."""

from __future__ import annotations

import numpy as np

from mars_viz.evidence import Of
from mars_viz.records import Emission, Speculation, Verdicts
from mars_viz.rules.base import OnTrees, Rule, Scale, among_best, emissions
from mars_viz.rules.mars import THETA
from mars_viz.rules.rejection_sampling import coin_keeps, left_of_p


class MarsCode(Rule):
    """The released code, which differs from the paper.

    T = 0 ignores θ. T > 0 and z2/z1 > θ: keep v1 and v2, reject any other token regardless of its coin and emit a
    sample of p. T > 0 and z2/z1 <= θ: keep iff u <= p(x)/q(x); else lower x's entry of p by q(x), renormalise and
    sample, which is biased unless q is one-hot. If z1 < 0 the ratio is at least 1 and the rule relaxes at every θ.

    In trees a row's ratio decides for all tokens drafted there, tried in order. Coins use p without the siblings
    rejected before: a coin rejects x only if q(x) > p(x), so its entry becomes 0. q(x) is the drafter's plain softmax
    of x, although trees of the likeliest tokens are not drawn from it.
    """

    name = "mars-code"
    title = "MARS as released"
    summary = "What the authors' code does: θ has no effect at temperature 0, and close calls overrule the coin."
    formula = "T = 0: x = v1. T > 0: z2/z1 > θ ? x ∈ {v1, v2} : u ≤ p(x)/q(x)"
    source = "5SSjw/MARS, mars/model/utils.py, evaluate_posterior (code read)"
    dial = THETA
    scale = Scale.RATIO
    on_rejection = Emission.LOWERED
    on_trees = OnTrees.JUDGED
    tries = (
        "siblings are tried in draft order: where z2/z1 > θ the first of the target's two best tokens is kept, "
        "elsewhere coins decide, against p/q without those refused before"
    )
    needs = ("own_q",)
    monotone = False  # a close call overrules the coin in both directions
    emission_follows_dial = True

    def _judge(self, speculation: Speculation) -> Verdicts:
        """Above temperature 0 every row's breakpoint is its ratio, for the verdict and for the emission."""
        if speculation.temperature == 0:
            return self._strictly(speculation, among_best(speculation, 1))
        rows = speculation.judging_rows
        ratio = _released_ratio(speculation)
        close, coin = among_best(speculation, 2), _coin_keeps(speculation)
        below, above = emissions(speculation, Emission.SAMPLE), emissions(speculation, self.on_rejection)
        return Verdicts(
            breakpoints=np.where(close != coin, ratio[rows], np.nan),
            keep_below=close,
            keep_above=coin,
            keep_strict=coin,
            row_breakpoints=np.where(below != above, ratio, np.nan),
            emit_below=below,
            emit_above=above,
        )


def _coin_keeps(speculation: Speculation) -> np.ndarray:
    """Return u <= p(x)/q(x) above temperature 0, with p without earlier siblings, bool [N]."""
    if speculation.kind is Of.CHAINS:
        return coin_keeps(speculation)
    q = speculation.q if speculation.kind is Of.DRAWN else speculation.own_q
    threshold = speculation.coins * np.maximum(q, 1e-10) * left_of_p(speculation)
    return (speculation.p > 0) & (threshold <= speculation.p)


def _released_ratio(speculation: Speculation) -> np.ndarray:
    """Return z2 / (z1 + 1e-10), float64 [N + 1]; -inf if the processors leave a single token."""
    z1, z2 = speculation.z1.astype(np.float64), speculation.z2.astype(np.float64)
    return np.where(speculation.support > 1, z2 / (z1 + 1e-10), -np.inf)
