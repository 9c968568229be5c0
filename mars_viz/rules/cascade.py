"""Speculative cascades: accept the drafter's token unless deferring to the target pays.

OPT decides per position, the token cascade per drafted token.
"""

from __future__ import annotations

import numpy as np

from mars_viz.records import Emission, Speculation, Verdicts
from mars_viz.rules.base import Dial, Rule, best_p, drafted_p
from mars_viz.rules.rejection_sampling import coin_keeps, drafted_q


class CascadeOpt(Rule):
    """Keep x unless max q < max p - α TV(p, q), and then iff u <= p(x)/q(x), else emit a sample of norm((p - q)+).

    |max p - max q| <= TV, so α = -1 equals the paper's strict end, α at minus infinity, and α = 1 keeps everything. At
    temperature 0 the plain softmaxes decide whether to defer.
    """

    name = "cascade-opt"
    title = "Speculative cascade, OPT"
    summary = "Keeps the drafted token unless the target is more confident than the drafter by more than α·TV."
    formula = "max q ≥ max p − α·TV(p, q), or u ≤ p(x)/q(x)"
    source = "arXiv 2405.19261, the OPT deferral (summary read); the paper varies α, the default is ours"
    dial = Dial(symbol="α", name="deferral cost", low=-1.0, high=1.0, step=0.01, default=0.0, strict_is_high=False)
    on_rejection = Emission.RESIDUAL
    needs = ("logsumexp", "q_max", "total_variation")

    def _judge(self, speculation: Speculation) -> Verdicts:
        """Kept from α = (max p - max q) / TV; everywhere if the laws are equal."""
        surer = best_p(speculation) - speculation.q_max
        distance = speculation.total_variation.astype(np.float64)
        cost = np.divide(surer, distance, out=np.full_like(surer, -1.0), where=distance > 0)
        return self._relaxed(speculation, coin_keeps(speculation), cost)


class CascadeTokenAcceptance(Rule):
    """Keep x iff u <= π(x) / q(x), π = q 1_A + (1 - q(A)) p, A = {p >= (1 - α) max p}; else a sample of norm((p - q)+).

    So x in A is kept. Outside A it is kept iff u q(x) <= (1 - q(A)) p(x), which gets harder as A grows with α. Such a
    token, if kept at the strict end, may have a gap that ends when x joins A, at α = 1 - p(x)/max p. Below α = 0 A is
    empty and this is rejection sampling, the paper's strict end (α at minus infinity).

    Every token in A before x joins is likelier than x. Only the target's K best tokens (16) are recorded, so verdicts
    are exact for x among them, and for any other x up to the α at which the K-th joins. Beyond that q(A) counts only
    these K, and x may be kept although the cascade rejects it until it joins.

    The cascade itself samples norm((π - q)+) on rejection. That law changes with every token that joins A: for an x of
    rank r there are up to r laws, each with its own draw. A speculation holds the first, which is exact if A is empty.
    Hence the name. At temperature 0 keep x iff it is v1 or in A by the plain softmax; else emit v1.
    """

    name = "cascade-token-acceptance"
    title = "Token cascade's acceptance"
    summary = "Keeps tokens nearly as likely as the target's best; the more probability q gives them, the fewer others."
    formula = "x ∈ A = {p ≥ (1 − α)·p(v1)}, or u ≤ (1 − q(A))·p(x)/q(x); at T = 0: x ∈ A, or x = v1"
    source = (
        "arXiv 2405.19261, the token-specific deferral (summary read); emission as in rejection sampling; the paper "
        "varies α, the default is ours"
    )
    dial = Dial(symbol="α", name="deferral cost", low=-0.01, high=1.0, step=0.01, default=0.5, strict_is_high=False)
    on_rejection = Emission.RESIDUAL
    needs = ("z", "logsumexp")
    monotone = False  # a token outside A loses what joins A before it

    def lacks(self, speculation: Speculation) -> str | None:
        """Also require, above temperature 0, the drafter's law on A, which older recordings lack."""
        if speculation.temperature > 0 and "best_q" not in speculation.columns:
            return (
                f"{self.title} needs the drafter's probabilities of the target's best tokens, which runs from before "
                "there was this rule do not hold. Record the run again."
            )
        return super().lacks(speculation)

    def _judge(self, speculation: Speculation) -> Verdicts:
        """Kept from α = 1 - p(x)/p(v1); a gap begins when likelier tokens in A leave too little probability."""
        rows, keep, p = speculation.judging_rows, coin_keeps(speculation), drafted_p(speculation)
        joins = np.where(p > 0, _joins(speculation, speculation.z[:, None])[:, 0], 1.0)
        if speculation.temperature == 0:
            return self._relaxed(speculation, keep, joins)
        best = speculation.top_logits[rows]  # [N, K]
        left = np.maximum(1 - np.cumsum(speculation.best_q, axis=1, dtype=np.float64), 0)  # 1 - q(A) from each on
        too_little = (speculation.coins * drafted_q(speculation))[:, None] > left * p[:, None]
        first = too_little & (best > speculation.z[:, None])
        begins = _joins(speculation, best)[np.arange(len(first)), first.argmax(axis=1)]
        return self._relaxed(speculation, keep, joins, np.where(first.any(axis=1), begins, np.nan))


def _joins(speculation: Speculation, logits: np.ndarray) -> np.ndarray:
    """Return the α at which tokens with these raw logits [N, C] join A at each node's row, 1 - p/p(v1); float64 [N, C].
    Valid for tokens that top-k and top-p keep; all others join at 1."""
    z1 = speculation.z1[speculation.judging_rows, None].astype(np.float64)
    return 1 - np.exp((logits.astype(np.float64) - z1) / (speculation.temperature or 1.0))
