"""Fuzzy speculative decoding: any drafted token is accepted if the two laws are close."""

from __future__ import annotations

from mars_viz.records import Emission, Speculation, Verdicts
from mars_viz.rules.base import Dial, Rule, just_above
from mars_viz.rules.rejection_sampling import coin_keeps


class Fuzzy(Rule):
    """Keep x iff JSD(p, q) < T, or u <= p(x)/q(x); else emit a sample of norm((p - q)+). JSD in nats."""

    name = "fuzzy"
    title = "Fuzzy speculative decoding"
    summary = "Keeps any drafted token where the two distributions are close; rejection sampling elsewhere."
    formula = "JSD(p, q) < T, or u ≤ p(x)/q(x)"
    source = "fuzzy speculative decoding, T = 0.3 (summary read); divergence in nats, at most ln 2"
    dial = Dial(
        symbol="T", name="divergence threshold", low=0.0, high=0.7, step=0.005, default=0.3, strict_is_high=False
    )
    on_rejection = Emission.RESIDUAL
    needs = ("js",)

    def _judge(self, speculation: Speculation) -> Verdicts:
        """Kept from just above the divergence."""
        return self._relaxed(speculation, coin_keeps(speculation), just_above(speculation.js))
