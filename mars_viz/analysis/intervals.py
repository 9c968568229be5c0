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
from collections.abc import Callable, Sequence
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
_CHUNK = 1 << 20  # number of draws whose sums are computed at once
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
        return self.at(0)


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """Choice of an interval from the bootstrap distribution."""

    confidence: float = 0.95  # two-sided
    method: Method = Method.BCA  # PERCENTILE or BCA

    def __post_init__(self) -> None:
        if not 0 < self.confidence < 1:
            why = f"A confidence of {self.confidence:g} is not one. Give a number between 0 and 1, such as 0.95."
            raise SettingError(why)


DEFAULT = Bootstrap()  # 95 %, BCa


def ratio(numerators: np.ndarray, denominators: np.ndarray, how: Bootstrap = DEFAULT) -> Interval:
    """Return the interval of a ratio of sums over prompts, such as pooled τ from tokens [P] and rounds [P]."""
    return interval(divided, numerators, denominators, how=how)


def interval(
    statistic: Statistic, *columns: np.ndarray, how: Bootstrap = DEFAULT, units: np.ndarray | None = None
) -> Interval:
    """Return the interval of a function of the columns' means; each column is [P]. Raises BadInput for no prompts."""
    return band(statistic, *(np.reshape(column, (-1, 1)) for column in columns), how=how, units=units).only


def band(statistic: Statistic, *columns: np.ndarray, how: Bootstrap = DEFAULT, units: np.ndarray | None = None) -> Band:
    """Return the intervals for columns [P, S], with a value for each prompt and segment.

    A column [P, 1] is the same on every segment. `units`, whole numbers [P], are equal for prompts that are drawn
    together; None draws each separately. Raises BadInput for no prompts.
    """
    every = [np.asarray(column, np.float64) for column in columns]
    if not len(every[0]):
        raise SettingError("An interval needs at least one prompt. Choose a set with prompts.")
    sizes = np.ones(len(every[0]))
    if units is not None:  # sums over the prompts of each unit, [U, S]
        order = np.argsort(units, kind="stable")
        begins = np.flatnonzero(np.diff(np.asarray(units)[order], prepend=np.nan))
        *every, sizes = (np.add.reduceat(column[order], begins, axis=0) for column in (*every, sizes))
    return Band(*_ends(statistic, every, sizes, how), how.confidence, how.method)


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

    prompts (Connor 1987, Biometrics 43:207-211; s is his ψ).
    """
    loss = points / 100
    share = max(discordant_share, loss)
    spread = _NORMAL.inv_cdf(confidence) * math.sqrt(share) + _NORMAL.inv_cdf(power) * math.sqrt(share - loss * loss)
    return max(2, math.ceil(spread * spread / (loss * loss)))


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
        edges, segments = np.asarray(self.edges), np.asarray(self.values).shape[-1:]
        fits = edges.ndim == 1 and len(edges) > 1 and segments == (len(edges) - 1,)
        if not (fits and np.isfinite(edges).all() and (np.diff(edges) > 0).all()):
            raise SettingError("The edges of a step function must be numbers that ascend, one more than its segments.")

    def __len__(self) -> int:
        return len(self.edges) - 1

    @property
    def low(self) -> float:
        return float(self.edges[0])

    @property
    def high(self) -> float:
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


def combined(function: Callable[..., np.ndarray], *steps: Steps) -> Steps:
    """Return `function` of several step functions' values over their common segments, such as tokens / rounds. All
    cover the same range."""
    edges = np.unique(np.concatenate([each.edges for each in steps]))
    return Steps(edges, np.asarray(function(*(each.on(edges) for each in steps))))
