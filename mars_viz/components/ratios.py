"""The ratios at which a round's tokens were decided, as a browser is told them. Knows records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mars_viz.records import Round

DIGITS = 6
"""Significant ones that are sent; three are read out."""


@dataclass(frozen=True, slots=True)
class Ratios:
    """z2 / z1 of the rows behind a round's tokens; None where z1 is 0."""

    nodes: list[float | None]
    """For each drafted token, of the row that judged it."""
    emission: float | None
    """Of the row at which the walk stopped."""


def ratios(round_: Round) -> Ratios:
    """Those of a round."""
    rows = [float(f"{ratio:.{DIGITS}g}") if np.isfinite(ratio) else None for ratio in round_.speculation.ratio.tolist()]
    return Ratios([rows[row] for row in round_.speculation.judging_rows.tolist()], rows[round_.decision.row])
