"""Who keeps what: the verdicts of many rules on the same drafted positions, side by side.

Knows rulings; knows no figures and no browser. R is the number of rules, P that of drafted positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from mars_viz.analysis.judgements import Ruling


class Say(IntEnum):
    """A rule's verdict on a position."""

    KEEPS = 0
    """As its strict end does."""
    RELAXES = 1
    """Keeps what its strict end rejects."""
    REJECTS = 2
    """Does not keep."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Verdicts of many rules on the positions of one run."""

    rulings: tuple[Ruling, ...]
    """Each rule at its dial value, in order; R of them."""
    says: np.ndarray
    """int8 [R, P]; each verdict as a `Say`, whether or not the rule's own walk gets there."""
    reached: np.ndarray
    """bool [R, P]; the rule's walk gets there."""
    keepers: np.ndarray
    """int64 [P]; how many rules keep the position."""
    disputed: np.ndarray
    """bool [P]; some rule keeps the position and some other rejects it, and at least one of them gets there."""

    def against(self, ruling: Ruling) -> np.ndarray:
        """int64 [R]; verdicts of each rule that differ from those of `ruling`."""
        keeps = self.says != Say.REJECTS
        return np.count_nonzero(keeps != ruling.keeps, axis=1)


def agreement(rulings: Sequence[Ruling], positions: int) -> Agreement:
    """The rulings side by side; all are on the same run, of `positions` drafted positions."""
    shape = (len(rulings), positions)
    keeps = np.array([ruling.keeps for ruling in rulings], bool).reshape(shape)
    relaxes = np.array([ruling.relaxes for ruling in rulings], bool).reshape(shape)
    reached = np.array([ruling.reached for ruling in rulings], bool).reshape(shape)
    keepers = np.count_nonzero(keeps, axis=0)
    return Agreement(
        rulings=tuple(rulings),
        says=np.where(keeps, np.where(relaxes, Say.RELAXES, Say.KEEPS), Say.REJECTS).astype(np.int8),
        reached=reached,
        keepers=keepers,
        disputed=(keepers > 0) & (keepers < len(rulings)) & reached.any(axis=0),
    )
