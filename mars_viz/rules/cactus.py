"""Cactus, constrained acceptance: its acceptance test, with the residual of rejection sampling."""

from __future__ import annotations

import numpy as np

from mars_viz.records import Emission, Speculation, Verdicts
from mars_viz.rules.base import Dial, Rule, drafted_p
from mars_viz.rules.rejection_sampling import coin_keeps, drafted_q


class CactusAcceptance(Rule):
    """Keep x iff u <= min(1, p + √(2 δ p (1 - p))) / q at x; else emit a sample of norm((p - q)+).

    Cactus itself samples the residual of the raised law on rejection. That law changes with δ, and a speculation, which
    is the same for all rules, holds no sample of it. Hence the name. At temperature 0, p(x) is 0 or 1 and the rule is
    strict.
    """

    name = "cactus-acceptance"
    title = "Cactus' acceptance"
    summary = "Rejection sampling with p(x) raised within a divergence budget; Cactus' own residual is not drawn."
    formula = "u ≤ min(1, p + √(2δ·p(1 − p)))/q"
    source = "arXiv 2604.04987 and MANGA-UOFA/Cactus, solve_constraint (code read); emission as in rejection sampling"
    dial = Dial(symbol="δ", name="divergence budget", low=0.0, high=4.0, step=0.05, default=1.0, strict_is_high=False)
    on_rejection = Emission.RESIDUAL

    def _judge(self, speculation: Speculation) -> Verdicts:
        """Kept from δ = (u q - p)² / (2 p (1 - p))."""
        keep, p = coin_keeps(speculation), drafted_p(speculation)
        lacking = speculation.coins * drafted_q(speculation) - p
        relaxes = (speculation.temperature > 0) & (p > 0) & (lacking > 0)
        needed = np.divide(lacking**2, 2 * p * (1 - p), out=np.full_like(p, np.nan), where=relaxes)
        return self._relaxed(speculation, keep, needed)
