"""How sure a number is: paired bootstrap over prompts, Wilson's interval, and how many prompts it takes.

Knows arrays with a row a prompt; knows no runs and no figures. What is compared shares its prompts, so a resample
draws prompts, and every number of a drawn prompt comes along. Prompts that belong together, such as the turns of a
conversation, are drawn together: `units` says which (the cluster bootstrap, Davison and Hinkley 1997, Bootstrap Methods
and Their Application, 3.8, with whole clusters drawn).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from mars_viz.errors import BadInput

_NORMAL = NormalDist()
_CHUNK = 1 << 21
"""Numbers held at once while resampling."""
_KEPT = 1 << 25
"""Numbers of a resampling that are kept for the next figure, a byte each: 16,000 prompts at 2,000 resamples."""

Statistic = Callable[..., np.ndarray]
"""Of the means over prompts of each column, each [..., S], to a number [..., S]."""


class Method(Enum):
    """How a bootstrap interval is read off its replicates."""

    PERCENTILE = "percentile"
    """The middle share of the replicates."""
    BCA = "BCa"
    """Corrected for bias and skew (Efron 1987, Journal of the American Statistical Association 82:171-185)."""
    WILSON = "Wilson"
    """No bootstrap: the score interval of a single share."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A number with the range that a share of such intervals hold the true one in."""

    estimate: float
    """On the prompts as they are. NaN where it is not defined."""
    low: float
    """NaN where nothing can be said: fewer than two prompts, or a replicate that is not defined."""
    high: float
    """Likewise."""
    confidence: float
    """Above 0 and below 1, such as 0.95."""
    method: Method
    """How it was made."""


@dataclass(frozen=True, slots=True)
class Band:
    """`Interval` for every segment of a dial."""

    estimate: np.ndarray
    """float64 [S]"""
    low: np.ndarray
    """float64 [S]"""
    high: np.ndarray
    """float64 [S]"""
    confidence: float
    """For each segment alone, not for all of them together."""
    method: Method
    """How it was made."""

    @property
    def only(self) -> Interval:
        """Of a band of one segment, that segment's."""
        low, high = float(self.low[0]), float(self.high[0])
        return Interval(float(self.estimate[0]), low, high, self.confidence, self.method)


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """How to resample."""

    confidence: float = 0.95
    """Two-sided."""
    resamples: int = 2000
    """Replicates; at least 100."""
    seed: int = 0
    """The same seed draws the same prompts for every number, so numbers stay comparable."""
    method: Method = Method.BCA
    """PERCENTILE or BCA."""

    def __post_init__(self) -> None:
        """Raise BadInput for a value out of range."""
        _check_confidence(self.confidence)
        if self.resamples < 100 or self.seed < 0 or self.method is Method.WILSON:
            raise BadInput("A bootstrap takes at least 100 resamples, a seed of at least 0, and percentile or BCa.")


def _check_confidence(value: float) -> None:
    if not 0 < value < 1:
        raise BadInput(f"A confidence or power of {value:g} is not one. Give a number between 0 and 1, such as 0.95.")


DEFAULT = Bootstrap()
"""95 %, BCa."""


def mean(values: np.ndarray, how: Bootstrap = DEFAULT, units: np.ndarray | None = None) -> Interval:
    """Of values [P], one a prompt: accuracy, output length."""
    return interval(lambda m: m, values, how=how, units=units)


def ratio(numerators: np.ndarray, denominators: np.ndarray, how: Bootstrap = DEFAULT) -> Interval:
    """Of sums, so that long prompts count more: pooled τ from tokens [P] and rounds [P]."""
    return interval(_divided, numerators, denominators, how=how)


def difference(a: np.ndarray, b: np.ndarray, how: Bootstrap = DEFAULT) -> Interval:
    """mean(a) - mean(b), paired: accuracy relaxed [P] less strict [P]."""
    return interval(lambda x, y: x - y, a, b, how=how)


def difference_of_ratios(
    a: tuple[np.ndarray, np.ndarray], b: tuple[np.ndarray, np.ndarray], how: Bootstrap = DEFAULT
) -> Interval:
    """sum(a0) / sum(a1) - sum(b0) / sum(b1), paired: τ relaxed less τ strict."""
    return interval(lambda x, y, u, v: _divided(x, y) - _divided(u, v), *a, *b, how=how)


def ratio_of_ratios(
    a: tuple[np.ndarray, np.ndarray], b: tuple[np.ndarray, np.ndarray], how: Bootstrap = DEFAULT
) -> Interval:
    """(sum(a0) / sum(a1)) / (sum(b0) / sum(b1)), paired: a speed-up from tokens and seconds."""
    return interval(lambda x, y, u, v: _divided(_divided(x, y), _divided(u, v)), *a, *b, how=how)


def interval(
    statistic: Statistic, *columns: np.ndarray, how: Bootstrap = DEFAULT, units: np.ndarray | None = None
) -> Interval:
    """Of any function of the columns' means; each column is [P], a value a prompt. Raises BadInput for no prompts."""
    values = (np.asarray(column, np.float64).reshape(len(column), 1) for column in columns)
    return band(statistic, *values, how=how, units=units).only


def band(statistic: Statistic, *columns: np.ndarray, how: Bootstrap = DEFAULT, units: np.ndarray | None = None) -> Band:
    """The same for columns [P, S]: a value for each prompt and segment, all segments on the same resamples.

    A column [P, 1] stands for one that is the same on every segment. `units`, whole numbers [P], are equal for prompts
    that are drawn together; None draws each by itself. Raises BadInput for no prompts or columns of different lengths.
    """
    columns = tuple(np.asarray(column, np.float64) for column in columns)
    lengths = {len(column) for column in columns}
    if len(lengths) != 1 or 0 in lengths:
        raise BadInput("An interval needs at least one prompt, and every number of each. Choose a set with prompts.")
    sizes = np.ones(len(columns[0]))
    if units is not None:
        columns = tuple(_joined(units, *columns))
        sizes = _joined(units, sizes)[0]
    segments = max(column.shape[1] for column in columns)
    block = max(1, _CHUNK // how.resamples)
    parts = [
        _block(statistic, [c if c.shape[1] == 1 else c[:, first : first + block] for c in columns], sizes, how)
        for first in range(0, segments, block)
    ]
    estimate, low, high = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Band(estimate, low, high, how.confidence, how.method)


def wilson(successes: float, trials: int, confidence: float = 0.95) -> Interval:
    """A single share, such as an accuracy (Wilson 1927, Journal of the American Statistical Association 22:209-212).

    From 0 to 1, and no estimate, where nothing was tried. Successes need not be whole: where trials stand for more than
    one prompt each, they are the share of all prompts times the trials.
    """
    _check_confidence(confidence)
    if not 0 <= successes <= trials:
        raise BadInput(f"{successes} of {trials} is no share. Give a count between 0 and the number of trials.")
    if trials == 0:
        return Interval(math.nan, 0.0, 1.0, confidence, Method.WILSON)
    z, share = _NORMAL.inv_cdf((1 + confidence) / 2), successes / trials
    centre = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + (z / (2 * trials)) ** 2)
    low = 0.0 if successes == 0 else centre - half
    return Interval(share, low, 1.0 if successes == trials else centre + half, confidence, Method.WILSON)


def prompts_needed(points: float, confidence: float, discordant_share: float, power: float = 0.8) -> int:
    """Prompts that it takes to tell an accuracy loss of `points` percentage points from none.

    d is the loss as a share, s the share of prompts that strict and relaxed grade differently, at least d. McNemar's
    one-sided test finds the loss with probability `power` from

        n = (z(confidence) √s + z(power) √(s - d²))² / d²

    prompts (Connor 1987, Biometrics 43:207-211; s is his ψ). Raises BadInput for values out of range.
    """
    _check_confidence(confidence)
    _check_confidence(power)
    if not (0 < points <= 100 and 0 <= discordant_share <= 1):
        raise BadInput("A loss is above 0 and at most 100 points, and a share lies between 0 and 1. Mend the values.")
    loss = points / 100
    share = max(discordant_share, loss)
    spread = _NORMAL.inv_cdf(confidence) * math.sqrt(share) + _NORMAL.inv_cdf(power) * math.sqrt(share - loss * loss)
    return max(2, math.ceil(spread * spread / (loss * loss)))


def _joined(units: np.ndarray, *columns: np.ndarray) -> list[np.ndarray]:
    """Each column's sums over the prompts of a unit, [U, S]."""
    order = np.argsort(units, kind="stable")
    begins = np.flatnonzero(np.diff(np.asarray(units)[order], prepend=np.nan))
    return [np.add.reduceat(column[order], begins, axis=0) for column in columns]


def _block(
    statistic: Statistic, columns: list[np.ndarray], sizes: np.ndarray, how: Bootstrap
) -> tuple[np.ndarray, ...]:
    """Of sums over units, each of so many prompts."""
    units, prompts = len(sizes), sizes.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        estimate = np.atleast_1d(statistic(*(column.sum(axis=0) / prompts for column in columns)))  # [S]
        if units < 2:
            return estimate, np.full_like(estimate, np.nan), np.full_like(estimate, np.nan)
        replicates = np.concatenate(
            [
                statistic(*(weights @ column / (weights @ sizes)[:, None] for column in columns))
                for weights in _weights(units, how.resamples, how.seed)
            ]
        )  # [resamples, S]
        replicates.sort(axis=0)  # NaN last
        levels = np.broadcast_to([[(1 - how.confidence) / 2], [(1 + how.confidence) / 2]], (2, len(estimate)))
        if how.method is Method.BCA:
            levels = _bca_levels(levels, estimate, replicates, _left_out(statistic, columns, sizes))
        low, high = _quantiles(replicates, levels)
    settled = replicates[-1] - replicates[0] <= 1e-12 * np.abs(estimate)  # one value, but for rounding
    low, high = np.where(settled, estimate, low), np.where(settled, estimate, high)
    undefined = np.isnan(replicates[-1])
    return estimate, np.where(undefined, np.nan, low), np.where(undefined, np.nan, high)


def _weights(prompts: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """float64 [some, P] until `resamples` rows: how often each prompt was drawn, with replacement."""
    few = prompts * resamples <= _KEPT
    for counts in _all_drawn(prompts, resamples, seed) if few else _drawn(prompts, resamples, seed):
        yield counts.astype(np.float64)


@lru_cache(maxsize=2)
def _all_drawn(prompts: int, resamples: int, seed: int) -> tuple[np.ndarray, ...]:
    """Kept, because every number of a sweep asks for the same draws, which take longer to make than to use."""
    return tuple(_drawn(prompts, resamples, seed))


def _drawn(prompts: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """The same counts, in the smallest whole numbers that hold them."""
    rng = np.random.default_rng(seed)
    rows = max(1, _CHUNK // prompts)
    for done in range(0, resamples, rows):
        count = min(rows, resamples - done)
        drawn = rng.integers(prompts, size=(count, prompts)) + prompts * np.arange(count)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=count * prompts).reshape(count, prompts)
        yield counts.astype(np.min_scalar_type(int(counts.max())))


def _left_out(statistic: Statistic, columns: list[np.ndarray], sizes: np.ndarray) -> np.ndarray:
    """float64 [U, S]; the statistic without each unit in turn."""
    rest = (sizes.sum() - sizes)[:, None]
    return statistic(*((column.sum(axis=0) - column) / rest for column in columns))


def _bca_levels(levels: np.ndarray, estimate: np.ndarray, replicates: np.ndarray, left: np.ndarray) -> np.ndarray:
    """float64 [2, S]; Φ(z0 + (z0 + z) / (1 - a (z0 + z))), with bias z0 and acceleration a (Efron 1987, 2.3, 6.6)."""
    count = len(replicates)
    tie = 1e-12 * np.abs(replicates).max(axis=0)  # equal but for rounding
    under = np.sum(replicates < estimate - tie, axis=0) + np.sum(replicates <= estimate + tie, axis=0)
    below = under / (2 * count)  # ties count half
    bias = _each(_NORMAL.inv_cdf, np.clip(below, 0.5 / count, 1 - 0.5 / count))
    spread = left.mean(axis=0) - left  # [P, S]
    cubes, squares = np.sum(spread**3, axis=0), np.sum(spread**2, axis=0)
    acceleration = np.divide(cubes, 6 * squares**1.5, out=np.zeros_like(squares), where=squares > 0)
    moved = bias + _each(_NORMAL.inv_cdf, levels)
    return _each(_NORMAL.cdf, bias + moved / (1 - acceleration * moved))


def _quantiles(ordered: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """float64 [2, S]; of sorted replicates, linear between two of them."""
    place = levels * (len(ordered) - 1)
    below = np.floor(place).astype(np.int64)
    above = np.minimum(below + 1, len(ordered) - 1)
    columns = np.arange(ordered.shape[1])
    a, b = ordered[below, columns], ordered[above, columns]
    return a + (b - a) * (place - below)


def _each(function: Callable[[float], float], values: np.ndarray) -> np.ndarray:
    return np.array([function(float(value)) for value in values.ravel()]).reshape(values.shape)


def _divided(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """NaN where the denominator is 0."""
    return np.where(b == 0, np.nan, a / b)
