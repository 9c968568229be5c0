"""MARS, margin-aware verification: its paper, its released code, and variants of both."""

from __future__ import annotations

import numpy as np

from mars_viz.records import Emission, Of, Speculation, Verdicts
from mars_viz.rules.base import (
    FREE,
    Dial,
    Near,
    OnTrees,
    Rule,
    Scale,
    among_best,
    each_best,
    emissions,
    just_above,
    register,
)
from mars_viz.rules.lossless import Tossed, coin_keeps, left_of_p

THETA = Dial(symbol="θ", name="ratio threshold", low=0.0, high=1.0, step=0.005, default=0.9, strict_is_high=True)


@register
class Mars(Rule):
    """Keep x iff x = v1, or x = v2 and z2/z1 > θ; else emit v1. Raw logits; strict where z1 <= 0."""

    name = "mars"
    title = "MARS"
    summary = "Also keeps the target's runner-up where its logit comes close to the best one's."
    formula = "x = v1, or x = v2 and z2/z1 > θ"
    source = "arXiv 2601.15498, Algorithm 1 (summary read)"
    dial = THETA
    scale = Scale.RATIO
    strict_at_zero = True
    on_rejection = Emission.ARGMAX
    on_trees = OnTrees.JUDGED
    policies = FREE

    def _judge(self, speculation: Speculation) -> Verdicts:
        best, runner_up = each_best(speculation, 2).T
        if not any(runner_up.tolist()):
            return self._strictly(speculation, best)
        z1, ratio = map(speculation.at_nodes, (speculation.z1, speculation.ratio))
        return self._relaxed(speculation, best, np.where(runner_up & (z1 > 0), ratio, np.nan))


@register
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
        if speculation.temperature == 0:
            return self._strictly(speculation, among_best(speculation, 1))
        # every row's breakpoint is its ratio, for the verdict and for the emission
        rows, z1, kind = speculation.judging_rows, speculation.z1.astype(np.float64), speculation.kind
        ratio = np.where(speculation.support > 1, speculation.z2.astype(np.float64) / (z1 + 1e-10), -np.inf)
        close, coin = among_best(speculation, 2), coin_keeps(speculation)
        if kind is not Of.CHAINS:  # coins against p without earlier siblings
            q = speculation.q if kind is Of.DRAWN else speculation.own_q
            threshold = speculation.coins * np.maximum(q, 1e-10) * left_of_p(speculation)
            coin = (speculation.p > 0) & (threshold <= speculation.p)
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


@register
class MarsSampling(Tossed):
    """Keep x iff u <= p(x)/q(x), or x is v1 or v2 and z2/z1 > θ; else emit a sample of norm((p - q)+)."""

    name = "mars-sampling"
    title = "MARS with rejection sampling"
    summary = "Rejection sampling that also keeps either of the target's two best tokens where they are close."
    formula = "u ≤ p(x)/q(x), or x ∈ {v1, v2} and z2/z1 > θ"
    source = "ours: the natural reading of arXiv 2601.15498 above temperature 0"
    dial = THETA
    scale = Scale.RATIO
    strict_at_zero = True
    on_trees = OnTrees.JUDGED
    policies = FREE[:2]  # the longest of what coins keep would not be by the target's law at the strict end

    def _reach(self, speculation: Speculation) -> np.ndarray:
        rows = speculation.judging_rows
        relaxes = among_best(speculation, 2) & (speculation.z1[rows] > 0) & (speculation.support[rows] > 1)
        return np.where(relaxes, speculation.ratio[rows], np.nan)


@register
class MarsMargin(Near):
    """Keep x iff x = v1, or x = v2 and z1 - z2 < m; else emit v1."""

    name = "mars-margin"
    title = "MARS by margin"
    summary = "MARS by the difference of the two best logits, which no shift of the logits changes."
    formula = "x = v1, or x = v2 and z1 − z2 < m"
    source = "ours: the shift-invariant form of arXiv 2601.15498; m = 2 is θ = 0.9 where z1 = 20"
    dial = Dial(symbol="m", name="margin threshold", low=0.0, high=10.0, step=0.05, default=2.0, strict_is_high=False)
    scale = Scale.MARGIN

    def _reach(self, speculation: Speculation) -> np.ndarray:
        margin = speculation.margin[speculation.judging_rows]
        return np.where(among_best(speculation, 2), just_above(margin), np.nan)


@register
class MarsOdds(Near):
    """Keep x iff x = v1, or x = v2 and p2/p1 > ρ; else emit v1. p2/p1 = exp(-(z1 - z2) / T), with T = 1 when greedy."""

    name = "mars-odds"
    title = "MARS by probabilities"
    summary = "MARS by the ratio of the two best tokens' probabilities instead of their logits."
    formula = "x = v1, or x = v2 and p2/p1 > ρ"
    source = "ours: the shift-invariant form of arXiv 2601.15498; ρ = 0.135 is a margin of 2 at T = 1"
    dial = Dial(symbol="ρ", name="odds threshold", low=0.0, high=1.0, step=0.005, default=0.135, strict_is_high=True)

    def _reach(self, speculation: Speculation) -> np.ndarray:
        odds = np.exp(-speculation.margin[speculation.judging_rows] / (speculation.temperature or 1.0))
        relaxes = among_best(speculation, 2) & (odds > 0)
        return np.where(relaxes, odds, np.nan)
