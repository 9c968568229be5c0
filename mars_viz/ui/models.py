"""The one pair of models that a server holds, and which it is. Knows no torch: how to load a pair is an argument.

Only the worker's thread asks for a pair or drops it; anyone may read what is held.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

Pair = TypeVar("Pair")


@dataclass(frozen=True, slots=True)
class Choice:
    """A pair of models, and where and how they are to run."""

    target: str = ""
    """Hub id or folder; empty for the built-in one."""
    drafter: str = ""
    """Likewise."""
    device: str = "auto"
    """auto, cpu, cuda or mps."""
    dtype: str = "auto"
    """auto, float32, bfloat16 or float16."""


BUILT_IN = Choice()
"""The pair that comes with the product."""


class Models(Generic[Pair]):
    """Loads a pair when one is asked for, and keeps it until another is."""

    def __init__(self, load: Callable[[Choice], Pair]) -> None:
        """`load` makes the pair. It raises BadInput, with the remedy, where that cannot be."""
        self._load = load
        self._held: tuple[Choice, Pair] | None = None

    @property
    def choice(self) -> Choice | None:
        """What is held; None where nothing is."""
        held = self._held
        return None if held is None else held[0]

    def pair(self, choice: Choice = BUILT_IN) -> Pair:
        """The pair, loaded if it is not the one that is held."""
        if self._held is None or self._held[0] != choice:
            self._held = (choice, self._load(choice))
        return self._held[1]

    def drop(self) -> None:
        """Hold nothing."""
        self._held = None
