"""Rules that keep any token of a sampler's set: the k best, the nucleus, min-p."""

from __future__ import annotations

import numpy as np

from mars_viz.records import Speculation
from mars_viz.rules.base import Dial, Near, among_best, best_p, drafted_p, just_above, register


@register
class TopKSet(Near):
    """Keep x iff it is among the target's k best; else emit v1."""

    name = "top-k-set"
    title = "Top-k set"
    summary = "Keeps any of the target's k most likely tokens."
    formula = "rank of x ≤ k"
    source = "background; the default is ours"
    dial = Dial(symbol="k", name="set size", low=1.0, high=64.0, step=1.0, default=3.0, strict_is_high=False)
    needs = ("z", "logsumexp")

    def _reach(self, speculation: Speculation) -> np.ndarray:
        """Kept from k = the token's rank."""
        return np.where(drafted_p(speculation) > 0, speculation.ranks, np.nan)


@register
class NucleusSet(Near):
    """Keep x iff the tokens more likely than it have a total probability below P; else emit v1. Only the K best tokens
    are recorded (16), so the set is that of top-p and top-k together, with k = K."""

    name = "nucleus-set"
    title = "Nucleus set"
    summary = "Keeps any token of the smallest set of likely ones that holds P of the probability, 16 at most."
    formula = "Σ p over tokens ranked before x < P, and rank of x ≤ 16"
    source = "nucleus: Holtzman et al., arXiv 1904.09751 (background); the default is ours"
    dial = Dial(symbol="P", name="nucleus mass", low=0.0, high=1.0, step=0.01, default=0.9, strict_is_high=False)
    needs = ("z", "logsumexp")

    def _reach(self, speculation: Speculation) -> np.ndarray:
        """Kept from just above the mass before the token."""
        rows = speculation.judging_rows
        logits = speculation.top_logits[rows].astype(np.float64)  # [N, K]
        odds = np.exp((logits - logits[:, :1]) / (speculation.temperature or 1.0))
        before = (np.cumsum(odds, axis=1) - odds) * best_p(speculation)[:, None]
        places = speculation.top_ids[rows] == speculation.tokens[:, None]
        inside = among_best(speculation, places.shape[1])
        mass = before[np.arange(len(rows)), places.argmax(axis=1)]
        return np.where(inside & (drafted_p(speculation) > 0), just_above(mass), np.nan)


@register
class MinPSet(Near):
    """Keep x iff p(x) >= m p(v1); else emit v1."""

    name = "min-p-set"
    title = "Min-p set"
    summary = "Keeps any token that is at least m times as likely as the target's best."
    formula = "p(x) ≥ m·p(v1)"
    source = "min-p: arXiv 2407.01082 (background)"
    dial = Dial(symbol="m", name="min-p", low=0.0, high=1.0, step=0.01, default=0.1, strict_is_high=True)
    needs = ("z", "logsumexp")

    def _reach(self, speculation: Speculation) -> np.ndarray:
        """Kept up to m = p(x) / p(v1)."""
        p = drafted_p(speculation)
        reach = just_above(p / best_p(speculation))
        return np.where(p > 0, reach, np.nan)
