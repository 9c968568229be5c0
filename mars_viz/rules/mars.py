"""MARS, margin-aware verification, as its paper writes it."""

from __future__ import annotations

import numpy as np

from mars_viz.records import Emission, Speculation, Verdicts
from mars_viz.rules.base import Dial, Rule

THETA = Dial(symbol="θ", name="ratio threshold", low=0.0, high=1.0, step=0.005, default=0.9, strict_is_high=True)


def among_best(speculation: Speculation, count: int) -> np.ndarray:
    """bool [N]; the drafted token is among the target's `count` best (1 or 2) that top-k and top-p leave."""
    rows = speculation.judging_rows
    best = speculation.top_ids[rows, :count] == speculation.tokens[:, None]  # [N, count]
    return (best & (np.arange(count) < speculation.support[rows, None])).any(axis=1)


class Mars(Rule):
    """Keep x iff x = v1, or x = v2 and z2/z1 > θ; else emit v1. Raw logits; strict where z1 <= 0."""

    name = "mars"
    title = "MARS"
    summary = "Also keeps the target's runner-up where its logit comes close to the best one's."
    formula = "x = v1, or x = v2 and z2/z1 > θ"
    source = "arXiv 2601.15498, Algorithm 1 (third-party reading note)"
    dial = THETA

    def judge(self, speculation: Speculation) -> Verdicts:
        """The runner-up's breakpoint is the ratio of its row."""
        rows = speculation.judging_rows
        relaxes = among_best(speculation, 2) & (speculation.z1[rows] > 0)
        return self._verdicts(
            speculation, among_best(speculation, 1), relaxes, speculation.ratio[rows], Emission.ARGMAX
        )
