"""Strict matching: a drafted token is kept exactly where the target itself would have emitted it."""

from __future__ import annotations

import numpy as np

from mars_viz.records import Emission, Speculation, Verdicts
from mars_viz.rules.base import Rule


class Strict(Rule):
    """Keep x iff it is the target's own token y; emit y. At temperature 0, y = v1; above, y is the keyed sample of p.

    With the sample keyed by position alone the text is, token for token, that of the target decoding by itself.
    """

    name = "strict"
    title = "Strict"
    summary = "Keeps a drafted token only where the target itself would have written it."
    formula = "x = y, with y = v1 at T = 0 and y ~ p above"
    source = "greedy: arXiv 2211.17192; sampled: sample-match, as in llama.cpp"
    lossless = True

    def judge(self, speculation: Speculation) -> Verdicts:
        """Verdicts without breakpoints."""
        keep = speculation.tokens == speculation.emissions[speculation.judging_rows, Emission.SAMPLE]
        return self._verdicts(speculation, keep, np.zeros_like(keep), np.full(len(keep), np.nan), Emission.SAMPLE)
