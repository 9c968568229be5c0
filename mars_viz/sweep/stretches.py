"""The dial in stretches of one result: neighbouring settings that come to the same figures are one row, from a to b.

Knows a sweep's figures and the words that they are printed in; draws nothing. Between the ends of a stretch every
figure that is shown reads the same, exactly: not at sampled settings, but at all of them.
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
"""Figures of a table along the dial; settings at which all of them read the same are one row of it."""
COUNTS = ("tokens", "rounds", "drafted", "kept", "rolled_back", "relaxed", "same")
"""Sums over all prompts that `stretches_csv` gives for every stretch."""


@dataclass(frozen=True, slots=True)
class DialStretch:
    """Settings that come to the same."""

    low: float
    """The smallest of them."""
    high: float
    """Where the next stretch begins; of the last one its largest value."""
    dial: float
    """One of them, at which its figures were taken."""
    last: bool
    """True if it holds its high end."""

    @property
    def shown(self) -> tuple[float, float]:
        """Both ends with as few decimals as keep them inside, at least three."""
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
    """Those that hold any of these dial values, ascending: as far as each of the figures of these names reads the same
    on its own text. Each names the dial value that is given last of those in it, so give what matters last."""
    known, edges = measures(result), result.edges
    lows = edges[:-1]
    words = np.stack([_words(result, known[name], lows) for name in names if name in known])  # [names, S]
    begins = np.append(True, (words[:, 1:] != words[:, :-1]).any(axis=0))
    starts = lows[begins]
    found: dict[int, float] = {}
    for dial in np.asarray(dials, np.float64).tolist():
        found[int(np.searchsorted(starts, dial, side="right")) - 1] = dial
    ends = np.append(starts[1:], result.plan.high)
    return tuple(
        DialStretch(float(starts[place]), float(ends[place]), found[place], place == len(starts) - 1)
        for place in sorted(found)
    )


def _words(result: SweepResult, measure: Measure, lows: np.ndarray) -> np.ndarray:
    """[S]; what the figure reads from each of these dial values on."""
    steps = curve(result, measure)
    values = np.atleast_1d(steps.values)[np.searchsorted(steps.edges, lows, side="right") - 1]
    distinct, places = np.unique(values, return_inverse=True)
    return np.array([alone(measure.name, float(value)) for value in distinct])[places]


def stretches_csv(result: SweepResult) -> str:
    """Every stretch on which no text changes, a line each: sums over all prompts, exactly, and of graded ones how many
    are right. From `dial_from` on, and below `dial_to` but for the last."""
    edges = result.edges
    sums = {name: _on(result.summed(name), edges) for name in COUNTS}
    if result.graded.any():
        sums["right"] = _on(result.summed("right", result.graded), edges)
    ends = np.append(edges[1:-1], result.plan.high)
    lines = zip(edges[:-1].tolist(), ends.tolist(), *(values.tolist() for values in sums.values()), strict=True)
    return csv_of(["dial_from", "dial_to", *sums], [list(line) for line in lines])


def _on(steps: Steps, edges: np.ndarray) -> np.ndarray:
    return np.asarray(steps.on(edges).round().astype(np.int64))
