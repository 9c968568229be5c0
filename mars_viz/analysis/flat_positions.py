"""What the target thought of every drafted position of a run, as flat arrays that hold for any rule.

Knows traces; knows no dial, no figures and no browser. P is the number of drafted positions of the run, in order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mars_viz.rules.base import best_p, drafted_p
from mars_viz.run import Run


@dataclass(frozen=True, slots=True)
class FlatPositions:
    """Drafted positions in order; the target's side of them."""

    round_index: np.ndarray
    """int64 [P]; the round of each position, from 0."""
    depth: np.ndarray
    """int64 [P]; place within the block, from 1."""
    tokens: np.ndarray
    """int64 [P]; the drafted token."""
    rank: np.ndarray
    """int64 [P]; the target's rank of it, from 1."""
    p: np.ndarray
    """float64 [P]; the target's probability of it."""
    share: np.ndarray
    """float64 [P]; that probability over the best token's, p(x)/p1."""
    margin: np.ndarray
    """float64 [P]; z1 - z2 of the law that judges it, in logits."""
    ratio: np.ndarray
    """float64 [P]; z2 / z1 of that law, NaN where z1 is 0."""
    written: np.ndarray
    """int64 [P]; tokens of the recorded text before the position's round."""

    def __len__(self) -> int:
        """Number of drafted positions."""
        return len(self.tokens)


def drafted(run: Run) -> FlatPositions:
    """The run's drafted positions."""
    trace = run.trace
    whole, rows = trace.speculations.whole, trace.judging_rows
    p, best = drafted_p(whole), best_p(whole)
    return FlatPositions(
        round_index=trace.round_index,
        depth=whole.depths.astype(np.int64),
        tokens=whole.tokens.astype(np.int64),
        rank=whole.ranks.astype(np.int64),
        p=p,
        share=np.divide(p, best, out=np.full_like(p, np.nan), where=best > 0),
        margin=whole.margin[rows],
        ratio=whole.ratio[rows],
        written=np.repeat(np.cumsum(trace.text_lengths) - trace.text_lengths, trace.lengths),
    )
