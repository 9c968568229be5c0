"""A sweep's figures in words, with units and intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mars_viz.analysis.intervals import Interval
from mars_viz.sweep.measures import PERCENT, RATIOS, Measure
from mars_viz.words import number, ranged, times


def spread(found: Interval) -> str:
    """Return a ratio such as '1.20× (1.11 to 1.30)', without an interval if there is none."""
    return ranged(found.scaled(1), "×", words=times)


def cell(measure: Measure, found: Interval) -> str:
    """Return '12.3 (10.1 to 14.0)'; shares as percentages, their differences as points."""
    return told(measure.name, (found.estimate, found.low, found.high))


def told(name: str, values: Sequence[float]) -> str:
    """Return a figure's estimate with the ends of its interval in words, or with a note that it has none."""
    estimate, low, _ = values
    if math.isnan(low):
        return alone(name, estimate) + ("" if math.isnan(estimate) else " (no interval)")
    scale = 100 if name in PERCENT else 1
    return ranged([scale * value for value in values], _unit(name), words=times if name in RATIOS else number)


def alone(name: str, estimate: float) -> str:
    """Return a figure without its interval; percentages with at most two decimals."""
    words = number(100 * estimate, 2) if name in PERCENT else (times if name in RATIOS else number)(estimate)
    return words + _unit(name)


def _unit(name: str) -> str:
    return " points" if name == "accuracy_change" else " %" if name in PERCENT else ""
