"""Strict matching: a drafted token is kept exactly where the target itself would have emitted it."""

from __future__ import annotations

import numpy as np

from mars_viz.records import Emission, Speculation, Verdicts
from mars_viz.rules.base import OnTrees, Rule


class Strict(Rule):
    """Keep x iff it is the target's own token y; emit y. At temperature 0, y = v1; above, y is the keyed sample of p.

    Above temperature 0 this is sample-match, what llama.cpp does, and transformers for a drafter without q. With the
    sample keyed by position alone the text is, token for token, that of the target decoding by itself.
    """

    name = "strict"
    title = "Strict"
    summary = "Keeps a drafted token only where the target itself would have written it."
    formula = "x = y, with y = v1 at T = 0 and y ~ p above"
    source = "greedy: arXiv 2211.17192; sampled: sample-match, as in llama.cpp"
    lossless = True
    on_rejection = Emission.SAMPLE
    on_trees = OnTrees.JUDGED
    tries = "of siblings only the target's own sample is kept"

    def _judge(self, speculation: Speculation) -> Verdicts:
        """Verdicts without breakpoints."""
        return self._strictly(speculation, sample_keeps(speculation))


def sample_keeps(speculation: Speculation) -> np.ndarray:
    """bool [N]; x is the target's own token, the keyed sample of p."""
    return speculation.tokens == speculation.emissions[speculation.judging_rows, Emission.SAMPLE]
