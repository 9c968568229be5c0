"""Speculative cascades: the drafter's token stands unless the target is worth deferring to.

OPT asks it of a place, the token cascade of the token that was drafted there.
"""

from __future__ import annotations

import numpy as np

from mars_viz.records import Emission, Speculation, Verdicts
from mars_viz.rules.base import Dial, Rule, best_p, drafted_p
from mars_viz.rules.rejection_sampling import coin_keeps, drafted_q


class CascadeOpt(Rule):
    """Keep x unless max q < max p - α TV(p, q), and then iff u <= p(x)/q(x), else emit a sample of norm((p - q)+).

    |max p - max q| <= TV, so that the paper's strict end, α at minus infinity, is reached at -1, and at 1 all is kept.
    At temperature 0 the plain softmaxes say whether to defer.
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
        """Kept from α = (max p - max q) / TV; everywhere if the laws are the same."""
        surer = best_p(speculation) - speculation.q_max
        distance = speculation.total_variation.astype(np.float64)
        cost = np.divide(surer, distance, out=np.full_like(surer, -1.0), where=distance > 0)
        return self._relaxed(speculation, coin_keeps(speculation), cost)


class CascadeTokenAcceptance(Rule):
    """Keep x iff u <= π(x) / q(x), π = q 1_A + (1 - q(A)) p, A = {p >= (1 - α) max p}; else a sample of norm((p - q)+).

    So x in A is kept. Outside A it is kept iff u q(x) <= (1 - q(A)) p(x), which gets harder as A grows with α. A token
    that its coin keeps at the strict end may so have a gap; it ends where x itself joins A, at α = 1 - p(x)/max p.
    Below α = 0 A is empty, and this is rejection sampling: the paper's strict end, α at minus infinity, is reached.

    Whatever is in A before x is likelier than x. Of the target's law the K best tokens (16) are recorded, so an x among
    them is exact, and any other up to the α at which the K-th joins. From there on q(A) counts these K alone: x may be
    kept where the cascade rejects it, until it joins.

    The cascade itself samples norm((π - q)+) on rejection. That law changes with every token that joins A: at an x of
    rank r there are up to r of them, each with a draw of its own. A speculation holds the first, which is exact where A
    is empty: hence the name. At temperature 0 keep x iff it is v1 or the plain softmax puts it in A; else emit v1.
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
        """Above temperature 0 the drafter's law on A, which older recordings do not hold."""
        if speculation.temperature > 0 and "best_q" not in speculation.columns:
            return (
                f"{self.title} needs the drafter's probabilities of the target's best tokens, which runs from before "
                "there was this rule do not hold. Record the run again."
            )
        return super().lacks(speculation)

    def _judge(self, speculation: Speculation) -> Verdicts:
        """Kept from α = 1 - p(x)/p(v1); a gap begins where so many likelier tokens are in A that too little is left."""
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
    """float64 [N, C]; the α from which tokens with these raw logits [N, C] at each node's row are in A: 1 - p/p(v1).

    It is that of tokens which top-k and top-p leave; all others join at 1.
    """
    z1 = speculation.z1[speculation.judging_rows, None].astype(np.float64)
    return 1 - np.exp((logits.astype(np.float64) - z1) / (speculation.temperature or 1.0))
