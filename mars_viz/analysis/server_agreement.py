"""What the check of a server found: how far its logits are from those of a model of this machine, and what that says of
its weights. Knows numbers and sentences; knows no models, which speculators/server_check.py asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from mars_viz.analysis.intervals import Interval

ROUNDING = 0.002
"""Relative distance of logits up to which two programs compute the same; a bfloat16 copy of the built-in target is .009
away from itself, the same in vLLM less than .00001."""
NEAR = 0.3
"""The same up to which weights are taken for the model's own, rounded: an 8-bit copy of the built-in target is .01 away
from it, a 6-bit one .05 and a 4-bit one .2; its drafter, which was distilled from it, .75."""


class Verdict(Enum):
    """What a server runs."""

    SAME = "the same weights, at the same precision"
    """Within rounding."""
    LOWER = "the same weights at another precision, or weights that hardly differ from them"
    """Which logits alone cannot tell apart."""
    OTHER = "another model, or weights that were changed"
    """Further away than any rounding of weights."""
    OPEN = "not to be told from so few texts"
    """The interval reaches into two of them."""


@dataclass(frozen=True, slots=True)
class ServerCheck:
    """What was found, at the tokens that the server wrote."""

    server: str
    """What the server calls its model."""
    version: str
    """Of vLLM."""
    reference: str
    """The model of this machine."""
    dtype: str
    """Its weights'."""
    texts: int
    """How many the server wrote."""
    tokens: int
    """Of all of them."""
    distance: Interval
    """On average over the tokens: the root mean square of the differences between both models' logits, of the tokens
    that the server lists there, over the standard deviation of those that the reference has."""
    best_differs: Interval
    """Share of the tokens at which the reference would have written another one."""
    furthest: float
    """The largest difference between two logits."""

    @property
    def verdict(self) -> Verdict:
        """The one that the whole interval of the distance is within."""
        if self.distance.high <= ROUNDING:
            return Verdict.SAME
        if self.distance.low > NEAR:
            return Verdict.OTHER
        if self.distance.low > ROUNDING and self.distance.high <= NEAR:
            return Verdict.LOWER
        return Verdict.OPEN

    @property
    def sentence(self) -> str:
        """The verdict, in words."""
        if self.verdict is Verdict.OPEN:
            return f"Whether it runs {self.reference} is {Verdict.OPEN.value}; give more prompts, or longer texts."
        if self.verdict is Verdict.OTHER:
            return f"It does not run {self.reference} as it is here: {Verdict.OTHER.value}."
        return f"It runs {self.reference}: {self.verdict.value}."
