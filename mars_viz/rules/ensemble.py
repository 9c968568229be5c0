"""Static ensemble verification: a mixture of the target's and the drafter's law judges."""

from __future__ import annotations

import numpy as np

from mars_viz.records import Emission, Speculation, Verdicts
from mars_viz.rules.base import Dial, Rule, best_p, drafted_p, just_above
from mars_viz.rules.rejection_sampling import coin_keeps, drafted_q


class Ensemble(Rule):
    """Keep x iff u <= 1 - w + w p(x)/q(x); else emit a sample of norm((p - q)+), the mixture's residual at every w.

    At temperature 0 transformers takes the mixture's argmax. Only two tokens of the mixture are always recorded, the
    drafted one and v1, so this rule compares these two and emits v1. It differs from transformers if a third token is
    the mixture's best. A v1 outside the drafter's K best counts as its K-th.
    """

    name = "ensemble"
    title = "Ensemble of target and drafter"
    summary = "Verifies against a mixture of both models' distributions; w = 1 is the target alone."
    formula = "u ≤ 1 − w + w·p(x)/q(x); at T = 0: w·p(x) + (1 − w)·q(x) ≥ w·p(v1) + (1 − w)·q(v1)"
    source = "transformers 5, assistant_ensemble_weight (code read); arXiv 2604.07622. No default there; 0.9 is ours"
    dial = Dial(symbol="w", name="target's weight", low=0.0, high=1.0, step=0.01, default=0.9, strict_is_high=True)
    on_rejection = Emission.RESIDUAL
    needs = ("z", "logsumexp", "draft_logsumexp")

    def _judge(self, speculation: Speculation) -> Verdicts:
        """Kept up to w = a / (a + b), with x's excess a under the drafter and its deficit b under the target."""
        if speculation.temperature == 0:
            best = speculation.top_ids[speculation.judging_rows, 0]
            gain = _listed_q(speculation, speculation.tokens) - _listed_q(speculation, best)
            loss = best_p(speculation) - drafted_p(speculation)
        else:
            q = drafted_q(speculation).astype(np.float64)
            gain = (1 - speculation.coins) * q  # u q <= (1 - w) q + w p is w (q - p) <= (1 - u) q
            loss = speculation.coins * q - drafted_p(speculation)
        reach = np.divide(gain, gain + loss, out=np.full_like(gain, np.nan), where=(gain >= 0) & (gain + loss > 0))
        return self._relaxed(speculation, coin_keeps(speculation), just_above(reach))


def _listed_q(speculation: Speculation, tokens: np.ndarray) -> np.ndarray:
    """Return the drafter's plain probability of one token per node, float64 [N]; that of the K-th best if it is not
    listed."""
    hits = speculation.draft_ids == tokens[:, None]  # [N, K]
    place = np.where(hits.any(axis=1), hits.argmax(axis=1), hits.shape[1] - 1)
    logits = speculation.draft_logits[np.arange(len(place)), place].astype(np.float64)
    return np.exp(logits - speculation.draft_logsumexp)
