"""MARS with a threshold that, unlike z2/z1, does not change when a constant is added to all logits."""

from __future__ import annotations

import numpy as np

from mars_viz.records import Emission, Speculation, Verdicts
from mars_viz.rules.base import FREE, Dial, OnTrees, Rule, Scale, among_best, just_above


class MarsMargin(Rule):
    """Keep x iff x = v1, or x = v2 and z1 - z2 < m; else emit v1."""

    name = "mars-margin"
    title = "MARS by margin"
    summary = "MARS by the difference of the two best logits, which no shift of the logits changes."
    formula = "x = v1, or x = v2 and z1 − z2 < m"
    source = "ours: the shift-invariant form of arXiv 2601.15498; m = 2 is θ = 0.9 where z1 = 20"
    dial = Dial(symbol="m", name="margin threshold", low=0.0, high=10.0, step=0.05, default=2.0, strict_is_high=False)
    scale = Scale.MARGIN
    on_rejection = Emission.ARGMAX
    on_trees = OnTrees.JUDGED
    policies = FREE

    def _judge(self, speculation: Speculation) -> Verdicts:
        """The runner-up is kept from just above the margin of its row."""
        margin = speculation.margin[speculation.judging_rows]
        breakpoints = np.where(among_best(speculation, 2), just_above(margin), np.nan)
        return self._relaxed(speculation, among_best(speculation, 1), breakpoints)


class MarsOdds(Rule):
    """Keep x iff x = v1, or x = v2 and p2/p1 > ρ; else emit v1. p2/p1 = exp(-(z1 - z2) / T), with T = 1 when greedy."""

    name = "mars-odds"
    title = "MARS by probabilities"
    summary = "MARS by the ratio of the two best tokens' probabilities instead of their logits."
    formula = "x = v1, or x = v2 and p2/p1 > ρ"
    source = "ours: the shift-invariant form of arXiv 2601.15498; ρ = 0.135 is a margin of 2 at T = 1"
    dial = Dial(symbol="ρ", name="odds threshold", low=0.0, high=1.0, step=0.005, default=0.135, strict_is_high=True)
    on_rejection = Emission.ARGMAX
    on_trees = OnTrees.JUDGED
    policies = FREE

    def _judge(self, speculation: Speculation) -> Verdicts:
        """The runner-up's breakpoint is p2/p1 of its row."""
        odds = np.exp(-speculation.margin[speculation.judging_rows] / (speculation.temperature or 1.0))
        relaxes = among_best(speculation, 2) & (odds > 0)
        return self._relaxed(speculation, among_best(speculation, 1), np.where(relaxes, odds, np.nan))
