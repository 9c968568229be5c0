"""Uncertainty of numbers: paired bootstrap over prompts, Wilson's interval, and required numbers of prompts.

Arrays have one row per prompt. Compared settings share their prompts, so a resample draws prompts with all of their
numbers. Prompts that belong together, such as the turns of a conversation, are drawn together: `units` identifies them
(the cluster bootstrap, Davison and Hinkley 1997, Bootstrap Methods and Their Application, 3.8, with whole clusters
drawn). The resamples depend on the number of units alone, so the same data always give the same interval.

Figures along a dial are step functions: constant on segments that are half-open, [low, high), like the sides of a
verdict (records.Verdicts); only the last one includes its high end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from mars_viz.errors import SettingError
from mars_viz.words import THIN_SPACE, ranged

Statistic = Callable[..., np.ndarray]
"""Maps the means over prompts of each column, each [S] or [resamples, S], to numbers of that shape."""
RESAMPLES = 2000  # of up to 10,000 units, and fewer of more: an end is then off by some 1.5 % of the interval's width
_DRAWS = 20_000_000  # largest number of draws in all resamples, if that leaves `_FEWEST` resamples
_FEWEST = 400
_NEVER = 1e-3  # largest acceptable share of resamples with an undefined number
_CHUNK = 1 << 20  # number of resamples times segments computed at once
_NORMAL = NormalDist()


class Method(Enum):
    """Method of an interval."""

    PERCENTILE = "percentile"  # middle part of the bootstrap distribution
    BCA = "BCa"  # corrected for bias and skew (Efron 1987, Journal of the American Statistical Association 82:171-185)
    WILSON = "Wilson"  # no bootstrap: the score interval of a single share


@dataclass(frozen=True, slots=True)
class Interval:
    """A number with its confidence interval."""

    estimate: float  # on the original prompts. NaN if undefined.
    low: float  # NaN if unknown: fewer than two prompts, or an undefined number in a resample
    high: float  # NaN if unknown
    confidence: float  # above 0 and below 1, such as 0.95
    method: Method

    def scaled(self, factor: float) -> tuple[float, float, float]:
        """Return the estimate and both ends, times a factor."""
        return factor * self.estimate, factor * self.low, factor * self.high

    @property
    def words(self) -> str:
        """The number and its interval, such as '6.40 (6.12 to 6.61)'."""
        return ranged(self.scaled(1))

    @property
    def percent(self) -> str:
        """A share with its interval, such as '98.2 % (97.0 to 98.7)'."""
        return ranged(self.scaled(100), f"{THIN_SPACE}%")


@dataclass(frozen=True, slots=True)
class Band:
    """`Interval` for every segment of a dial."""

    estimate: np.ndarray  # float64 [S]
    low: np.ndarray  # float64 [S]
    high: np.ndarray  # float64 [S]
    confidence: float  # for each segment alone, not for all of them together
    method: Method

    def at(self, place: int) -> Interval:
        """Return the interval of a segment. A band of one segment is the same everywhere."""
        place = place if len(self.estimate) > 1 else 0
        estimate, low, high = (float(ends[place]) for ends in (self.estimate, self.low, self.high))
        return Interval(estimate, low, high, self.confidence, self.method)

    @property
    def only(self) -> Interval:
        """The interval of a band with one segment."""
        return self.at(0)


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """Choice of an interval from the bootstrap distribution."""

    confidence: float = 0.95  # two-sided
    method: Method = Method.BCA  # PERCENTILE or BCA

    def __post_init__(self) -> None:
        """Raise BadInput for a value out of range."""
        _check_confidence(self.confidence)
        if self.method is Method.WILSON:
            raise SettingError("A bootstrap is percentile or BCa. Choose one of these.")


def _check_confidence(value: float) -> None:
    if not 0 < value < 1:
        raise SettingError(
            f"A confidence or power of {value:g} is not one. Give a number between 0 and 1, such as 0.95."
        )


DEFAULT = Bootstrap()  # 95 %, BCa


def ratio(numerators: np.ndarray, denominators: np.ndarray, how: Bootstrap = DEFAULT) -> Interval:
    """Return the interval of a ratio of sums over prompts, such as pooled τ from tokens [P] and rounds [P]."""
    return interval(divided, numerators, denominators, how=how)


def ratio_of_ratios(
    a: tuple[np.ndarray, np.ndarray], b: tuple[np.ndarray, np.ndarray], how: Bootstrap = DEFAULT
) -> Interval:
    """Return the interval of (sum(a0) / sum(a1)) / (sum(b0) / sum(b1)), paired: a speed-up from tokens and seconds."""
    return interval(lambda x, y, u, v: divided(divided(x, y), divided(u, v)), *a, *b, how=how)


def interval(
    statistic: Statistic, *columns: np.ndarray, how: Bootstrap = DEFAULT, units: np.ndarray | None = None
) -> Interval:
    """Return the interval of a function of the columns' means; each column is [P]. Raises BadInput for no prompts."""
    return band(statistic, *(np.reshape(column, (-1, 1)) for column in columns), how=how, units=units).only


def band(statistic: Statistic, *columns: np.ndarray, how: Bootstrap = DEFAULT, units: np.ndarray | None = None) -> Band:
    """Return the intervals for columns [P, S], with a value for each prompt and segment.

    A column [P, 1] is the same on every segment. `units`, whole numbers [P], are equal for prompts that are drawn
    together; None draws each separately. Raises BadInput for no prompts or columns of different lengths.
    """
    columns = tuple(np.asarray(column, np.float64) for column in columns)
    lengths = {len(column) for column in columns}
    if len(lengths) != 1 or 0 in lengths:
        raise SettingError(
            "An interval needs at least one prompt, and every number of each. Choose a set with prompts."
        )
    sizes = np.ones(len(columns[0]))
    if units is not None:
        columns = tuple(_joined(units, *columns))
        sizes = _joined(units, sizes)[0]
    segments = max(column.shape[1] for column in columns)
    block = max(1, _CHUNK // max(RESAMPLES, len(sizes)))
    parts = []
    for first in range(0, segments, block):
        some = [column if column.shape[1] == 1 else column[:, first : first + block] for column in columns]
        parts.append(_ends(statistic, some, sizes, how))
    estimate, low, high = (np.concatenate(each) for each in zip(*parts, strict=True))
    return Band(estimate, low, high, how.confidence, how.method)


def _ends(
    statistic: Statistic, columns: Sequence[np.ndarray], sizes: np.ndarray, how: Bootstrap
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the estimate and both ends, [S] each, for columns [U, S] or [U, 1] summed over the units' prompts.

    BCa's levels are those of Efron 1987: the bias from the share of resamples below the estimate, the acceleration from
    leaving out each unit. NaN if there is one unit or the number is undefined; the estimate if no resample changes it.
    """
    with np.errstate(all="ignore"):
        estimate = np.atleast_1d(statistic(*(column.sum(axis=0) / sizes.sum() for column in columns)))
        if len(sizes) < 2:
            return estimate, np.full_like(estimate, np.nan), np.full_like(estimate, np.nan)
        values = resampled(statistic, columns, sizes)
        undefined = ~np.isfinite(estimate) | (np.mean(~np.isfinite(values), axis=0) > _NEVER)
        values = np.sort(np.where(np.isfinite(values), values, estimate), axis=0)
        near = 1e-9 * np.abs(estimate) + 1e-13
        bias = skew = np.zeros_like(estimate)
        if how.method is Method.BCA:
            below = np.mean(values < estimate - near, axis=0) + np.mean(values <= estimate + near, axis=0)
            bias = _quantile(np.clip(below / 2, 0.5 / len(values), 1 - 0.5 / len(values)))
            others = sizes.sum() - sizes[:, None]
            left_out = statistic(*((column.sum(axis=0) - column) / others for column in columns))
            away = left_out.mean(axis=0) - left_out
            skew = np.nan_to_num(np.sum(away * away * away, axis=0) / (6 * np.sum(away * away, axis=0) ** 1.5))
        ends, fixed = [], np.ptp(values, axis=0) <= near
        for level in (_NORMAL.inv_cdf((1 - how.confidence) / 2), _NORMAL.inv_cdf((1 + how.confidence) / 2)):
            moved = bias + level
            place = _share(bias + moved / (1 - skew * moved)) * (len(values) - 1)
            under, over = (np.take_along_axis(values, at.astype(int)[None], 0)[0] for at in (place, np.ceil(place)))
            end = under + (place % 1) * (over - under)
            ends.append(np.where(undefined, np.nan, np.where(fixed, estimate, end)))
    return estimate, ends[0], ends[1]


_quantile = np.vectorize(_NORMAL.inv_cdf, otypes=[np.float64])
_share = np.vectorize(_NORMAL.cdf, otypes=[np.float64])


def resampled(statistic: Statistic, columns: Sequence[np.ndarray], sizes: np.ndarray) -> np.ndarray:
    """Return the number of each resample, float64 [resamples, S]: of columns [U, S] or [U, 1] that are sums over the
    prompts of each unit, of which there are `sizes` [U]."""
    weights = _weights(len(sizes))
    step = max(1, _CHUNK // len(sizes))
    sums: list[list[np.ndarray]] = [[] for _ in columns]
    for first in range(0, len(weights), step):
        some = weights[first : first + step].astype(np.float64)
        count = (some @ sizes)[:, None]
        for part, column in zip(sums, columns, strict=True):
            part.append(some @ column / count)
    return statistic(*map(np.concatenate, sums))


@lru_cache(maxsize=4)
def _weights(units: int) -> np.ndarray:
    """Return how often each resample draws each unit, uint8 [resamples, U]."""
    rng, count = np.random.default_rng(0), max(_FEWEST, min(RESAMPLES, _DRAWS // units))
    weights = np.empty((count, units), np.uint8)
    for row in weights:
        row[:] = np.bincount(rng.integers(units, size=units), minlength=units)
    return weights


def wilson(successes: float, trials: int, confidence: float = 0.95) -> Interval:
    """Return the interval of a single share (Wilson 1927, Journal of the American Statistical Association 22:209-212).

    Without trials it is 0 to 1, with no estimate. Successes need not be whole: if a trial represents several prompts,
    they are the share of all prompts times the trials.
    """
    _check_confidence(confidence)
    if not 0 <= successes <= trials:
        raise SettingError(f"{successes} of {trials} is no share. Give a count between 0 and the number of trials.")
    if trials == 0:
        return Interval(math.nan, 0.0, 1.0, confidence, Method.WILSON)
    z, share = _NORMAL.inv_cdf((1 + confidence) / 2), successes / trials
    centre = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + (z / (2 * trials)) ** 2)
    low = 0.0 if successes == 0 else centre - half
    return Interval(share, low, 1.0 if successes == trials else centre + half, confidence, Method.WILSON)


def prompts_needed(points: float, confidence: float, discordant_share: float, power: float = 0.8) -> int:
    """Return the number of prompts needed to distinguish an accuracy loss of `points` percentage points from none.

    d is the loss as a share, s the share of prompts that strict and relaxed grade differently, at least d. McNemar's
    one-sided test detects the loss with probability `power` from

        n = (z(confidence) √s + z(power) √(s - d²))² / d²

    prompts (Connor 1987, Biometrics 43:207-211; s is his ψ). Raises BadInput for values out of range.
    """
    _check_confidence(confidence)
    _check_confidence(power)
    if not (0 < points <= 100 and 0 <= discordant_share <= 1):
        raise SettingError(
            "A loss is above 0 and at most 100 points, and a share is between 0 and 1. Correct the values."
        )
    loss = points / 100
    share = max(discordant_share, loss)
    spread = _NORMAL.inv_cdf(confidence) * math.sqrt(share) + _NORMAL.inv_cdf(power) * math.sqrt(share - loss * loss)
    return max(2, math.ceil(spread * spread / (loss * loss)))


def _joined(units: np.ndarray, *columns: np.ndarray) -> list[np.ndarray]:
    """Return each column's sums over the prompts of a unit, [U, S]."""
    order = np.argsort(units, kind="stable")
    begins = np.flatnonzero(np.diff(np.asarray(units)[order], prepend=np.nan))
    return [np.add.reduceat(column[order], begins, axis=0) for column in columns]


def divided(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Return part / whole, NaN if the whole is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(whole == 0, np.nan, part / whole)


@dataclass(frozen=True, slots=True)
class Frontier:
    """A rule's settings between strict and its loosest, on graded prompts."""

    dials: np.ndarray  # float64 [D]; ascending
    accuracy: Band  # share of correct texts at each setting; if `paired`, minus strict's
    speed_up: Band  # tokens per second relative to `over` at each setting, modelled
    over: str
    """'the target alone'; 'strict' if no costs were measured or the path is paired; for a controller's threshold the
    fixed draft length."""
    paired: bool  # True if every setting is compared with strict on the same prompts, which is much more precise

    def near(self, dial: float) -> int:
        """Return the index of this dial value, or of the next one below it."""
        return max(0, int(np.searchsorted(self.dials, dial, side="right")) - 1)

    def through(self, dial: float, accuracy: Interval, speed_up: Interval) -> Frontier:
        """Return the path with this setting added."""
        if dial in self.dials:
            return self
        place = int(np.searchsorted(self.dials, dial))
        bands = []
        for old, found in ((self.accuracy, accuracy), (self.speed_up, speed_up)):
            names = ("estimate", "low", "high")
            estimate, low, high = (np.insert(getattr(old, name), place, getattr(found, name)) for name in names)
            bands.append(replace(old, estimate=estimate, low=low, high=high))
        return replace(self, dials=np.insert(self.dials, place, dial), accuracy=bands[0], speed_up=bands[1])

    def lost(self, strict: float) -> np.ndarray:
        """Return the accuracy lost against the strict end on these prompts, in percentage points, float64 [D]."""
        estimate = self.accuracy.estimate
        return -100 * (estimate if self.paired else estimate - estimate[self.near(strict)])

    def best_within(self, strict: float, points: float) -> int:
        """Return the index of the fastest setting that loses at most `points` here; strict is always allowed."""
        allowed = self.lost(strict) <= points + 1e-9
        return int(np.argmax(np.where(allowed, np.nan_to_num(self.speed_up.estimate, nan=-np.inf), -np.inf)))


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
