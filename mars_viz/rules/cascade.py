"""Speculative cascades: the drafter's token stands unless the target is worth deferring to."""

from __future__ import annotations

import numpy as np

from mars_viz.records import Emission, Speculation, Verdicts
from mars_viz.rules.base import Dial, Rule, best_p
from mars_viz.rules.rejection_sampling import coin_keeps


class CascadeOpt(Rule):
    """Keep x unless max q < max p - α TV(p, q), and then iff u <= p(x)/q(x), else emit a sample of norm((p - q)+).

    |max p - max q| <= TV, so that the paper's strict end, α at minus infinity, is reached at -1, and at 1 all is kept.
    At temperature 0 the plain softmaxes say whether to defer.
    """

    name = "cascade-opt"
    title = "Speculative cascade, OPT"
    summary = "Keeps what was drafted unless the target is surer than the drafter by more than α of their distance."
    formula = "max q ≥ max p − α·TV(p, q), or u ≤ p(x)/q(x)"
    source = "arXiv 2405.19261, the OPT deferral (catalogue note); the paper varies α, the default is ours"
    dial = Dial(symbol="α", name="deferral cost", low=-1.0, high=1.0, step=0.01, default=0.0, strict_is_high=False)
    on_rejection = Emission.RESIDUAL
    needs = ("logsumexp", "q_max", "total_variation")

    def _judge(self, speculation: Speculation) -> Verdicts:
        """Kept from α = (max p - max q) / TV; everywhere if the laws are the same."""
        surer = best_p(speculation) - speculation.q_max
        distance = speculation.total_variation.astype(np.float64)
        cost = np.divide(surer, distance, out=np.full_like(surer, -1.0), where=distance > 0)
        return self._relaxed(speculation, coin_keeps(speculation), cost)
