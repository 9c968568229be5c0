"""TensorRT-LLM's relaxed acceptance."""

from __future__ import annotations

import numpy as np

from mars_viz.records import Emission, Speculation, Verdicts
from mars_viz.rules.base import FREE, Dial, OnTrees, Rule, among_best, best_p, drafted_p
from mars_viz.rules.fixed import best_tokens


class TensorRtLlm(Rule):
    """Keep x iff it is among the k best and p(x) >= p(v1) - δ; else emit v1. The engine relaxes only in the thinking
    phase; this rule relaxes everywhere. δ = 0.6 admits all k if p(v1) <= 0.6. ATOM 411 is the same rule."""

    name = "tensorrt-llm"
    title = "TensorRT-LLM relaxed"
    summary = "Keeps any of the {k} best tokens whose probability comes within δ of the best one's."
    formula = "x = v1, or x among the {k} best and p(x) ≥ p(v1) − δ"
    source = "TensorRT-LLM, relaxed acceptance, DeepSeek-R1 preset (k = 10, δ = 0.6); summary read"
    dial = Dial(symbol="δ", name="relaxed delta", low=0.0, high=1.0, step=0.01, default=0.6, strict_is_high=False)
    on_rejection = Emission.ARGMAX
    on_trees = OnTrees.JUDGED
    policies = FREE
    needs = ("z", "logsumexp")
    fixed = (best_tokens(10),)

    def _judge(self, speculation: Speculation) -> Verdicts:
        """Kept from δ = p(v1) - p(x)."""
        p = drafted_p(speculation)
        relaxes = among_best(speculation, int(self.values["k"])) & (p > 0)
        return self._relaxed(
            speculation, among_best(speculation, 1), np.where(relaxes, best_p(speculation) - p, np.nan)
        )
