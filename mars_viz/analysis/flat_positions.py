"""What the target thought of every drafted position of a run, as flat arrays that hold for any rule.

Knows records; knows no dial, no figures and no browser. P is the number of drafted positions of the run, in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mars_viz.records import Speculation
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
    specs = [round_.speculation for round_ in run.rounds]
    before = np.cumsum([0, *(len(round_.token_ids) for round_ in run.rounds)])[: len(specs)]
    counts = [len(spec) for spec in specs]
    p, best = _joined([drafted_p(spec) for spec in specs]), _joined([best_p(spec) for spec in specs])
    return FlatPositions(
        round_index=np.repeat(np.arange(len(specs)), counts),
        depth=_joined([spec.depths for spec in specs]).astype(np.int64),
        tokens=_joined([spec.tokens for spec in specs]).astype(np.int64),
        rank=_joined([spec.ranks for spec in specs]).astype(np.int64),
        p=p,
        share=np.divide(p, best, out=np.full_like(p, np.nan), where=best > 0),
        margin=_joined([_judging(spec, spec.margin) for spec in specs]),
        ratio=_joined([_judging(spec, spec.ratio) for spec in specs]),
        written=np.repeat(before, counts),
    )


def _judging(speculation: Speculation, rows: np.ndarray) -> np.ndarray:
    return rows[speculation.judging_rows]


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty(0), *parts]).astype(np.float64, copy=False)
