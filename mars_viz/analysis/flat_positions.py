"""The target's view of every drafted position of a run, as flat arrays that are the same for any rule.

P is the number of drafted positions of the run, in order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mars_viz.rules.base import best_p, drafted_p
from mars_viz.run import Run


@dataclass(frozen=True, slots=True)
class FlatPositions:
    """Drafted positions in order, seen by the target."""

    round_index: np.ndarray
    """int64 [P]; the round of each position, from 0."""
    depth: np.ndarray
    """int64 [P]; place within the block, from 1."""
    tokens: np.ndarray  # int64 [P]
    rank: np.ndarray
    """int64 [P]; the target's rank of the drafted token, from 1."""
    p: np.ndarray
    """float64 [P]; the target's probability of the drafted token."""
    share: np.ndarray
    """float64 [P]; that probability over the best token's, p(x)/p1."""
    margin: np.ndarray
    """float64 [P]; z1 - z2 of the judging law, in logits."""
    ratio: np.ndarray
    """float64 [P]; z2 / z1 of the judging law, NaN if z1 is 0."""
    written: np.ndarray
    """int64 [P]; tokens of the recorded text before the position's round."""

    def __len__(self) -> int:
        return len(self.tokens)


def drafted(run: Run) -> FlatPositions:
    """Return the run's drafted positions."""
    trace = run.trace
    block, rows = trace.speculations.whole, trace.judging_rows
    p, best = drafted_p(block), best_p(block)
    return FlatPositions(
        round_index=trace.round_index,
        depth=block.depths.astype(np.int64),
        tokens=block.tokens.astype(np.int64),
        rank=block.ranks.astype(np.int64),
        p=p,
        share=np.divide(p, best, out=np.full_like(p, np.nan), where=best > 0),
        margin=block.margin[rows],
        ratio=block.ratio[rows],
        written=np.repeat(np.cumsum(trace.text_lengths) - trace.text_lengths, trace.lengths),
    )
