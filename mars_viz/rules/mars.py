"""MARS, margin-aware verification, as in its paper."""

from __future__ import annotations

import numpy as np

from mars_viz.records import Emission, Speculation, Verdicts
from mars_viz.rules.base import FREE, Dial, OnTrees, Rule, Scale, each_best

THETA = Dial(symbol="θ", name="ratio threshold", low=0.0, high=1.0, step=0.005, default=0.9, strict_is_high=True)


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
        """The runner-up's breakpoint is the ratio of its row."""
        best, runner_up = each_best(speculation, 2).T
        if not any(runner_up.tolist()):
            return self._strictly(speculation, best)
        z1, ratio = map(speculation.at_nodes, (speculation.z1, speculation.ratio))
        return self._relaxed(speculation, best, np.where(runner_up & (z1 > 0), ratio, np.nan))
