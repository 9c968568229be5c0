"""SGLang's two acceptance thresholds. Both at 1, the engine's default, keep the target's law.

The engine keeps x where its coin falls below p(x)/t, whatever the drafter thought, and else samples p without x. Here
the same law is drawn in another order, since only the sample y of p is recorded: x is kept if y = x, which has
probability p(x), or else with probability (p(x)/t - p(x)) / (1 - p(x)), which makes p(x)/t in all; what is left of y
is a sample of p without x. On its greedy path the engine ignores both.
"""

from __future__ import annotations

import numpy as np

from mars_viz.records import Emission, Speculation, Verdicts
from mars_viz.rules.base import Dial, OnTrees, Rule, drafted_p, just_above
from mars_viz.rules.strict import sample_keeps


class SglangAccumulated(Rule):
    """Keep x with probability min(1, p(x)/t), by its coin; else emit a sample of p without x. Strict at temperature 0.

    The accumulated probability of the tried siblings is p(x) itself on a chain.
    """

    name = "sglang-acc"
    title = "SGLang, accumulated threshold"
    summary = "Keeps a token with probability p(x)/t, whatever q; at t = 1 this is sample-match."
    formula = "T > 0: with probability p(x)/t; T = 0: x = v1"
    source = "SGLang, tree_speculative_sampling_target_only, speculative_accept_threshold_acc (kernel read)"
    dial = Dial(
        symbol="t", name="accumulated threshold", low=0.01, high=1.0, step=0.01, default=1.0, strict_is_high=True
    )
    on_rejection = Emission.SAMPLE
    on_trees = OnTrees.GREEDY

    def _judge(self, speculation: Speculation) -> Verdicts:
        """u <= (p/t - p) / (1 - p) is t <= p / (p + u (1 - p))."""
        p = drafted_p(speculation)
        relaxes = (p > 0) & (speculation.temperature > 0)
        reach = np.divide(p, p + speculation.coins * (1 - p), out=np.full_like(p, np.nan), where=relaxes)
        return self._relaxed(speculation, sample_keeps(speculation), just_above(reach))


class SglangSingle(Rule):
    """Keep x iff p(x) >= t, or the target's own sample is x; else emit that sample. Strict at temperature 0."""

    name = "sglang-single"
    title = "SGLang, single threshold"
    summary = "Sample-match that also keeps every token to which the target gives at least t."
    formula = "T > 0: x = y ~ p, or p(x) ≥ t; T = 0: x = v1"
    source = "SGLang, tree_speculative_sampling_target_only, speculative_accept_threshold_single (kernel read)"
    dial = Dial(symbol="t", name="single threshold", low=0.01, high=1.0, step=0.01, default=1.0, strict_is_high=True)
    on_rejection = Emission.SAMPLE
    on_trees = OnTrees.GREEDY

    def _judge(self, speculation: Speculation) -> Verdicts:
        """Kept up to t = p(x)."""
        p = drafted_p(speculation)
        relaxes = (p > 0) & (speculation.temperature > 0)
        return self._relaxed(speculation, sample_keeps(speculation), np.where(relaxes, just_above(p), np.nan))
