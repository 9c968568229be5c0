"""Stretches of the dial with equal printed figures: neighbouring settings form one row, from a to b.

Between the ends of a stretch every printed figure is equal at all settings, not only at sampled ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mars_viz.analysis.steps import Steps
from mars_viz.strict_formats import csv_of
from mars_viz.sweep.figure_words import alone
from mars_viz.sweep.measures import Measure, curve, measures
from mars_viz.sweep.result import SweepResult

TOLD = ("accuracy", "accuracy_change", "tau", "speed_up", "speed_up_strict", "drafted_share", "same")
"""Figures of a table along the dial; settings with equal printed values share a row."""
COUNTS = ("tokens", "rounds", "drafted", "kept", "rolled_back", "relaxed", "same")
"""Sums over all prompts in `stretches_csv`."""


@dataclass(frozen=True, slots=True)
class DialStretch:
    """Settings with equal printed figures."""

    low: float
    high: float  # start of the next stretch; for the last one its largest value
    dial: float  # a setting in it, at which its figures were taken
    last: bool  # True if it includes its high end

    @property
    def shown(self) -> tuple[float, float]:
        """Both ends with the fewest decimals (at least three) that keep them inside."""
        for decimals in range(3, 17):
            scale = 10.0**decimals
            low = math.ceil(self.low * scale) / scale
            high = (math.floor(self.high * scale) if self.last else math.ceil(self.high * scale) - 1) / scale
            if self.low <= low <= high <= self.high and (self.last or high < self.high):
                return low, high
        return self.dial, self.dial


def stretches(
    result: SweepResult, dials: Sequence[float] | np.ndarray, names: Sequence[str]
) -> tuple[DialStretch, ...]:
    """Return the stretches that contain any of these dial values, ascending. Each of the named figures prints equally
    over a stretch. A stretch's `dial` is the last given value in it, so give important values last."""
    by_name, edges = measures(result), result.edges
    lows = edges[:-1]
    words = np.stack([_words(result, by_name[name], lows) for name in names if name in by_name])  # [names, S]
    begins = np.append(True, (words[:, 1:] != words[:, :-1]).any(axis=0))
    starts = lows[begins]
    dial_of: dict[int, float] = {}
    for dial in np.asarray(dials, np.float64).tolist():
        dial_of[int(np.searchsorted(starts, dial, side="right")) - 1] = dial
    ends = np.append(starts[1:], result.plan.high)
    return tuple(
        DialStretch(float(starts[place]), float(ends[place]), dial_of[place], place == len(starts) - 1)
        for place in sorted(dial_of)
    )


def _words(result: SweepResult, measure: Measure, lows: np.ndarray) -> np.ndarray:
    """Return the printed figure from each of these dial values on, [S]."""
    steps = curve(result, measure)
    values = np.atleast_1d(steps.values)[np.searchsorted(steps.edges, lows, side="right") - 1]
    distinct, places = np.unique(values, return_inverse=True)
    return np.array([alone(measure.name, float(value)) for value in distinct])[places]


def stretches_csv(result: SweepResult) -> str:
    """Return a line per stretch of unchanged texts: sums over all prompts and the number of right ones. A stretch is
    `dial_from` <= dial < `dial_to`; the last one includes its end."""
    edges = result.edges
    sums = {name: _on(result.summed(name), edges) for name in COUNTS}
    if result.graded.any():
        sums["right"] = _on(result.summed("right", result.graded), edges)
    ends = np.append(edges[1:-1], result.plan.high)
    lines = zip(edges[:-1].tolist(), ends.tolist(), *(values.tolist() for values in sums.values()), strict=True)
    return csv_of(["dial_from", "dial_to", *sums], [list(line) for line in lines])


def _on(steps: Steps, edges: np.ndarray) -> np.ndarray:
    return np.asarray(steps.on(edges).round().astype(np.int64))
