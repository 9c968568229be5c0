"""A sweep's figures in words: with their units, and with their intervals where they have any. Knows figures' names."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mars_viz.analysis.intervals import Interval
from mars_viz.sweep.measures import PERCENT, RATIOS, Measure
from mars_viz.words import number, times


def spread(found: Interval) -> str:
    """A ratio: '1.20× (1.11 to 1.30)'; without an interval where there is none."""
    if math.isnan(found.low):
        return f"{times(found.estimate)}×"
    return f"{times(found.estimate)}× ({times(found.low)} to {times(found.high)})"


def cell(measure: Measure, found: Interval) -> str:
    """'12.3 (10.1 to 14.0)'; shares as percentages, their differences as points."""
    return told(measure.name, (found.estimate, found.low, found.high))


def told(name: str, values: Sequence[float]) -> str:
    """A figure's estimate and the ends of its interval in words, or that it has none."""
    estimate, low, high = values
    if math.isnan(low) and not math.isnan(estimate):
        return f"{alone(name, estimate)} (no interval)"
    return f"{alone(name, estimate)} ({_number(name, low)} to {_number(name, high)})"


def alone(name: str, estimate: float) -> str:
    """The same without its interval."""
    unit = " points" if name == "accuracy_change" else " %" if name in PERCENT else ""
    return f"{_number(name, estimate)}{unit}"


def _number(name: str, value: float) -> str:
    words = times if name in RATIOS else number
    return words((100 if name in PERCENT else 1) * value)
