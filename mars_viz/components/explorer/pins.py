"""What is pinned on Explore: a setting, a token at a setting, and a run, as a link and the browser write them.

Knows no Streamlit and no runs."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from mars_viz.words import exactly, number_in, whole_in

BETWEEN = "~"
"""Parts of a pin in a link."""


@dataclass(frozen=True, slots=True)
class PinnedSetting:
    """A dial value and a draft length of one run."""

    dial: float | None
    """The dial's value; None for a rule without one."""
    gamma: int
    """Tokens per block."""

    @property
    def key(self) -> str:
        """In a link: dial and γ.

        >>> PinnedSetting(0.85, 6).key
        '0.85~6'
        """
        return f"{'' if self.dial is None else exactly(self.dial)}{BETWEEN}{self.gamma}"

    @classmethod
    def read(cls, key: str) -> PinnedSetting | None:
        """What a key says; None where it is none.

        >>> PinnedSetting.read("0.85~6")
        PinnedSetting(dial=0.85, gamma=6)
        """
        dial, between, gamma = key.partition(BETWEEN)
        value, length = number_in(dial), whole_in(gamma)
        if not between or length is None or (dial and value is None):
            return None
        return cls(value, length)

    @classmethod
    def told(cls, value: object, lengths: Collection[int]) -> PinnedSetting | None:
        """What the browser says, of these draft lengths; None for anything else."""
        if not isinstance(value, Mapping) or not _counts(gamma := value.get("gamma")) or gamma not in lengths:
            return None
        dial = value.get("dial")
        if dial is None:
            return cls(None, gamma)
        number = isinstance(dial, int | float) and not isinstance(dial, bool) and math.isfinite(dial)
        return cls(float(dial), gamma) if number else None


@dataclass(frozen=True, slots=True)
class PinnedToken:
    """A token of one run at a setting."""

    slot: int
    """Among the rounds of that draft length; see `locate`."""
    at: PinnedSetting
    """What the dials said when it was pinned."""

    @property
    def key(self) -> str:
        """In a link: the slot, then the setting."""
        return f"{self.slot}{BETWEEN}{self.at.key}"

    @classmethod
    def read(cls, key: str) -> PinnedToken | None:
        """What a key says; None where it is none."""
        first, _, rest = key.partition(BETWEEN)
        slot, at = whole_in(first), PinnedSetting.read(rest)
        return None if slot is None or at is None else cls(slot, at)

    @classmethod
    def told(cls, value: object, lengths: Collection[int]) -> PinnedToken | None:
        """What the browser says, of these draft lengths; None for anything else."""
        at = PinnedSetting.told(value, lengths)
        slot = value.get("slot") if isinstance(value, Mapping) else None
        return cls(slot, at) if at is not None and _counts(slot) else None


@dataclass(frozen=True, slots=True)
class Pins:
    """What is pinned in one explorer."""

    token: PinnedToken | None = None
    """None where no token is."""
    setting: PinnedSetting | None = None
    """None where no setting is."""

    @property
    def gammas(self) -> frozenset[int]:
        """Draft lengths whose rounds the browser needs to show what is pinned."""
        pinned = (self.setting, None if self.token is None else self.token.at)
        return frozenset(each.gamma for each in pinned if each is not None)

    @classmethod
    def told(cls, value: object, lengths: Collection[int]) -> Pins:
        """What the browser says, of these draft lengths."""
        found: Mapping[str, Any] = value if isinstance(value, Mapping) else {}
        return cls(PinnedToken.told(found.get("token"), lengths), PinnedSetting.told(found.get("setting"), lengths))

    def sent(self) -> dict[str, Any]:
        """As the browser reads it."""
        at = self.setting
        token = self.token
        return {
            "token": token and {"slot": token.slot, "dial": token.at.dial, "gamma": token.at.gamma},
            "setting": at and {"dial": at.dial, "gamma": at.gamma},
        }


@dataclass(frozen=True, slots=True)
class PinnedRun:
    """A run that stands beside the one that is looked at, with its own dials."""

    run: str
    """Its id."""
    dial: float | None = None
    """The dial's value; None for the run's own."""
    gamma: int | None = None
    """Tokens per block; None for the run's own."""

    @property
    def key(self) -> str:
        """In a link: the id, then dial and γ, empty where they are the run's own."""
        dial = "" if self.dial is None else exactly(self.dial)
        return BETWEEN.join((self.run, dial, "" if self.gamma is None else str(self.gamma)))

    @classmethod
    def read(cls, key: str) -> PinnedRun | None:
        """What a key says; None where it is none."""
        run, *rest = key.rsplit(BETWEEN, 2)
        dial, gamma = rest if len(rest) == 2 else ("", "")
        value, length = number_in(dial), whole_in(gamma)
        if not run or len(rest) == 1 or (dial and value is None) or (gamma and length is None):
            return None
        return cls(run, value, length)


def _counts(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
