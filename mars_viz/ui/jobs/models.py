"""The one pair of models that a server holds, and which it is. Knows no torch: how to load a pair is an argument.

Only the worker's thread asks for a pair or drops it; anyone may read what is held and what is being loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from mars_viz.costs import Costs
from mars_viz.errors import MarsVizError, TooLarge

Pair = TypeVar("Pair")
Tell = Callable[[str, float], None]
"""Hears what is being done, and how far it is from 0 to 1."""


class Interrupted(MarsVizError):
    """Nobody wants the models any more that are being loaded."""


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
RECENT = 6
"""Choices that are remembered."""


@dataclass(frozen=True, slots=True)
class Device:
    """What the pair that is held runs on."""

    name: str
    """In words."""
    dtype: str
    """Weights and arithmetic."""
    used: int | None = None
    """Bytes that this process holds there; None where nobody says."""
    free: int | None = None
    """Bytes that can still be had."""


@dataclass(frozen=True, slots=True)
class Status:
    """What is held and what is going on, at one moment."""

    choice: Choice | None = None
    """The pair that is held; None where none is."""
    device: Device | None = None
    """Where it runs; None where that is not known."""
    doing: str = ""
    """What of a loading is under way; empty where nothing is loaded."""
    share: float = 0.0
    """How far that is, from 0 to 1."""
    costs: Costs | None = None
    """What a pass costs with this pair, once it was measured."""


class Models(Generic[Pair]):
    """Loads a pair when one is asked for, and keeps it until another is, or nobody needs it."""

    def __init__(
        self,
        load: Callable[[Choice, Tell], Pair],
        look: Callable[[Pair], Device | None] = lambda pair: None,
        release: Callable[[], None] = lambda: None,
    ) -> None:
        """`load` makes the pair, and raises BadInput with the remedy where that cannot be; `look` says what it runs on;
        `release` gives memory back after a pair was dropped."""
        self._load, self._look, self._release = load, look, release
        self._pair: Pair | None = None
        self._status = Status()
        self.recent: tuple[Choice, ...] = ()
        """What was loaded, the latest first; a few."""

    @property
    def status(self) -> Status:
        """The latest snapshot."""
        return self._status

    def pair(self, choice: Choice = BUILT_IN, stopping: Callable[[], bool] = lambda: False) -> Pair:
        """The pair, loaded if it is not the one that is held.

        Where both do not fit, the old one goes first, but only if the new one fits then; else it stays, as after any
        other failure. Raises what loading raises, and Interrupted where `stopping` says so.
        """
        if self._pair is not None and self._status.choice == choice:
            return self._pair

        def tell(doing: str, share: float) -> None:
            if stopping():
                raise Interrupted("The loading was stopped.")
            self._status = replace(self._status, doing=doing, share=share)

        try:
            try:
                made = self._load(choice, tell)
            except TooLarge as error:
                used = (self._status.device.used or 0) if self._status.device else 0
                if self._pair is None or error.need > error.free + used:
                    raise
                self.drop()
                made = self._load(choice, tell)
            device = self._look(made)  # may raise: until then the old pair is held
            self._pair, self._status = made, Status(choice, device)
            self.recent = (choice, *(other for other in self.recent if other != choice))[:RECENT]
        finally:
            self._status = replace(self._status, doing="", share=0.0)
        self._release()
        return made

    def look(self) -> None:
        """See anew how much memory is in use."""
        if self._pair is not None:
            self._status = replace(self._status, device=self._look(self._pair))

    def measured(self, costs: Costs) -> None:
        """Remember what a pass of the pair costs, for as long as it is held."""
        self._status = replace(self._status, costs=costs)

    def drop(self) -> None:
        """Hold nothing."""
        self._pair = None
        self._status = Status(doing=self._status.doing, share=self._status.share)
        self._release()
