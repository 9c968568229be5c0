"""Step functions of a dial: numbers that are constant between the settings at which they change.

A segment is half-open, [low, high), like the sides of a verdict (records.Verdicts); only the last one includes its high
end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from mars_viz.errors import SettingError


@dataclass(frozen=True, slots=True)
class Steps:
    """One step function, or P of them over the same S segments."""

    edges: np.ndarray
    """float64 [S + 1]; ascending. Segment s is edges[s] <= dial < edges[s + 1]; the last one includes its high end."""
    values: np.ndarray  # [S] or [P, S]; the value on each segment

    def __post_init__(self) -> None:
        """Raise BadInput for edges that do not ascend or do not fit the values."""
        edges, segments = np.asarray(self.edges), np.asarray(self.values).shape[-1:]
        if edges.ndim != 1 or len(edges) < 2 or segments != (len(edges) - 1,):
            raise SettingError(
                f"{len(edges)} edges do not bound {segments} segments. Give one edge more than segments."
            )
        if not (np.isfinite(edges).all() and (np.diff(edges) > 0).all()):
            raise SettingError("The edges of a step function must be numbers that ascend. Sort them and drop doubles.")

    def __len__(self) -> int:
        return len(self.edges) - 1

    @property
    def low(self) -> float:
        """Start of the first segment."""
        return float(self.edges[0])

    @property
    def high(self) -> float:
        """End of the last segment."""
        return float(self.edges[-1])

    def segment(self, dial: float) -> int:
        """Return the segment that contains this dial value. Raises BadInput outside the range."""
        if not self.low <= dial <= self.high:  # NaN fails too
            raise SettingError(f"{dial:g} lies outside {self.low:g} to {self.high:g}. Choose a value in that range.")
        return min(int(np.searchsorted(self.edges, dial, side="right")) - 1, len(self) - 1)

    def at(self, dial: float) -> np.ndarray:
        """Return the value at this dial value, [] or [P]. Raises BadInput outside the range."""
        value: np.ndarray = self.values[..., self.segment(dial)]
        return value

    def on(self, edges: np.ndarray) -> np.ndarray:
        """Return the values over finer segments, [..., len(edges) - 1]; `edges` include this function's own."""
        values: np.ndarray = self.values[..., np.searchsorted(self.edges, edges[:-1], side="right") - 1]
        return values

    def simplified(self) -> Steps:
        """Return the function without edges at which no value changes; two NaN count as equal."""
        left, right = self.values[..., :-1], self.values[..., 1:]
        changes = (left != right) & ~((left != left) & (right != right))
        kept = np.concatenate([[True], changes.any(axis=tuple(range(changes.ndim - 1)))])
        return Steps(np.append(self.edges[:-1][kept], self.edges[-1]), self.values[..., kept])


def plain_within(low: float, high: float) -> float:
    """Return the value in [low, high) with the fewest decimals, as a name for the segment."""
    for decimals in range(18):
        scale = 10.0**decimals
        value = math.ceil(low * scale) / scale
        if low <= value < high:
            return value
    return low


def union_edges(functions: Iterable[Steps]) -> np.ndarray:
    """Return every edge of the functions once, float64. Raises BadInput for no functions or different ranges."""
    parts = [function.edges for function in functions]
    if not parts:
        raise SettingError("There is no step function to put together. Give at least one.")
    if any(part[0] != parts[0][0] or part[-1] != parts[0][-1] for part in parts):
        raise SettingError(
            "The step functions do not cover the same range. Clip them to the range that all of them have."
        )
    return np.unique(np.concatenate(parts))


def stacked(functions: Sequence[Steps]) -> Steps:
    """Return functions of one row each as one with values [P, S] over their common segments: P · S numbers. Raises
    BadInput like `union_edges`."""
    edges = union_edges(functions)
    return Steps(edges, np.stack([function.on(edges) for function in functions]))


def total(functions: Iterable[Steps]) -> Steps:
    """Return the sum of functions of one row each, without arranging them in one table.

    Every function is its first value and its jumps; jumps at equal places are added, then accumulated over the dial.
    Memory grows with the number of jumps, not with prompts times segments. Exact for whole numbers up to 2^53. Raises
    BadInput for no functions, values that are not finite, and different ranges.
    """
    first, places, jumps, ends = 0.0, [], [], set[tuple[float, float]]()
    for function in functions:
        values = np.asarray(function.values, np.float64)  # [S]
        if values.ndim != 1 or not np.isfinite(values).all():
            raise SettingError("Only finite step functions of one row can be added up. Leave the others out.")
        ends.add((function.low, function.high))
        first += float(values[0])
        places.append(function.edges[1:-1])
        jumps.append(np.diff(values))
    if len(ends) != 1:
        what = "There is no step function to add up" if not ends else "The step functions cover different ranges"
        raise SettingError(f"{what}. Give at least one, all clipped to the same range.")
    ((low, high),) = ends
    inner, at = np.unique(np.concatenate(places), return_inverse=True)
    jump = np.bincount(at, np.concatenate(jumps), minlength=len(inner))
    return Steps(np.concatenate([[low], inner, [high]]), first + np.concatenate([[0.0], np.cumsum(jump)]))


def combined(function: Callable[..., np.ndarray], *steps: Steps) -> Steps:
    """Return `function` of several step functions' values over their common segments, such as tokens / rounds. Raises
    BadInput like `union_edges`."""
    edges = union_edges(steps)
    return Steps(edges, np.asarray(function(*(each.on(edges) for each in steps))))
