"""How much evidence is computed, and when. Knows the fields of a Speculation and what rules say that they need."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum

from mars_viz.speculators.divergences import DIVERGENCES


class Extent(Enum):
    """How much evidence an answer carries; every next one carries more than the one before or carries it sooner."""

    DECIDING = "deciding"
    """What every rule decides by: the target's best tokens, the candidates to emit, and what was drawn by."""
    STANDING = "standing"
    """Besides, where tokens stand in both laws: logits, ranks, normalisers, the drafter's best tokens."""
    AFTERWARDS = "afterwards"
    """All of it, what is not deciding up to some rounds later; see `Waiting`."""
    STANDING_AFTERWARDS = "standing, afterwards"
    """All of it, the divergences up to some rounds later."""
    WHOLE = "whole"
    """All of it, with every answer."""

    @classmethod
    def least(cls, needs: Collection[str], *, recorded: bool) -> Extent:
        """The cheapest that serves a rule which needs these fields of the evidence."""
        if not DIVERGENCES.isdisjoint(needs):
            return cls.WHOLE
        if recorded:
            return cls.STANDING_AFTERWARDS if needs else cls.AFTERWARDS
        return cls.STANDING if needs else cls.DECIDING

    @property
    def waits(self) -> bool:
        """True if some of the evidence may come later."""
        return self in (Extent.AFTERWARDS, Extent.STANDING_AFTERWARDS)

    @property
    def stands(self) -> bool:
        """True if an answer says at once where tokens stand."""
        return self not in (Extent.DECIDING, Extent.AFTERWARDS)
