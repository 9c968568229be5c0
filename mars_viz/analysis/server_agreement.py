"""Results of checking a server: the distance of its logits from those of a local model, and a verdict on its
weights."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from mars_viz.analysis.intervals import Interval

ROUNDING = 0.002
"""Relative distance of logits within which two programs compute the same. A bfloat16 copy of the built-in target is
.009 away from itself, the same in vLLM less than .00001."""
NEAR = 0.3
"""Relative distance of logits within which weights count as the model's own, rounded: an 8-bit copy of the built-in
target is .01 away."""


class Verdict(Enum):
    """Conclusion about a server's weights."""

    SAME = "the same weights, at the same precision"  # within rounding
    LOWER = "the same weights at another precision, or weights that hardly differ from them"
    """Logits cannot distinguish these."""
    OTHER = "another model, or weights that were changed"  # further away than any rounding of weights
    OPEN = "too few texts to say"  # the interval includes two of them


@dataclass(frozen=True, slots=True)
class ServerCheck:
    """Results at the tokens that the server wrote."""

    server: str  # the server's name of its model
    version: str  # version of vLLM
    reference: str  # the local model
    dtype: str  # the local model's dtype
    texts: int  # number of texts that the server wrote
    tokens: int  # number of tokens of all texts
    distance: Interval
    """Mean over the tokens of the root mean square difference between both models' logits, on the tokens that the
    server lists, relative to the standard deviation of the reference's logits."""
    best_differs: Interval  # share of tokens at which the reference would have written another token
    furthest: float  # the largest difference between two logits

    @property
    def verdict(self) -> Verdict:
        """The verdict whose range contains the complete interval of the distance."""
        if self.distance.high <= ROUNDING:
            return Verdict.SAME
        if self.distance.low > NEAR:
            return Verdict.OTHER
        if self.distance.low > ROUNDING and self.distance.high <= NEAR:
            return Verdict.LOWER
        return Verdict.OPEN

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        if self.verdict is Verdict.OPEN:
            return f"Whether it runs {self.reference} is {Verdict.OPEN.value}; give more prompts, or longer texts."
        if self.verdict is Verdict.OTHER:
            return f"It does not run {self.reference} as it is here: {Verdict.OTHER.value}."
        return f"It runs {self.reference}: {self.verdict.value}."
