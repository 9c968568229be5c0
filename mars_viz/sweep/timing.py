"""What a wall-clock check found. Knows seconds and counts; the check itself is in `wall_clock`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mars_viz.analysis.intervals import DEFAULT, Bootstrap, Interval, ratio, ratio_of_ratios


@dataclass(frozen=True, slots=True)
class Way:
    """One way to decode the same prompts."""

    name: str
    """'target', 'strict' or 'chosen'."""
    tokens: np.ndarray
    """int64 [K]; tokens of each text, the same in every repetition."""
    rounds: np.ndarray
    """int64 [K]; target passes of each."""
    seconds: np.ndarray
    """float64 [K, R]; wall clock, the prompt's own pass excluded."""


@dataclass(frozen=True, slots=True)
class TimingCheck:
    """The target alone, strict and a setting, decoded in turn on one device."""

    device: str
    """In words."""
    rule: str
    """In the registry."""
    dial: float
    """The setting."""
    gamma: int
    """Tokens drafted per round."""
    target: Way
    """The target by itself, a pass a token."""
    strict: Way
    """The rule at its strict end."""
    chosen: Way
    """The rule at the setting."""
    same_as_target: int
    """Prompts whose strict text is, token for token, the target's own, decoded by itself."""
    modelled_over_strict: float
    """What the rounds say: tokens a round over strict's."""
    modelled_over_target: float
    """The same over the target alone, from measured costs; NaN without them."""
    how: Bootstrap = DEFAULT
    """How intervals are made."""

    @property
    def over_strict(self) -> Interval:
        """Tokens a second over strict's, resampled over prompts, each with the median of its repetitions."""
        return self._over(self.strict)

    @property
    def over_target(self) -> Interval:
        """Likewise over the target's alone."""
        return self._over(self.target)

    def pace(self, way: Way) -> Interval:
        """Tokens a second."""
        return ratio(way.tokens, np.median(way.seconds, axis=1), self.how)

    def _over(self, other: Way) -> Interval:
        ours, theirs = ((way.tokens, np.median(way.seconds, axis=1)) for way in (self.chosen, other))
        return ratio_of_ratios(ours, theirs, self.how)

    def facts(self) -> dict[str, Any]:
        """All of it in JSON's terms, but for NaN."""
        ways = (self.target, self.strict, self.chosen)
        return {
            "device": self.device,
            "rule": self.rule,
            "dial": self.dial,
            "gamma": self.gamma,
            "prompts": len(self.chosen.tokens),
            "repetitions": self.chosen.seconds.shape[1],
            "tokens_per_second": {way.name: asdict(self.pace(way)) for way in ways},
            "measured_over_strict": asdict(self.over_strict),
            "measured_over_target": asdict(self.over_target),
            "modelled_over_strict": self.modelled_over_strict,
            "modelled_over_target": self.modelled_over_target,
            "strict_same_as_target": self.same_as_target,
        }
