"""EARS, efficient adaptive rejection sampling: the coin is lowered if the target is uncertain."""

from __future__ import annotations

import numpy as np

from mars_viz.records import Emission, Speculation, Verdicts
from mars_viz.rules.base import Dial, Rule, best_p, drafted_p
from mars_viz.rules.rejection_sampling import coin_keeps, drafted_q


class Ears(Rule):
    """Keep x iff max(0, u - β (1 - max p)) <= p(x)/q(x) and p(x) > 0; else emit a sample of norm((p - q)+). At
    temperature 0 the target's law is one-hot, 1 - max p is 0, and the rule is strict."""

    name = "ears"
    title = "EARS"
    summary = "Rejection sampling with the coin lowered by β times the target's uncertainty, 1 − max p."
    formula = "u − β·(1 − max p) ≤ p(x)/q(x)"
    source = "arXiv 2512.13194 (abstract and a summary read); the default is ours"
    dial = Dial(symbol="β", name="tolerance", low=0.0, high=1.0, step=0.01, default=0.1, strict_is_high=False)
    on_rejection = Emission.RESIDUAL

    def _judge(self, speculation: Speculation) -> Verdicts:
        """Kept from β = (u - p/q) / (1 - max p)."""
        p, doubt = drafted_p(speculation), 1 - best_p(speculation)
        lacking = speculation.coins - np.divide(p, drafted_q(speculation), out=np.ones_like(p), where=p > 0)
        relaxes = (speculation.temperature > 0) & (p > 0) & (doubt > 0)
        needed = np.divide(lacking, doubt, out=np.full_like(p, np.nan), where=relaxes)
        return self._relaxed(speculation, coin_keeps(speculation), needed)
