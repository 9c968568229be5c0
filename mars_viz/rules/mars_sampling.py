"""Margin-aware rejection sampling: MARS above temperature 0."""

from __future__ import annotations

import numpy as np

from mars_viz.records import Emission, Speculation, Verdicts
from mars_viz.rules.base import FREE, OnTrees, Rule, Scale, among_best
from mars_viz.rules.mars import THETA
from mars_viz.rules.rejection_sampling import coin_keeps


class MarsSampling(Rule):
    """Keep x iff u <= p(x)/q(x), or x is v1 or v2 and z2/z1 > θ; else emit a sample of norm((p - q)+)."""

    name = "mars-sampling"
    title = "MARS with rejection sampling"
    summary = "Rejection sampling that also keeps either of the target's two best tokens where they are close."
    formula = "u ≤ p(x)/q(x), or x ∈ {v1, v2} and z2/z1 > θ"
    source = "ours: the natural reading of arXiv 2601.15498 above temperature 0"
    dial = THETA
    scale = Scale.RATIO
    strict_at_zero = True
    on_rejection = Emission.RESIDUAL
    on_trees = OnTrees.JUDGED
    policies = FREE[:2]  # the longest of what coins keep would not be by the target's law at the strict end

    def _judge(self, speculation: Speculation) -> Verdicts:
        """The breakpoint of a token that its coin rejects is the ratio of its row."""
        rows = speculation.judging_rows
        relaxes = among_best(speculation, 2) & (speculation.z1[rows] > 0) & (speculation.support[rows] > 1)
        return self._relaxed(speculation, coin_keeps(speculation), np.where(relaxes, speculation.ratio[rows], np.nan))
