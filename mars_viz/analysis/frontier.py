"""What speed costs in accuracy: a path with the dial as its parameter. Knows numbers with intervals; draws nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mars_viz.analysis.intervals import Band, Interval


@dataclass(frozen=True, slots=True)
class Frontier:
    """A rule's settings between strict and its loosest, on graded prompts."""

    dials: np.ndarray
    """float64 [D]; ascending."""
    accuracy: Band
    """Share of right texts at each; where `paired`, less strict's."""
    speed_up: Band
    """Tokens a second over those of `over` at each, modelled."""
    over: str
    """'the target alone', or 'strict' where no costs were measured or the path is paired."""
    paired: bool
    """True if every place is compared with strict on the same prompts, which is far surer than either by itself."""

    def near(self, dial: float) -> int:
        """The place of this dial value, or else the next below it."""
        return max(0, int(np.searchsorted(self.dials, dial, side="right")) - 1)

    def through(self, dial: float, accuracy: Interval, speed_up: Interval) -> Frontier:
        """The same path with this place on it."""
        if dial in self.dials:
            return self
        place = int(np.searchsorted(self.dials, dial))
        return replace(
            self,
            dials=np.insert(self.dials, place, dial),
            accuracy=_with(self.accuracy, place, accuracy),
            speed_up=_with(self.speed_up, place, speed_up),
        )

    def lost(self, strict: float) -> np.ndarray:
        """float64 [D]; accuracy lost against the strict end's dial value, in percentage points, on these prompts."""
        estimate = self.accuracy.estimate
        return -100 * (estimate if self.paired else estimate - estimate[self.near(strict)])

    def best_within(self, strict: float, points: float) -> int:
        """The fastest place among those that lose at most so many points on these prompts; strict's own is one."""
        allowed = self.lost(strict) <= points + 1e-9
        return int(np.argmax(np.where(allowed, np.nan_to_num(self.speed_up.estimate, nan=-np.inf), -np.inf)))


def _with(band: Band, place: int, found: Interval) -> Band:
    return replace(
        band,
        estimate=np.insert(band.estimate, place, found.estimate),
        low=np.insert(band.low, place, found.low),
        high=np.insert(band.high, place, found.high),
    )
