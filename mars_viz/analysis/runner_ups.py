"""Drafted runner-ups and what a constant added to all logits does to their ratio. Knows records; knows no figures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mars_viz.run import Run


@dataclass(frozen=True, slots=True)
class RunnerUps:
    """Positions at which the drafter proposed the target's second choice, closest first."""

    tokens: np.ndarray
    """int64 [M]; the drafted runner-up."""
    best: np.ndarray
    """int64 [M]; the target's best token."""
    z1: np.ndarray
    """float64 [M]; its raw logit."""
    z2: np.ndarray
    """float64 [M]; the runner-up's."""
    positions: np.ndarray
    """int64 [M]; which of the run's drafted positions it is, in order."""

    def __len__(self) -> int:
        """Number of positions."""
        return len(self.tokens)

    @property
    def odds(self) -> np.ndarray:
        """float64 [M]; p2/p1 = exp(z2 - z1), which no constant changes."""
        return np.exp(self.z2 - self.z1)

    def ratio(self, c: np.ndarray | float) -> np.ndarray:
        """float64 [..., M]; z2/z1 after c is added to every logit; NaN where z1 is then not above 0, where a ratio
        means nothing and the rule is strict."""
        z1, z2 = (z + np.asarray(c, np.float64)[..., None] for z in (self.z1, self.z2))
        return np.divide(z2, z1, out=np.full(np.broadcast_shapes(z1.shape, z2.shape), np.nan), where=z1 > 0)


def close_calls(run: Run) -> RunnerUps:
    """The run's drafted runner-ups."""
    columns: list[list[float]] = [[], [], [], [], []]
    first = 0
    for round_ in run.rounds:
        spec = round_.speculation
        rows = spec.judging_rows
        for node in np.flatnonzero(spec.top_ids[rows, 1] == spec.tokens):
            row = rows[node]
            found = (spec.tokens[node], spec.top_ids[row, 0], spec.z1[row], spec.z2[row], first + node)
            for column, value in zip(columns, found, strict=True):
                column.append(float(value))
        first += len(spec)
    order = np.argsort(np.subtract(columns[2], columns[3]), kind="stable")
    tokens, best, z1, z2, positions = (np.array(column, np.float64)[order] for column in columns)
    return RunnerUps(tokens.astype(np.int64), best.astype(np.int64), z1, z2, positions.astype(np.int64))
