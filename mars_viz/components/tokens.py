"""Tokens as elements are told of them: texts, each once, and the ratios at which they were decided. Knows records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mars_viz.records import Round

DIGITS = 6
"""Significant ones of a ratio that are sent; three are read out."""


class Pieces:
    """Texts of tokens, each once."""

    def __init__(self) -> None:
        """None yet."""
        self._places: dict[str, int] = {}

    @property
    def texts(self) -> list[str]:
        """In the order in which they were first mentioned."""
        return list(self._places)

    def place(self, text: str) -> int:
        """The index of this text."""
        return self._places.setdefault(text, len(self._places))


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
