"""FLy: a mismatch is forgiven if the target was uncertain and agrees with the next drafted tokens.

Two rules: the paper's, and vLLM's version.
"""

from __future__ import annotations

import numpy as np

from mars_viz.records import Emission, Speculation, Verdicts
from mars_viz.rules.base import Dial, Rule, among_best, best_p, drafted_p, just_above
from mars_viz.rules.fixed import Fixed
from mars_viz.rules.lossless import coin_keeps

_MOST = 63  # maximum number of drafted tokens after one in a block


class Fly(Rule):
    """Keep x iff x = v1, or H3 >= θ and the next W - 1 drafted tokens are all the target's best; else emit v1.

    H3 is the entropy of the three best tokens' plain probabilities, not renormalised; at most ln 3. A block's last W
    positions are never relaxed, so γ must exceed W for the rule to relax anything.
    """

    name = "fly"
    title = "FLy"
    summary = "Forgives a mismatch if the target was unsure and the drafted tokens after it match. Needs γ > {w}."
    formula = "x = v1, or H₃ ≥ θ, at least W = {w} drafted tokens follow, and the first W − 1 of them match"
    source = "arXiv 2511.22972 and AMD-AGI/FLy, fly/models/FLy.py (code read)"
    dial = Dial(symbol="θ", name="entropy gate", low=0.0, high=1.1, step=0.01, default=0.3, strict_is_high=True)
    on_rejection = Emission.ARGMAX
    needs = ("logsumexp",)
    spans_positions = True
    fixed = (
        Fixed("w", "W", "window", 1, _MOST, 6, "W − 1 tokens after the mismatch must match, and W must follow it"),
    )

    def _judge(self, speculation: Speculation) -> Verdicts:
        """Kept up to θ = H3 if the following tokens allow it."""
        matches, window = among_best(speculation, 1), int(self.values["w"])
        tokens, kept = _following(speculation, matches)
        forgiven = (tokens >= window) & (kept >= window - 1)
        plain = np.exp(speculation.top_logits[:, :3].astype(np.float64) - speculation.logsumexp[:, None])
        entropy = _entropy(plain[speculation.judging_rows])
        return self._relaxed(speculation, matches, np.where(forgiven, just_above(entropy), np.nan))


class VllmFly(Rule):
    """Keep x iff u <= p(x)/q(x), or Hk >= θ, p(x) > 0 and the coins keep each of the next W drafted tokens; else emit a
    sample of norm((p - q)+). At temperature 0 a coin keeps only v1.

    Hk is the entropy of the k best tokens' probabilities after temperature, top-k and top-p, not renormalised; at most
    ln k. W tokens must follow in the block, so its last W positions are never relaxed.
    """

    name = "vllm-fly"
    title = "vLLM FLy"
    summary = (
        "Forgives a rejection if the target was unsure and the next {w} drafted tokens are accepted. Needs γ > {w}."
    )
    formula = "u ≤ p(x)/q(x), or H_{k} ≥ θ and the next {w} drafted tokens have u ≤ p/q"
    source = "vLLM 0.33.0, rejection_sample_method fly, v1/spec_decode/fly.py (summary read)"
    dial = Dial(symbol="θ", name="entropy threshold", low=0.0, high=1.61, step=0.01, default=0.3, strict_is_high=True)
    on_rejection = Emission.RESIDUAL
    needs = ("z", "logsumexp")
    spans_positions = True
    fixed = (
        Fixed("w", "W", "window", 1, _MOST, 5, "how many drafted tokens after the rejected one must be accepted"),
        Fixed("k", "k", "best tokens", 1, 5, 3, "of how many of the target's best tokens the entropy is taken"),
    )

    def _judge(self, speculation: Speculation) -> Verdicts:
        """Kept up to θ = Hk if the following tokens allow it."""
        accepted = coin_keeps(speculation)
        possible = drafted_p(speculation) > 0  # q(x) > 0, vLLM's other condition, holds of all that was drafted
        forgiven = possible & (_following(speculation, accepted)[1] >= self.values["w"])
        logits = speculation.at_nodes(speculation.top_logits)[:, : int(self.values["k"])].astype(np.float64)
        shares = best_p(speculation)[:, None] * np.exp((logits - logits[:, :1]) / (speculation.temperature or 1.0))
        if speculation.temperature > 0:  # after top-k and top-p
            shares[np.arange(shares.shape[1]) >= speculation.at_nodes(speculation.support)[:, None]] = 0
        entropy = _entropy(shares)
        return self._relaxed(speculation, accepted, np.where(forgiven, just_above(entropy), np.nan))


def _following(speculation: Speculation, keeps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of drafted tokens below each node along the path with the most, and of those that `keeps`
    accepts without a break from the first on; int64 [N]."""
    tokens, kept = np.zeros(len(keeps), int), np.zeros(len(keeps), int)
    for node in reversed(range(len(keeps))):  # children come after their parents
        parent = int(speculation.parents[node])
        if parent >= 0:
            tokens[parent] = max(tokens[parent], tokens[node] + 1)
            kept[parent] = max(kept[parent], kept[node] + 1 if keeps[node] else 0)
    return tokens, kept


def _entropy(shares: np.ndarray) -> np.ndarray:
    """Return -Σ p ln p over the last axis in nats, float64 [N]."""
    entropy: np.ndarray = -(shares * np.log(shares, out=np.zeros_like(shares), where=shares > 0)).sum(axis=1)
    return entropy
