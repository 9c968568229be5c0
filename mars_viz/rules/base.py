"""What a verification rule is: one dial, and a verdict per drafted token as the breakpoint at which it flips.

Knows speculations; knows no models, no files, no views. A rule is a small file beside this one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mars_viz.errors import BadInput
from mars_viz.records import Decision, Emission, Speculation, Verdicts


@dataclass(frozen=True, slots=True)
class Dial:
    """The one threshold of a rule."""

    symbol: str
    """As in its paper: θ."""
    name: str
    """In words: 'ratio threshold'."""
    low: float
    """Smallest value."""
    high: float
    """Largest value."""
    step: float
    """What an arrow key moves."""
    default: float
    """The paper's or engine's setting."""
    strict_is_high: bool
    """True where the rule gets stricter as the dial rises."""

    @property
    def strict(self) -> float:
        """The value at the strict end."""
        return self.high if self.strict_is_high else self.low

    def checked(self, value: float | None) -> float:
        """The value, or the default for None. Raises BadInput outside the range."""
        if value is None:
            return self.default
        if not self.low <= value <= self.high:  # NaN fails too
            raise BadInput(f"{self.symbol} is {value:g}; it must lie between {self.low:g} and {self.high:g}.")
        return float(value)


class Rule(ABC):
    """A verification rule: which drafted tokens are kept, and what is emitted where they stop."""

    name: ClassVar[str]
    """In the registry, on the command line, in run files."""
    title: ClassVar[str]
    """For people."""
    summary: ClassVar[str]
    """One plain sentence."""
    formula: ClassVar[str]
    """When a drafted token x is kept, in the catalogue's notation."""
    source: ClassVar[str]
    """Paper or file, and how well it was read."""
    lossless: ClassVar[bool] = False
    """True if the text keeps the target's law at every setting."""
    dial: ClassVar[Dial | None] = None
    """None for a rule without a threshold."""

    @abstractmethod
    def judge(self, speculation: Speculation) -> Verdicts:
        """The verdict on every node and the emission of every row, for all dial values at once."""

    def checked_dial(self, value: float | None) -> float | None:
        """The dial value to use. Raises BadInput where the rule has none or the value is out of range."""
        if self.dial is not None:
            return self.dial.checked(value)
        if value is not None:
            raise BadInput(f"The rule {self.name} has no dial; leave it out.")
        return None

    def _verdicts(
        self,
        speculation: Speculation,
        keep_strict: np.ndarray,
        relaxes: np.ndarray,
        breakpoints: np.ndarray,
        on_rejection: Emission,
    ) -> Verdicts:
        """Verdicts of a rule that keeps what its strict end keeps, and the nodes of `relaxes` up to a breakpoint."""
        flips = relaxes & ~keep_strict
        loose = keep_strict | flips
        strict_is_high = self.dial is None or self.dial.strict_is_high
        emits = emissions(speculation, on_rejection)
        return Verdicts(
            breakpoints=np.where(flips, breakpoints, np.nan),
            keep_below=loose if strict_is_high else keep_strict,
            keep_above=keep_strict if strict_is_high else loose,
            keep_strict=keep_strict,
            row_breakpoints=np.full(len(emits), np.nan),
            emit_below=emits,
            emit_above=emits,
        )


def emissions(speculation: Speculation, on_rejection: Emission) -> np.ndarray:
    """int32 [N + 1]; the token of each row: `on_rejection` where a drafted token is judged, else the bonus, from p."""
    judged = np.zeros(len(speculation) + 1, bool)
    judged[speculation.judging_rows] = True
    table = speculation.emissions
    return np.where(judged, table[:, on_rejection], table[:, Emission.SAMPLE]).astype(np.int32)


def settle(speculation: Speculation, verdicts: Verdicts, dial: float | None) -> Decision:
    """Walk down the kept nodes from the prefix, first kept sibling first, and stop where none is kept."""
    at = math.nan if dial is None else dial  # NaN compares false, and a rule without a dial has no breakpoints
    keeps, emits = verdicts.keeps(at), verdicts.emits(at)
    kept: list[int] = []
    row = 0
    while True:
        children = np.flatnonzero((speculation.judging_rows == row) & keeps)
        if not len(children):
            return Decision(tuple(kept), row, int(emits[row]))
        kept.append(int(children[0]))
        row = kept[-1] + 1
