"""FLy: a mismatch is forgiven where the target was unsure and agrees with all that was drafted next."""

from __future__ import annotations

import numpy as np

from mars_viz.records import Emission, Speculation, Verdicts
from mars_viz.rules.base import Dial, Rule, among_best, just_above
from mars_viz.rules.fixed import Fixed


class Fly(Rule):
    """Keep x iff x = v1, or H3 >= θ and the next W - 1 drafted tokens are all the target's best; else emit v1.

    H3 is the entropy of the three best tokens' plain probabilities, not renormalised; at most ln 3. A block's last W
    positions are never relaxed, so γ must exceed W for the rule to relax anything.
    """

    name = "fly"
    title = "FLy"
    summary = "Forgives a mismatch where the target was unsure and the drafted tokens after it match; γ above {w}."
    formula = "x = v1, or H₃ ≥ θ and the next W − 1 drafted tokens match, W = {w} from the block's end"
    source = "arXiv 2511.22972 and AMD-AGI/FLy, fly/models/FLy.py (read)"
    dial = Dial(symbol="θ", name="entropy gate", low=0.0, high=1.1, step=0.01, default=0.3, strict_is_high=True)
    on_rejection = Emission.ARGMAX
    needs = ("logsumexp",)
    spans_positions = True
    fixed = (
        Fixed(
            "w", "W", "window", 1, 63, 6, "the mismatch and what must match after it; as many last tokens are strict"
        ),
    )

    def _judge(self, speculation: Speculation) -> Verdicts:
        """Kept up to θ = H3 where what follows lets it."""
        matches = among_best(speculation, 1)
        shares = _three_best(speculation)[speculation.judging_rows]  # [N, 3]
        entropy = -(shares * np.log(shares, out=np.zeros_like(shares), where=shares > 0)).sum(axis=1)
        forgiven = _forgiven(speculation, matches, int(self.values["w"]))
        return self._relaxed(speculation, matches, np.where(forgiven, just_above(entropy), np.nan))


def _three_best(speculation: Speculation) -> np.ndarray:
    """float64 [N + 1, 3]; plain probabilities of the target's three best tokens."""
    logits = speculation.top_logits[:, :3].astype(np.float64)
    return np.exp(logits - speculation.logsumexp[:, None])


def _forgiven(speculation: Speculation, matches: np.ndarray, window: int) -> np.ndarray:
    """bool [N]; `window` tokens follow along some path of the draft, and the first window - 1 of them match."""
    height, run = np.zeros(len(matches), int), np.zeros(len(matches), int)
    for node in reversed(range(len(matches))):  # children come after their parents
        parent = int(speculation.parents[node])
        if parent >= 0:
            height[parent] = max(height[parent], height[node] + 1)
            run[parent] = max(run[parent], run[node] + 1 if matches[node] else 0)
    return (height >= window) & (run >= window - 1)
