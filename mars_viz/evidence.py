"""What a column of evidence is: its name, one value a drafted token or a row, its type, and which values are possible.

The columns themselves are declared in `records.Speculation`, each with its meaning and unit; everything that stores,
checks, joins or fills columns follows from that. Knows arrays; knows no models, no rules and no files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import lru_cache
from typing import Protocol, Self, overload

import numpy as np

from mars_viz.bounds import HUGE, VOCABULARY

Check = Callable[[np.ndarray], np.ndarray]
"""True for each value that is possible."""
ANY_WIDTH = 0
"""A list in every line, all equally long: so many candidates as were kept."""


class Per(Enum):
    """What a column has a value for."""

    NODE = "node"
    """Each drafted token."""
    ROW = "row"
    """Each law of the target."""


class Decides(Enum):
    """Whether every rule decides by a column, so that no speculation is without it."""

    ALWAYS = "always"
    """At every temperature."""
    SAMPLED = "sampled"
    """Above temperature 0."""
    NEVER = "never"
    """Only the rules that name it in their `needs` do."""


class Of(Enum):
    """Of which drafts a column is known."""

    ALL = "all drafts"
    """Whatever their shape."""
    CHAINS = "chains"
    """Of one path that was planned as one."""
    LIKELIEST = "trees of the likeliest tokens"
    """None of which was drawn."""
    DRAWN = "trees of drawn paths"
    """Even where these came to one."""

    def includes(self, own: Of, temperature: float) -> bool:
        """True of drafts of this one kind; what is known of one kind alone is so above temperature 0."""
        return self is Of.ALL or (self is own and temperature > 0)


class Holder(Protocol):
    """Whatever has columns."""

    @property
    def columns(self) -> Mapping[str, np.ndarray]:
        """By name; the drafted `tokens` and the target's `top_ids` are always there."""
        ...


class Column:
    """One column: read from a speculation, its values or, where it is not there, what stands for unknown."""

    __slots__ = ("decides", "dtype", "holds", "name", "of", "per", "unknown", "width")

    def __init__(
        self,
        per: Per,
        dtype: type[np.generic],
        holds: Check,
        *,
        width: int = 1,
        decides: Decides = Decides.NEVER,
        of: Of = Of.ALL,
    ) -> None:
        """`holds` tells possible values, `width` how many there are a line."""
        self.name = ""
        """As an attribute, in `needs` and in run files."""
        self.per = per
        """What it has a line for."""
        self.dtype = np.dtype(dtype)
        """Of a value."""
        self.holds = holds
        """Which values are possible."""
        self.width = width
        """Values in a line; `ANY_WIDTH` for lists as long as was recorded."""
        self.decides = decides
        """Whether there is no speculation without it."""
        self.of = of
        """Of which drafts it is known."""
        self.unknown = np.nan if self.dtype.kind == "f" else 0
        """The value that stands for unknown."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: Holder, owner: type) -> np.ndarray: ...

    def __get__(self, instance: Holder | None, owner: type) -> Self | np.ndarray:
        if instance is None:
            return self
        try:
            return instance.columns[self.name]
        except KeyError:
            return _unknown(self, len(instance.columns["tokens" if self.per is Per.NODE else "top_ids"]))

    def required(self, temperature: float) -> bool:
        """True if there is no speculation of this temperature without it."""
        return self.decides is Decides.ALWAYS or (self.decides is Decides.SAMPLED and temperature > 0)


@lru_cache(maxsize=512)
def _unknown(column: Column, lines: int) -> np.ndarray:
    """The column where it is not known; lists as long as was recorded are empty."""
    shape = (lines,) if column.width == 1 else (lines, column.width)
    return np.broadcast_to(column.dtype.type(column.unknown), shape)


class Cut(Mapping[str, np.ndarray]):
    """The columns of one draft among those of many that stand end to end, cut out when they are asked for."""

    __slots__ = ("_columns", "_cut", "_nodes", "_rows", "_total")

    def __init__(self, columns: Mapping[str, np.ndarray], nodes: slice, rows: slice, total: int) -> None:
        """`total` is the number of nodes of all; there are more rows."""
        self._columns, self._nodes, self._rows, self._total = columns, nodes, rows, total
        self._cut: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        found = self._cut.get(name)
        if found is None:
            column = self._columns[name]
            found = self._cut[name] = column[self._nodes if len(column) == self._total else self._rows]
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __reduce__(self) -> tuple[type, tuple[dict[str, np.ndarray]]]:
        return dict, (dict(self),)


def finite(values: np.ndarray) -> np.ndarray:
    """Numbers within bounds."""
    return (values >= -HUGE) & (values <= HUGE)  # NaN fails


def logit(values: np.ndarray) -> np.ndarray:
    """Raw logits."""
    return values <= HUGE  # -inf is a masked token; NaN fails


def divergence(values: np.ndarray) -> np.ndarray:
    """Divergences, nats."""
    return (values >= -HUGE) & ((values <= HUGE) | (values == np.inf))  # inf is missing support; NaN fails


def entropy_value(values: np.ndarray) -> np.ndarray:
    """Entropies, nats."""
    return (values >= -0.1) & (values <= np.log(VOCABULARY) + 0.1)  # rounding may pass both ends


def coin(values: np.ndarray) -> np.ndarray:
    """Uniform draws."""
    return (values >= 0) & (values < 1)


def probability(values: np.ndarray) -> np.ndarray:
    """Probabilities."""
    return (values >= 0) & (values <= 1.001)  # rounding may pass 1


def or_unknown(holds: Check) -> Check:
    """The same, and NaN for what is not known."""
    return lambda values: holds(values) | np.isnan(values)


def within(low: int, high: int) -> Check:
    """Whole numbers from `low` to `high`."""
    return lambda values: (values >= low) & (values <= high)
