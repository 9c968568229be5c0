"""The bootstrap's distribution of a function of means, computed instead of drawn.

Knows arrays with a row a unit (a prompt, or a question with its turns); knows no intervals and no figures. A resample
draws as many units as there are, with replacement, so the mean of a column is that of independent draws from its
values, whose distribution saddlepoint approximations give to a thousandth of a standard error where they are many
(Davison and Hinkley 1988, Biometrika 75:417-431). A level x of a smooth function T of several means is reached

    P(T <= x) = Phi(r - β),   r = w + log(v / w) / w          (Barndorff-Nielsen 1986, Biometrika 73:307-322)

where w, v are those of a mean, that of the units' share in T at x: the tilted weights, proportional to exp(t share),
are the likeliest ones with T = x. β is how far the surface T = x is bent there; it is flat for a mean, a difference of
means and a ratio. Draws that agree with the estimate count half, as do those at an end that is an atom.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

Statistic = Callable[..., np.ndarray]
"""Of the means over prompts of each column, each [S], to a number [S]."""

_TURNS = 8
"""How often the direction of the tilt is brought in line with where it leads, at most; three are usual."""
_STILL, _CLOSE = 1e-4, 1e-2
"""How little the last of them moves an end, of its distance from the estimate: it stands, or it will."""
_STEPS = 40
"""Of Newton's method, at most; two are usual."""
_SURE = 1e-5
"""How close to a level the tilt comes, in standard errors."""
_ROUNDING = 1e-7
"""A spread, of what makes it up, and a change of slope, of itself, that are none."""
_LARGEST = 500.0
"""Of the exponents of a tilt: only the units at one end are left."""
_ATOM = 0.5
"""How much the correction of w can be where only the units at one end are left, about."""
_NEVER = 1e-3
"""Chance of a resample without a defined number above which nothing is said of the others."""


@dataclass(frozen=True)
class Resampled:
    """A number of resampled prompts: sums over units, each of so many prompts."""

    statistic: Statistic
    """The number."""
    columns: list[np.ndarray]
    """float64 [U, S] or [U, 1]; what it is made of, summed over the prompts of each unit."""
    sizes: np.ndarray
    """float64 [U]; prompts of each unit."""

    @cached_property
    def means(self) -> list[np.ndarray]:
        """[S] or [1] each; over the prompts as they are."""
        return [column.sum(axis=0) / self.sizes.sum() for column in self.columns]

    @cached_property
    def estimate(self) -> np.ndarray:
        """float64 [S]; the number on the prompts as they are."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.atleast_1d(self.statistic(*self.means))

    @cached_property
    def spreads(self) -> list[np.ndarray]:
        """[S] or [1] each; standard deviation over units of each column less its mean."""
        return [
            np.sqrt(np.mean((column - mean * self.sizes[:, None]) ** 2, axis=0)) / self.sizes.mean()
            for column, mean in zip(self.columns, self.means, strict=True)
        ]

    @cached_property
    def moving(self) -> list[int]:
        """Columns that move the number; what others hold, which may be no numbers, does not matter."""
        return [place for place, slope in enumerate(self.gradient(self.means)) if np.any(slope != 0)]

    def gradient(self, means: Sequence[np.ndarray]) -> list[np.ndarray]:
        """[S] each; how the number changes with each mean, by central differences; 0 for what does not vary."""
        found = []
        for place, spread in enumerate(self.spreads):
            step = np.where(spread > 0, spread, 1.0) * (1e-3 / math.sqrt(len(self.sizes)))
            above, below = (self._moved(means, place, way * step) for way in (1, -1))
            found.append(np.where(spread > 0, (above - below) / (2 * step), 0.0))
        return found

    def _moved(self, means: Sequence[np.ndarray], place: int, step: np.ndarray) -> np.ndarray:
        return self.statistic(*(mean + step if at == place else mean for at, mean in enumerate(means)))

    def shares(self, gradient: Sequence[np.ndarray], means: Sequence[np.ndarray]) -> np.ndarray:
        """float64 [U, S]; what each unit adds to the number's change from `means`, to first order."""
        found = np.zeros((len(self.sizes), len(self.estimate)))
        for place in self.moving:
            found += gradient[place] * (self.columns[place] - means[place] * self.sizes[:, None])
        return found

    def undefined(self) -> np.ndarray:
        """bool [S]; where a resample may well hold only units with which the number is not defined."""
        found, count = np.isnan(self.estimate), len(self.sizes)
        for place, column in enumerate(self.columns):
            chance = np.mean(column == 0, axis=0) ** count
            if np.any(chance > _NEVER):
                without = self._moved(self.means, place, -self.means[place])
                found = found | ((chance > _NEVER) & ~np.isfinite(without))
        return found


def ends(of: Resampled, levels: Sequence[float], *, corrected: bool) -> list[np.ndarray]:
    """[S] each; the numbers that a resample's stays below with these levels, as normal quantiles; `corrected` by BCa.

    NaN where there is one unit, or where the number is not defined; the estimate where no resample can change it.
    """
    with np.errstate(all="ignore"):
        if len(of.sizes) < 2:
            return [np.full_like(of.estimate, np.nan) for _ in levels]
        centre = _Tilt.none(of)
        bias, skew = centre.skew - centre.bend, centre.skew
        found, undefined = [], of.undefined()
        for level in levels:
            wanted = np.full_like(of.estimate, level)
            if corrected:
                moved = bias + level
                wanted = bias + moved / (1 - skew * moved)
            value = np.where(centre.settled, of.estimate, centre.towards(wanted))
            found.append(np.where(undefined, np.nan, value))
        return found


@dataclass(frozen=True)
class _Tilt:
    """Units with other weights than equal ones: proportional to exp(t share)."""

    of: Resampled
    """What is resampled."""
    means: list[np.ndarray]
    """[S] or [1] each; with these weights."""
    weights: np.ndarray
    """[U, S] or [U, 1]; these weights, which add up to 1."""

    @classmethod
    def none(cls, of: Resampled) -> _Tilt:
        """Equal weights."""
        return cls(of, of.means, np.full((len(of.sizes), 1), 1 / len(of.sizes)))

    @cached_property
    def gradient(self) -> list[np.ndarray]:
        """[S] each; how the number changes with each mean, here."""
        return self.of.gradient(self.means)

    @cached_property
    def shares(self) -> np.ndarray:
        """float64 [U, S]; what each unit adds to the number's change from here."""
        return self.of.shares(self.gradient, self.means)

    @cached_property
    def spread(self) -> np.ndarray:
        """float64 [S]; standard deviation of the shares with these weights."""
        middle = np.sum(self.weights * self.shares, axis=0)
        return np.sqrt(np.sum(self.weights * (self.shares - middle) ** 2, axis=0))

    @cached_property
    def settled(self) -> np.ndarray:
        """bool [S]; where the units change the number by no more than rounding does."""
        parts = (np.abs(self.gradient[place]) * self.of.spreads[place] for place in self.of.moving)
        return self.spread <= _ROUNDING * self.of.sizes.mean() * sum(parts)

    @cached_property
    def skew(self) -> np.ndarray:
        """float64 [S]; a sixth of the skewness of the shares' mean: BCa's acceleration, and the bias of a mean."""
        third = np.sum(self.weights * _cubed(self.shares), axis=0)
        return np.nan_to_num(third / self.spread**3) / (6 * math.sqrt(len(self.shares)))

    @cached_property
    def bend(self) -> np.ndarray:
        """float64 [S]; β: half the trace of the number's second derivatives with the covariance of the means where the
        number itself is given, in its standard errors."""
        of, count = self.of, len(self.shares)
        size = np.sum(self.weights * of.sizes[:, None], axis=0)
        parts = [
            np.broadcast_to((of.columns[place] - self.means[place] * of.sizes[:, None]) / size, self.shares.shape)
            for place in of.moving
        ]
        if len(parts) < 2:
            return np.zeros_like(of.estimate)
        with_number = np.stack([np.sum(self.weights * part * self.shares, axis=0) for part in parts], axis=-1)
        both = [[np.sum(self.weights * one * other, axis=0) for other in parts] for one in parts]
        covariance = np.moveaxis(np.array(both), -1, 0)  # [S, columns, columns]
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

    def straight(self, other: _Tilt) -> bool:
        """True if the number is a sum of means as far as from here to there, so that there is one direction."""
        slopes = zip(self.gradient, other.gradient, strict=True)
        same = all(np.all(np.abs(one - two) <= _ROUNDING * np.abs(one)) for one, two in slopes)
        return same and bool(np.ptp(self.of.sizes) == 0)

    def towards(self, level: np.ndarray) -> np.ndarray:
        """float64 [S]; the number at these levels, normal quantiles: the tilt in the direction of this one's shares,
        then in that of where it leads, until that is its own. Where that comes to no end, as with a handful of units
        that differ by orders of magnitude, the first direction is taken."""
        tilt, first, value = self, self.of.estimate, self.of.estimate
        root = math.sqrt(len(self.shares))
        w = level + self.bend - self.skew
        t = (w - 2 * self.skew * w**2) / (self.spread * root)  # r to the first power of the skewness, turned round
        done = self.settled | np.isnan(value)
        for turn in range(_TURNS):
            line = _Tilts(tilt.shares)
            t = line.at(level + self.bend, t)
            tilt = line.tilted(self.of, t)
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


@dataclass(frozen=True)
class _Tilts:
    """Tilts in one direction, and how likely a mean of the shares is that is no larger than with each."""

    shares: np.ndarray
    """float64 [U, S]"""

    def at(self, level: np.ndarray, start: np.ndarray) -> np.ndarray:
        """float64 [S]; the tilt whose mean has this level, a normal quantile; the furthest one where none has."""
        furthest = _LARGEST / np.abs(self.shares).max(axis=0)
        low, high = -furthest, furthest
        t = np.where(level <= -self._most(-1), low, np.where(level >= self._most(1), high, np.clip(start, low, high)))
        done = (t == low) | (t == high) | ~np.isfinite(t)
        for _ in range(_STEPS):
            found = self._level(t)
            off = found.value - level
            done |= ~(np.abs(off) > _SURE)
            if done.all():
                break
            low, high = np.where(off < 0, t, low), np.where(off < 0, high, t)
            step = t - off / found.slope
            inside = (step > low) & (step < high)
            t = np.where(done, t, np.where(inside, step, (low + high) / 2))
        return t

    def _most(self, way: int) -> np.ndarray:
        """float64 [S]; |r| where only the units are left whose share is largest, or least where `way` is -1."""
        shares, count = way * self.shares, len(self.shares)
        most = shares.max(axis=0)
        left = np.sum(shares >= most - 1e-9 * np.abs(self.shares).max(axis=0), axis=0)
        return np.sqrt(2 * count * np.log(count / left)) - _ATOM

    def _level(self, t: np.ndarray) -> _Level:
        """r at each tilt."""
        count = len(self.shares)
        each = np.exp(t * self.shares)
        whole = each.sum(axis=0)
        first = np.einsum("us,us->s", each, self.shares) / whole
        second = np.maximum(np.einsum("us,us->s", each, self._squares) / whole - first**2, 0.0)
        w = np.sign(t) * np.sqrt(2 * count * np.maximum(t * first - np.log(whole / count), 0.0))
        v = t * np.sqrt(count * second)
        near = np.abs(w) < 1e-3
        correction = np.where(near, self._skew, np.log(v / w) / w)
        slope = np.where(near, np.sqrt(count * second), count * t * second / w)
        return _Level(w + np.clip(np.nan_to_num(correction, nan=-_ATOM), -_ATOM, _ATOM), slope)

    @cached_property
    def _squares(self) -> np.ndarray:
        return self.shares**2

    @cached_property
    def _skew(self) -> np.ndarray:
        away = self.shares - self.shares.mean(axis=0)
        spread = np.mean(away * away, axis=0) ** 1.5
        return np.nan_to_num(np.mean(_cubed(away), axis=0) / spread) / (6 * math.sqrt(len(away)))

    def tilted(self, of: Resampled, t: np.ndarray) -> _Tilt:
        """The units with these weights."""
        weights = np.exp(t * self.shares)
        weights /= weights.sum(axis=0)
        size, *sums = (_summed(weights, column) for column in (of.sizes[:, None], *of.columns))
        return _Tilt(of, [each / size for each in sums], weights)


def _cubed(values: np.ndarray) -> np.ndarray:
    """Twenty times as fast as `values**3`, which is a power of any number."""
    return np.asarray(values * values * values)


def _summed(weights: np.ndarray, column: np.ndarray) -> np.ndarray:
    """[S]; in the same order for every column, so that a mean of ones is one."""
    return np.einsum("us,us->s", weights, np.broadcast_to(column, weights.shape))


@dataclass(frozen=True, slots=True)
class _Level:
    """How likely a mean is that is no larger."""

    value: np.ndarray
    """float64 [S]; r, a normal quantile."""
    slope: np.ndarray
    """float64 [S]; how fast w rises with the tilt, and r about as fast."""
