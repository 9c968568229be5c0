"""Strict matching: accept a drafted token only if the target itself would emit it."""

from __future__ import annotations

import numpy as np

from mars_viz.records import Emission, Speculation, Verdicts
from mars_viz.rules.base import OnTrees, Rule


class Strict(Rule):
    """Keep x iff it is the target's own token y; emit y. At temperature 0, y = v1; above, y is the keyed sample of p.

    Above temperature 0 this is sample-match, as in llama.cpp, and in transformers for a drafter without q. The sample
    is keyed by position only, so the text equals, token for token, the text that the target decodes by itself.
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
        return self._strictly(speculation, sample_keeps(speculation))


def sample_keeps(speculation: Speculation) -> np.ndarray:
    """Return True if x is the target's own token, the keyed sample of p; bool [N]."""
    return speculation.tokens == speculation.emissions[speculation.judging_rows, Emission.SAMPLE]
