"""Type of an evidence column: name, one value per drafted token or row, dtype and possible values.

`records.Speculation` declares the columns with meaning and unit. Code that stores, checks, joins or fills columns
follows these declarations. Imports no models, rules or files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, Self, overload

import numpy as np

from mars_viz.bounds import HUGE, VOCABULARY

Check = Callable[[np.ndarray], np.ndarray]  # returns True for each possible value
ANY_WIDTH = 0  # width of a column of lists, all of the recorded length


class Per(Enum):
    """The unit that a column has one line for."""

    NODE = "node"
    ROW = "row"  # each of the target's laws


class Decides(Enum):
    """Whether every rule needs a column for its decisions, so that no speculation lacks it."""

    ALWAYS = "always"
    SAMPLED = "sampled"
    NEVER = "never"  # only rules that name it in `needs` use it


class Of(Enum):
    """The kind of draft for which a column exists."""

    ALL = "all drafts"
    CHAINS = "chains"  # one path that was planned as one
    LIKELIEST = "trees of the likeliest tokens"  # trees without a drawn token
    DRAWN = "trees of drawn paths"  # drawn trees, even if their paths coincide

    def includes(self, own: Of, temperature: float) -> bool:
        """True if drafts of the kind `own` have it; a column of a single kind exists only above temperature 0."""
        return self is Of.ALL or (self is own and temperature > 0)


@dataclass(slots=True, eq=False)
class Column:
    """Descriptor of one column; reads its values from a speculation, or unknown values if the column is missing.

    A speculation has `columns` by name, of which the drafted `tokens` and the target's `top_ids` always exist.
    """

    per: Per
    dtype: Any  # a NumPy type
    holds: Check  # checks values
    _: KW_ONLY
    width: int = 1  # values per line; `ANY_WIDTH` for lists of the recorded length
    decides: Decides = Decides.NEVER
    of: Of = Of.ALL
    name: str = ""  # as an attribute, in `needs` and in run files
    unknown: float = 0

    def __post_init__(self) -> None:
        self.dtype = np.dtype(self.dtype)
        self.unknown = np.nan if self.dtype.kind == "f" else 0

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: Any, owner: type) -> np.ndarray: ...

    def __get__(self, instance: Any, owner: type) -> Self | np.ndarray:
        if instance is None:
            return self
        try:
            values: np.ndarray = instance.columns[self.name]
        except KeyError:
            return _unknown(self, len(instance.columns["tokens" if self.per is Per.NODE else "top_ids"]))
        return values

    def required(self, temperature: float) -> bool:
        """True if every speculation at this temperature has the column."""
        return self.decides is Decides.ALWAYS or (self.decides is Decides.SAMPLED and temperature > 0)


@lru_cache(maxsize=512)
def _unknown(column: Column, lines: int) -> np.ndarray:
    """Return the column's unknown values; lists of the recorded length are empty."""
    shape = (lines,) if column.width == 1 else (lines, column.width)
    return np.broadcast_to(column.dtype.type(column.unknown), shape)


class LazyColumns(Mapping[str, np.ndarray]):
    """Columns by name, each computed on first access."""

    __slots__ = ("_column", "_known", "_names")

    def __init__(self, names: Collection[str], column: Callable[[str], np.ndarray]) -> None:
        """`column` computes one of `names`."""
        self._names, self._column = names, column
        self._known: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        values = self._known.get(name)
        if values is None:
            if name not in self._names:
                raise KeyError(name)
            values = self._known[name] = self._column(name)
        return values

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __reduce__(self) -> tuple[type, tuple[dict[str, np.ndarray]]]:
        return dict, (dict(self),)


def cut_columns(columns: Mapping[str, np.ndarray], nodes: slice, rows: slice, total: int) -> LazyColumns:
    """Return the columns of some of several concatenated drafts, sliced on first access; `total` is the number of nodes
    of all drafts (there are more rows)."""

    def column(name: str) -> np.ndarray:
        values = columns[name]
        return values[nodes if len(values) == total else rows]

    return LazyColumns(columns, column)


def within(low: float, high: float) -> Check:
    """Return a check for numbers from `low` to `high`; NaN fails."""
    return lambda values: (values >= low) & (values <= high)


def or_unknown(holds: Check) -> Check:
    """Return a check that also accepts NaN, the unknown value."""
    return lambda values: holds(values) | np.isnan(values)


def divergence(values: np.ndarray) -> np.ndarray:
    """Return True for possible divergences, nats."""
    return (values >= -HUGE) & ((values <= HUGE) | (values == np.inf))  # inf is missing support; NaN fails


finite = within(-HUGE, HUGE)
logit = within(-np.inf, HUGE)  # raw; -inf is a masked token
entropy_value = within(-0.1, np.log(VOCABULARY) + 0.1)  # nats; rounding may pass both ends
coin = within(0, np.nextafter(1, 0))  # uniform draws in [0, 1)
probability = within(0, 1.001)  # rounding may pass 1
