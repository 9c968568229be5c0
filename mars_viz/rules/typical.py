"""Typical acceptance: accept a drafted token if it is unsurprising relative to the target's entropy."""

from __future__ import annotations

import numpy as np

from mars_viz.records import Emission, Speculation, Verdicts
from mars_viz.rules.base import FREE, Dial, OnTrees, Rule, among_best, drafted_p
from mars_viz.rules.fixed import Fixed


class Typical(Rule):
    """Keep x iff x = v1 or p(x) > min(ε, α exp(-H)) with α = c √ε; else emit v1. ε = 1 is off: v1 alone.

    α is tied to ε, so that one dial moves both; c = 1 is Medusa's setting. H is the entropy of the plain softmax.
    Medusa uses the run's temperature, which is the same at temperatures 0 and 1.
    """

    name = "typical"
    title = "Typical acceptance"
    summary = "Keeps a token whose probability exceeds a bound that falls as the target's entropy rises."
    formula = "x = v1, or p(x) > min(ε, α·exp(−H)) with α = {c}·√ε"
    source = "Medusa, arXiv 2401.10774, and vllm-ascend 9772 (entropy verify); summary read"
    dial = Dial(symbol="ε", name="typical threshold", low=0.0, high=1.0, step=0.01, default=0.09, strict_is_high=True)
    on_rejection = Emission.ARGMAX
    on_trees = OnTrees.JUDGED
    policies = FREE
    needs = ("z", "logsumexp", "entropy")
    fixed = (Fixed("c", "c", "α over √ε", 0.1, 10, 1, "how the entropy's threshold α follows ε, as c·√ε", whole=False),)

    def _judge(self, speculation: Speculation) -> Verdicts:
        """p > min(ε, c √ε exp(-H)) is ε < max(p, (p exp(H) / c)²)."""
        p = drafted_p(speculation)
        entropy = speculation.entropy[speculation.judging_rows].astype(np.float64)
        breakpoints = np.maximum(p, (p * np.exp(entropy) / self.values["c"]) ** 2)
        return self._relaxed(speculation, among_best(speculation, 1), np.where(p > 0, breakpoints, np.nan))
