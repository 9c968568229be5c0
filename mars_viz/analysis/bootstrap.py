"""The bootstrap distribution of a function of means, computed instead of sampled.

Arrays have one row per unit (a prompt, or a question with its turns). A resample draws as many units as there are, with
replacement, so the mean of a column is a mean of independent draws. Saddlepoint approximations give its distribution to
a thousandth of a standard error if there are many units (Davison and Hinkley 1988, Biometrika 75:417-431). A smooth
function T of several means reaches level x with

    P(T <= x) = Phi(r - β),   r = w + log(v / w) / w          (Barndorff-Nielsen 1986, Biometrika 73:307-322)

where w, v are those of the mean of the units' share in T at x. The tilted weights, proportional to exp(t share), are
the likeliest ones with T = x. β is the curvature of the surface T = x at that point; it is flat for a mean, a
difference of means and a ratio. Draws equal to the estimate count half, as do those at an end that is an atom.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

Statistic = Callable[..., np.ndarray]
"""Maps the means over prompts of each column, each [S], to numbers [S]."""

_TURNS = 8
"""Maximum number of updates of the tilt's direction; three are usual."""
_STILL, _CLOSE = 1e-4, 1e-2
"""Relative change of an end, from its distance to the estimate, below which it has converged, or is close."""
_STEPS = 40
"""Maximum number of Newton steps; two are usual."""
_SURE = 1e-5
"""Tolerance of the tilt's level, in standard errors."""
_ROUNDING = 1e-7
"""Relative spread, and relative change of slope, that count as zero."""
_LARGEST = 500.0
"""Largest exponent of a tilt, at which only the units at one end count."""
_ATOM = 0.5
"""Approximate limit of the correction of w if only the units at one end count."""
_NEVER = 1e-3
"""Largest acceptable chance of a resample with an undefined number."""


@dataclass(frozen=True)
class Resampled:
    """A number computed from resampled prompts: sums over units, each of several prompts."""

    statistic: Statistic
    columns: list[np.ndarray]
    """float64 [U, S] or [U, 1]; arguments of the statistic, summed over the prompts of each unit."""
    sizes: np.ndarray  # float64 [U]; number of prompts of each unit

    @cached_property
    def means(self) -> list[np.ndarray]:
        """[S] or [1] each; over the original prompts."""
        return [column.sum(axis=0) / self.sizes.sum() for column in self.columns]

    @cached_property
    def estimate(self) -> np.ndarray:
        """float64 [S]; the number on the original prompts."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.atleast_1d(self.statistic(*self.means))

    @cached_property
    def spreads(self) -> list[np.ndarray]:
        """[S] or [1] each; standard deviation over units of each column minus its mean."""
        return [
            np.sqrt(np.mean((column - mean * self.sizes[:, None]) ** 2, axis=0)) / self.sizes.mean()
            for column, mean in zip(self.columns, self.means, strict=True)
        ]

    @cached_property
    def moving(self) -> list[int]:
        """Columns that affect the number; the others may contain NaN."""
        return [place for place, slope in enumerate(self.gradient(self.means)) if np.any(slope != 0)]

    def gradient(self, means: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the derivative of the number by each mean, [S] each, by central differences; 0 for constants."""
        slopes = []
        for place, spread in enumerate(self.spreads):
            step = np.where(spread > 0, spread, 1.0) * (1e-3 / math.sqrt(len(self.sizes)))
            above, below = (self._moved(means, place, way * step) for way in (1, -1))
            slopes.append(np.where(spread > 0, (above - below) / (2 * step), 0.0))
        return slopes

    def _moved(self, means: Sequence[np.ndarray], place: int, step: np.ndarray) -> np.ndarray:
        return self.statistic(*(mean + step if at == place else mean for at, mean in enumerate(means)))

    def shares(self, gradient: Sequence[np.ndarray], means: Sequence[np.ndarray]) -> np.ndarray:
        """Return each unit's first-order contribution to the number's change from `means`, float64 [U, S]."""
        shares = np.zeros((len(self.sizes), len(self.estimate)))
        for place in self.moving:
            shares += gradient[place] * (self.columns[place] - means[place] * self.sizes[:, None])
        return shares

    def undefined(self) -> np.ndarray:
        """Return True if a resample may well consist of units for which the number is undefined, bool [S]."""
        undefined, count = np.isnan(self.estimate), len(self.sizes)
        for place, column in enumerate(self.columns):
            chance = np.mean(column == 0, axis=0) ** count
            if np.any(chance > _NEVER):
                without = self._moved(self.means, place, -self.means[place])
                undefined = undefined | ((chance > _NEVER) & ~np.isfinite(without))
        return undefined


def ends(of: Resampled, levels: Sequence[float], *, corrected: bool) -> list[np.ndarray]:
    """Return the quantiles of the resampled number at these levels (normal quantiles), [S] each; `corrected` applies
    BCa. NaN if there is one unit or the number is undefined; the estimate if no resample can change it."""
    with np.errstate(all="ignore"):
        if len(of.sizes) < 2:
            return [np.full_like(of.estimate, np.nan) for _ in levels]
        centre = _Tilt(of, of.means, np.full((len(of.sizes), 1), 1 / len(of.sizes)))
        bias, skew = centre.skew - centre.bend, centre.skew
        quantiles, undefined = [], of.undefined()
        for level in levels:
            target = np.full_like(of.estimate, level)
            if corrected:
                moved = bias + level
                target = bias + moved / (1 - skew * moved)
            value = np.where(centre.settled, of.estimate, centre.towards(target))
            quantiles.append(np.where(undefined, np.nan, value))
        return quantiles


@dataclass(frozen=True)
class _Tilt:
    """Units with unequal weights, proportional to exp(t share)."""

    of: Resampled
    means: list[np.ndarray]  # [S] or [1] each; the means with these weights
    weights: np.ndarray  # [U, S] or [U, 1]; each column sums to 1

    @cached_property
    def gradient(self) -> list[np.ndarray]:
        """[S] each; the derivative of the number by each mean at these weights."""
        return self.of.gradient(self.means)

    @cached_property
    def shares(self) -> np.ndarray:
        """float64 [U, S]; each unit's contribution to the number's change from here."""
        return self.of.shares(self.gradient, self.means)

    @cached_property
    def spread(self) -> np.ndarray:
        """float64 [S]; standard deviation of the shares with these weights."""
        middle = np.sum(self.weights * self.shares, axis=0)
        return np.sqrt(np.sum(self.weights * (self.shares - middle) ** 2, axis=0))

    @cached_property
    def settled(self) -> np.ndarray:
        """bool [S]; True if the units change the number by no more than rounding."""
        parts = (np.abs(self.gradient[place]) * self.of.spreads[place] for place in self.of.moving)
        return self.spread <= _ROUNDING * self.of.sizes.mean() * sum(parts)

    @cached_property
    def skew(self) -> np.ndarray:
        """float64 [S]; a sixth of the skewness of the shares' mean: BCa's acceleration, and the bias of a mean."""
        third = np.sum(self.weights * _cubed(self.shares), axis=0)
        return np.nan_to_num(third / self.spread**3) / (6 * math.sqrt(len(self.shares)))

    @cached_property
    def bend(self) -> np.ndarray:
        """float64 [S]; β, in the number's standard errors. Half the trace of the number's second derivatives times the
        covariance of the means, conditional on the number."""
        of, count = self.of, len(self.shares)
        size = np.sum(self.weights * of.sizes[:, None], axis=0)
        parts = [
            np.broadcast_to((of.columns[place] - self.means[place] * of.sizes[:, None]) / size, self.shares.shape)
            for place in of.moving
        ]
        if len(parts) < 2:
            return np.zeros_like(of.estimate)
        with_number = np.stack([np.sum(self.weights * part * self.shares, axis=0) for part in parts], axis=-1)
        covariances = [[np.sum(self.weights * one * other, axis=0) for other in parts] for one in parts]
        covariance = np.moveaxis(np.array(covariances), -1, 0)  # [S, columns, columns]
        given = with_number[:, :, None] * with_number[:, None, :] / (self.spread**2)[:, None, None]
        values, vectors = np.linalg.eigh(np.nan_to_num(covariance - given) / count)
        middle, second = of.statistic(*self.means), np.zeros_like(of.estimate)
        for place in range(len(parts)):
            steps = (vectors[:, :, place] * np.sqrt(np.maximum(values[:, place], 0))[:, None]).T  # [columns, S]
            for way in (1, -1):
                moved = list(self.means)
                for at, step in zip(of.moving, steps, strict=True):
                    moved[at] = moved[at] + way * step
                second += of.statistic(*moved) - middle
        return np.nan_to_num(second * size * math.sqrt(count) / (2 * self.spread))

    def turned(self, t: np.ndarray) -> _Tilt:
        """Return the units with weights proportional to exp(t share), for these tilts [S]."""
        weights = np.exp(t * self.shares)
        weights /= weights.sum(axis=0)
        size, *sums = (  # in one order for every column, so that the mean of ones is exactly one
            np.einsum("us,us->s", weights, np.broadcast_to(column, weights.shape))
            for column in (self.of.sizes[:, None], *self.of.columns)
        )
        return _Tilt(self.of, [each / size for each in sums], weights)

    def straight(self, other: _Tilt) -> bool:
        """Return True if the number is linear in the means from here to `other`, so that there is one direction."""
        slopes = zip(self.gradient, other.gradient, strict=True)
        same = all(np.all(np.abs(one - two) <= _ROUNDING * np.abs(one)) for one, two in slopes)
        return same and bool(np.ptp(self.of.sizes) == 0)

    def towards(self, level: np.ndarray) -> np.ndarray:
        """Return the number at these levels (normal quantiles), float64 [S].

        Tilts in the direction of the shares, then in the direction of the shares at the result, until the direction is
        stable. If it does not converge, as for a few units that differ by orders of magnitude, the first direction is
        used.
        """
        tilt, first, value = self, self.of.estimate, self.of.estimate
        root = math.sqrt(len(self.shares))
        w = level + self.bend - self.skew
        t = (w - 2 * self.skew * w**2) / (self.spread * root)  # r to the first power of the skewness, turned round
        done = self.settled | np.isnan(value)
        for turn in range(_TURNS):
            t = _tilt_at(tilt.shares, level + self.bend, t)
            tilt = tilt.turned(t)
            led = self.of.statistic(*tilt.means)
            if turn == 0:
                first = led
                if self.straight(tilt):
                    return np.where(done, value, led)
            moved = np.abs(led - value) / np.abs(led - self.of.estimate)
            value = np.where(done, value, led)
            done = done | ~(moved > _STILL)
            if done.all():
                return value
        return np.where(done | (moved < _CLOSE), value, first)


def _tilt_at(shares: np.ndarray, level: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Return the tilt of these shares [U, S] whose mean has this level (a normal quantile), float64 [S]; the largest
    tilt if no tilt reaches it."""
    count, squares, largest = len(shares), shares**2, np.abs(shares).max(axis=0)
    away = shares - shares.mean(axis=0)
    skew = np.nan_to_num(np.mean(_cubed(away), axis=0) / np.mean(away * away, axis=0) ** 1.5) / (6 * math.sqrt(count))
    low, high, most = -_LARGEST / largest, _LARGEST / largest, []
    for way in (-1, 1):  # |r| if only the units with the smallest share remain, or with the largest
        left = np.sum(way * shares >= (way * shares).max(axis=0) - 1e-9 * largest, axis=0)
        most.append(np.sqrt(2 * count * np.log(count / left)) - _ATOM)
    t = np.where(level <= -most[0], low, np.where(level >= most[1], high, np.clip(start, low, high)))
    done = (t == low) | (t == high) | ~np.isfinite(t)
    for _ in range(_STEPS):
        each = np.exp(t * shares)
        total = each.sum(axis=0)
        first = np.einsum("us,us->s", each, shares) / total
        second = np.maximum(np.einsum("us,us->s", each, squares) / total - first**2, 0.0)
        w = np.sign(t) * np.sqrt(2 * count * np.maximum(t * first - np.log(total / count), 0.0))
        v = t * np.sqrt(count * second)
        near = np.abs(w) < 1e-3
        correction = np.where(near, skew, np.log(v / w) / w)
        slope = np.where(near, np.sqrt(count * second), count * t * second / w)  # of w, approximately that of r
        off = w + np.clip(np.nan_to_num(correction, nan=-_ATOM), -_ATOM, _ATOM) - level
        done |= ~(np.abs(off) > _SURE)
        if done.all():
            break
        low, high = np.where(off < 0, t, low), np.where(off < 0, high, t)
        step = t - off / slope
        inside = (step > low) & (step < high)
        t = np.where(done, t, np.where(inside, step, (low + high) / 2))
    return t


def _cubed(values: np.ndarray) -> np.ndarray:
    """Return the cubes; twenty times as fast as `values**3`, which handles any exponent."""
    return np.asarray(values * values * values)
