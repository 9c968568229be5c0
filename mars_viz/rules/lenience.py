"""Lenience: rejection sampling with the drafter's probability scaled down."""

from __future__ import annotations

import numpy as np

from mars_viz.records import Emission, Speculation, Verdicts
from mars_viz.rules.base import FREE, Dial, OnTrees, Rule, best_p, drafted_p, just_above
from mars_viz.rules.rejection_sampling import coin_keeps, drafted_q


class Lenience(Rule):
    """Keep x iff u <= p(x) / (l q(x)); else emit a sample of norm((p - q)+). At temperature 0: p(x) >= l p(v1).

    No token then becomes more than 1/l times as likely as the target makes it.
    """

    name = "lenience"
    title = "Lenience"
    summary = "Rejection sampling with q scaled by l, so that no token becomes more than 1/l times as likely."
    formula = "u ≤ p(x)/(l·q(x)); at T = 0: p(x) ≥ l·p(v1)"
    source = "Leviathan et al., arXiv 2211.17192, appendix (summary read); the paper tabulates l, the default is ours"
    dial = Dial(symbol="l", name="lenience", low=0.01, high=1.0, step=0.01, default=0.5, strict_is_high=True)
    on_rejection = Emission.RESIDUAL
    on_trees = OnTrees.GREEDY
    policies = FREE
    needs = ("z", "logsumexp")

    def _judge(self, speculation: Speculation) -> Verdicts:
        """Kept up to l = p(x) / (u q(x)); at temperature 0 up to l = p(x) / p(v1)."""
        p = drafted_p(speculation)
        rival = best_p(speculation) if speculation.temperature == 0 else speculation.coins * drafted_q(speculation)
        reach = np.divide(p, rival, out=np.full_like(p, np.inf), where=rival > 0)
        return self._relaxed(speculation, coin_keeps(speculation), np.where(p > 0, just_above(reach), np.nan))
