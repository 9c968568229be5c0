"""Pins of Explore (a setting, a token at a setting) and choices of a text, as written in links and by the browser."""

from __future__ import annotations

from dataclasses import dataclass

from mars_viz.words import exactly, number_in, whole_in

BETWEEN = "~"  # separates the parts of a pin in a link


@dataclass(frozen=True, slots=True)
class PinnedSetting:
    """A dial value and a draft length of one run."""

    dial: float | None  # the dial's value; None for a rule without a dial
    gamma: int

    @property
    def key(self) -> str:
        """The setting in a link: dial and γ, such as '0.85~6'."""
        return f"{'' if self.dial is None else exactly(self.dial)}{BETWEEN}{self.gamma}"

    @classmethod
    def read(cls, key: str) -> PinnedSetting | None:
        dial, _, gamma = key.partition(BETWEEN)
        value, length = number_in(dial), whole_in(gamma)
        return None if length is None or (dial and value is None) else cls(value, length)


@dataclass(frozen=True, slots=True)
class PinnedToken:
    slot: int  # slot among the rounds of its draft length; see `round_index`
    at: PinnedSetting  # the setting when the token was pinned

    @property
    def key(self) -> str:
        """The token in a link: the slot, then the setting."""
        return f"{self.slot}{BETWEEN}{self.at.key}"

    @classmethod
    def read(cls, key: str) -> PinnedToken | None:
        first, _, rest = key.partition(BETWEEN)
        slot, at = whole_in(first), PinnedSetting.read(rest)
        return None if slot is None or at is None else cls(slot, at)


@dataclass(frozen=True, slots=True)
class Choice:
    """A text: a run, at its own setting or another one of its dial map."""

    run: str  # the run's id
    dial: float | None = None  # value of the dial; None for the run's own
    gamma: int | None = None  # tokens per block; None for the run's own

    @property
    def key(self) -> str:
        """Text in a link: the id, and if the dial or γ is set, both after tildes."""
        if self.dial is None and self.gamma is None and BETWEEN not in self.run:
            return self.run
        dial = "" if self.dial is None else exactly(self.dial)
        return BETWEEN.join((self.run, dial, "" if self.gamma is None else str(self.gamma)))

    @classmethod
    def read(cls, key: str) -> Choice | None:
        run, *rest = key.rsplit(BETWEEN, 2)
        dial, gamma = rest if len(rest) == 2 else ("", "")
        value, length = number_in(dial), whole_in(gamma)
        if not run or len(rest) == 1 or (dial and value is None) or (gamma and length is None):
            return None
        return cls(run, value, length)
