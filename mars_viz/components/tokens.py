"""The distinct texts of tokens, and the ratios at which tokens were decided, for browser elements."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mars_viz.records import Round

DIGITS = 6  # significant digits of a ratio in a payload; three are displayed


class Pieces:
    """Distinct texts of tokens."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    @property
    def texts(self) -> list[str]:
        """The texts in order of first use."""
        return list(self._places)

    def place(self, text: str) -> int:
        """Return the index of a text, adding it if it is new."""
        return self._places.setdefault(text, len(self._places))


@dataclass(frozen=True, slots=True)
class Ratios:
    """z2 / z1 at the rows of a round's tokens; None if z1 is 0."""

    nodes: list[float | None]  # per drafted token, at its judging row
    emission: float | None  # at the last row of the walk


def ratios(round_: Round) -> Ratios:
    """Return the ratios of a round."""
    rows = [float(f"{ratio:.{DIGITS}g}") if np.isfinite(ratio) else None for ratio in round_.speculation.ratio.tolist()]
    return Ratios([rows[row] for row in round_.speculation.judging_rows.tolist()], rows[round_.decision.row])
