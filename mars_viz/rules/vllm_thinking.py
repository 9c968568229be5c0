"""The relaxed acceptance that was proposed for vLLM and its thinking models."""

from __future__ import annotations

import numpy as np

from mars_viz.records import Emission, Speculation, Verdicts
from mars_viz.rules.base import FREE, Dial, OnTrees, Rule, among_best, just_above
from mars_viz.rules.fixed import best_tokens


class VllmThinking(Rule):
    """Keep x iff it is among the k best and z_x >= z1 + ln r, raw logits; else emit v1. k = 1 is strict."""

    name = "vllm-thinking"
    title = "vLLM relaxed thinking"
    summary = "Keeps any of the {k} best tokens that is at least r times as likely as the best one."
    formula = "x = v1, or x among the {k} best and z_x ≥ z1 + ln r"
    source = "vLLM pull requests 21506, 22238, 43184, 45229 (closed, in no release); summary read"
    dial = Dial(symbol="r", name="relaxed ratio", low=0.0, high=1.0, step=0.01, default=0.5, strict_is_high=True)
    on_rejection = Emission.ARGMAX
    on_trees = OnTrees.JUDGED
    policies = FREE
    needs = ("z",)
    fixed = (best_tokens(3),)

    def _judge(self, speculation: Speculation) -> Verdicts:
        """Kept up to r = exp(z_x - z1)."""
        z1 = speculation.z1[speculation.judging_rows].astype(np.float64)
        reach = np.exp(speculation.z - z1)
        relaxes = among_best(speculation, int(self.values["k"])) & (reach > 0)
        return self._relaxed(speculation, among_best(speculation, 1), np.where(relaxes, just_above(reach), np.nan))
