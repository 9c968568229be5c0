"""Numbers with exactly the digits that a reader sees, in as few bits as that takes. Knows how the explorer writes them.

`numbers.js` writes three significant digits, at most three decimals, and two digits of what is smaller still. Whatever
shows the same digits is as good as the number itself, so of a whole range of numbers the shortest can be sent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

UNKNOWN, INFINITE = -(2**15), 100
"""Mantissa that stands for NaN, exponent that makes infinity of 1 and -1."""
_ENDS = np.array([0.0005, 0.9995, 9.995, 99.95])
"""Where the number of decimals changes."""
FINEST = 20
"""Binary places of the shortest numbers at most."""
MOST_MANTISSA = 2**30
"""Of a shortest number; beyond, which no logit reaches, it is cut off."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """Numbers as a mantissa times a power of ten or of two: few digits, few bytes."""

    base: int
    """10 or 2."""
    mantissas: np.ndarray
    """int32 [n] or [n, m]."""
    exponents: np.ndarray
    """int8, likewise."""

    @property
    def values(self) -> np.ndarray:
        """float64; exact for powers of two."""
        return self.mantissas * np.float64(self.base) ** self.exponents

    def __getitem__(self, chosen: np.ndarray) -> Scaled:
        """Those at these places."""
        return Scaled(self.base, self.mantissas[chosen], self.exponents[chosen])


@dataclass(frozen=True, slots=True)
class Ranges:
    """Ranges of numbers."""

    low: np.ndarray
    """float64 [n]"""
    high: np.ndarray
    """float64 [n]; not below `low`."""

    def within(self, other: Ranges) -> Ranges:
        """What lies in both."""
        return Ranges(np.maximum(self.low, other.low), np.minimum(self.high, other.high))


def as_shown(values: np.ndarray) -> Scaled:
    """The values with exactly the digits that the explorer writes: three significant ones, at most three decimals.

    From 32 768 on, where logits and probabilities never are, only four digits are kept.
    """
    return _decimals(values, _exponents(np.abs(np.where(np.isfinite(values), values, 0).astype(np.float64))))


def to_decimals(values: np.ndarray, decimals: int) -> Scaled:
    """The values with so many decimals."""
    return _decimals(values, np.full(np.shape(values), -decimals))


def same_digits(values: np.ndarray) -> Ranges:
    """What shows the same digits as each of these finite numbers."""
    size = np.abs(values.astype(np.float64))
    step = 10.0 ** _exponents(size)
    centre = np.rint(size / step) * step
    place = np.searchsorted(_ENDS, size, side="right")
    least = np.where(size < _ENDS[0], 9.95 * step, np.append(0, _ENDS)[place])  # below 1.0e-5 stands 9.9e-6
    low = np.maximum(centre - step / 2, least)
    high = np.minimum(centre + step / 2, np.append(_ENDS, np.inf)[place])
    inner = (high - low) * 1e-6  # an end may show either
    low, high = np.minimum(low + inner, size), np.maximum(high - inner, size)
    return Ranges(np.where(values < 0, -high, low), np.where(values < 0, -low, high))


def same_decimals(values: np.ndarray, decimals: int) -> Ranges:
    """What shows the same so many decimals."""
    step = 10.0**-decimals
    centre = np.rint(values / step) * step
    low, high = centre - 0.499999 * step, centre + 0.499999 * step
    return Ranges(np.minimum(low, values), np.maximum(high, values))


def same_percentage(surprise: np.ndarray) -> Ranges:
    """What shows the same percentage 100 exp(-u) as each u."""
    with np.errstate(over="ignore"):
        chance = same_digits(100 * np.exp(-surprise))
    with np.errstate(divide="ignore"):
        low, high = -np.log(chance.high / 100), -np.log(chance.low / 100)
    return Ranges(np.minimum(surprise, np.maximum(low, 0)), np.maximum(surprise, high))


def shortest(ranges: Ranges) -> Scaled:
    """For each range the number in it with the fewest binary places; its middle where `FINEST` are too few."""
    count = len(ranges.low)
    places, numerators = np.full(count, FINEST), np.zeros(count)
    open_ = np.arange(count)
    for place in range(FINEST + 1):
        low, high = (np.ldexp(end[open_], place) for end in (ranges.low, ranges.high))
        least = np.ceil(low)
        found = least <= high
        numerators[open_[found]], places[open_[found]] = least[found], place
        open_ = open_[~found]
    middle = np.ldexp((ranges.low + ranges.high)[open_] / 2, FINEST)
    numerators[open_] = np.rint(middle)
    return Scaled(2, np.clip(numerators, -MOST_MANTISSA, MOST_MANTISSA).astype(np.int32), (-places).astype(np.int8))


def _exponents(size: np.ndarray) -> np.ndarray:
    exponents = np.select(
        [size >= 99.95, size >= 9.995, size >= 0.9995, size >= 0.0005, size > 0], [0, -1, -2, -3, -99]
    )
    tiny = exponents == -99  # written as 1.2e-5
    exponents[tiny] = np.maximum(np.floor(np.log10(size[tiny])) - 1, -120)
    return exponents


def _decimals(values: np.ndarray, exponents: np.ndarray) -> Scaled:
    exact = values.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        mantissas = np.rint(exact / 10.0**exponents)
    far = np.isfinite(exact) & (np.abs(mantissas) >= 2**15)
    exponents = np.where(far, np.ceil(np.log10(np.maximum(np.abs(exact), 1))) - 4, exponents)
    mantissas = np.where(far, np.rint(exact / 10.0**exponents), mantissas)
    endless = np.isinf(exact)
    mantissas = np.select([endless, np.isnan(exact)], [np.sign(exact), UNKNOWN], mantissas)
    return Scaled(10, mantissas.astype(np.int32), np.where(endless, INFINITE, exponents).astype(np.int8))
