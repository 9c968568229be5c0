"""Rejection sampling, the lossless rule of speculative sampling."""

from __future__ import annotations

import numpy as np

from mars_viz.records import Emission, Speculation, Verdicts
from mars_viz.rules.base import Rule


class RejectionSampling(Rule):
    """Keep x iff u <= p(x) / q(x); else emit a sample of norm((p - q)+). At temperature 0 both laws are one-hot."""

    name = "rejection-sampling"
    title = "Rejection sampling"
    summary = "Keeps a drafted token with probability p/q, which preserves the target's distribution exactly."
    formula = "u ≤ p(x)/q(x)"
    source = "Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318"
    lossless = True
    on_rejection = Emission.RESIDUAL

    def _judge(self, speculation: Speculation) -> Verdicts:
        """Verdicts without breakpoints."""
        return self._strictly(speculation, coin_keeps(speculation))


def coin_keeps(speculation: Speculation) -> np.ndarray:
    """bool [N]; u <= p(x) / q(x), with one-hot laws at temperature 0 and q one-hot for a draft that was not drawn."""
    if speculation.temperature == 0:
        return speculation.tokens == speculation.top_ids[speculation.judging_rows, 0]
    return (speculation.p > 0) & (speculation.coins * drafted_q(speculation) <= speculation.p)


def drafted_q(speculation: Speculation) -> np.ndarray:
    """float32 [N]; q(x), 1 for a draft that was not drawn."""
    return speculation.q if speculation.sampled else np.ones_like(speculation.q)
