"""Records that lie in columns, whose fields are cut out when they are first asked for.

A long run has a million of them, and who opens it looks at few. Knows frozen, slotted records; knows no columns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

Record = TypeVar("Record")
CUT = "_cut"
"""The slot that such a record has besides its fields: what gives the value of one of them by its name."""


def filled_in(fields: Collection[str]) -> Callable[[Any, str], Any]:
    """The `__getattr__` of a subclass with the slot `CUT`: Python calls it where the slot of a field is empty."""

    def fill_in(record: Any, name: str) -> Any:
        if name not in fields:
            raise AttributeError(f"{type(record).__name__!r} object has no attribute {name!r}")
        value = getattr(record, CUT)(name)
        object.__setattr__(record, name, value)
        return value

    return fill_in


def unfilled(kind: type[Record], cut: Callable[[str], Any]) -> Record:
    """A record of this kind, all of whose fields are yet to be asked for."""
    record = object.__new__(kind)
    object.__setattr__(record, CUT, cut)
    return record
