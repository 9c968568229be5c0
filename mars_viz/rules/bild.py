"""BiLD's rollback policy: accept a drafted token unless the target finds it too unlikely."""

from __future__ import annotations

import numpy as np

from mars_viz.records import Emission, Speculation, Verdicts
from mars_viz.rules.base import Dial, Rule, among_best, drafted_p


class Bild(Rule):
    """Keep x iff x = v1 or -ln p(x) <= R; else emit v1. BiLD also rolls back a v1 with p(v1) < exp(-R), and then writes
    the same v1. Its other half, a handover to the target if max q < 0.6, ends drafts and judges nothing."""

    name = "bild"
    title = "BiLD rollback"
    summary = "Keeps every token whose surprisal under the target is at most R nats."
    formula = "x = v1, or −ln p(x) ≤ R"
    source = "BiLD, arXiv 2302.07863, rollback threshold 5 (summary read)"
    dial = Dial(symbol="R", name="rollback threshold", low=0.0, high=20.0, step=0.1, default=5.0, strict_is_high=False)
    on_rejection = Emission.ARGMAX
    needs = ("z", "logsumexp")

    def _judge(self, speculation: Speculation) -> Verdicts:
        """Kept from R = -ln p(x)."""
        p = drafted_p(speculation)
        surprise = -np.log(p, out=np.full_like(p, np.nan), where=p > 0)
        return self._relaxed(speculation, among_best(speculation, 1), surprise)
