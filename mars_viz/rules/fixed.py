"""Settings of rules besides their dials: what they are, what they may be, and how a rule's name says them.

A rule with other settings than its own is a variant with a name of its own, 'vllm-thinking:k=5', which goes wherever a
rule's name goes. Knows names and numbers; knows no rules.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from numbers import Real

from mars_viz.bounds import shortened
from mars_viz.errors import SettingError
from mars_viz.records import CANDIDATES

_WRITTEN = re.compile(r"([^=,]+)=([^=,]+)")


@dataclass(frozen=True, slots=True)
class Fixed:
    """A setting of a rule that stays as it is while the dial moves."""

    key: str
    """As it is typed: 'w'."""
    symbol: str
    """As in its paper: 'W'."""
    name: str
    """In words: 'window'."""
    low: float
    """Smallest value."""
    high: float
    """Largest value."""
    default: float
    """The paper's or engine's."""
    meaning: str
    """What it does, as a phrase: 'how many of the target's best tokens count'."""
    whole: bool = True
    """True if it counts something."""

    @property
    def step(self) -> float:
        """What an arrow key moves."""
        return 1.0 if self.whole else 0.1

    def checked(self, value: float | None) -> float:
        """The value as it is written, an int where it counts, or the default for None.

        Raises BadInput for what it cannot be.
        """
        value = self.default if value is None else value
        wanted = f"it must be a {'whole ' if self.whole else ''}number from {self.low:g} to {self.high:g}"
        if isinstance(value, bool) or not isinstance(value, Real):
            raise SettingError(f"{self.symbol} is {value!r}; {wanted}.")
        if not self.low <= value <= self.high or (self.whole and value != int(value)):  # NaN fails the first
            raise SettingError(f"{self.symbol} is {float(value):g}; {wanted}.")
        return int(value) if self.whole else float(self.written(value))

    def written(self, value: float) -> str:
        """The value in names and titles."""
        return f"{value:.6g}"

    def at(self, value: float) -> str:
        """'k = 4'."""
        return f"{self.symbol} = {self.written(value)}"


def best_tokens(default: int) -> Fixed:
    """k, of a rule that looks at the target's best tokens: at no more of them than a recording holds."""
    meaning = "how many of the target's best tokens can be kept; 1 is strict"
    return Fixed("k", "k", "best tokens", 1, CANDIDATES, default, meaning)


def values_in(text: str, owner: str, fixed: tuple[Fixed, ...], kind: str = "rule") -> dict[str, float]:
    """Settings by key, of what stands after the colon of a variant's name: 'k=5'; of a rule or what `kind` says.

    Raises BadInput with the remedy.
    """
    known = {each.key: each for each in fixed}
    if not known:
        raise SettingError(f"The {kind} {owner} has no settings besides its dial; leave out {':' + text!r}.")
    example = f"write {owner}:{fixed[0].key}={fixed[0].written(fixed[0].default)}"
    found: dict[str, float] = {}
    for part in text.split(","):
        written = _WRITTEN.fullmatch(part.strip())
        if written is None:
            raise SettingError(f"{shortened(part)} sets nothing of the {kind} {owner}; {example}, for instance.")
        key = written[1].strip().lower()
        if key not in known:
            raise SettingError(
                f"The {kind} {owner} has no setting {shortened(written[1].strip())}; {example}, for instance."
            )
        value = known[key].checked(_number(written[2], known[key], owner))
        if found.setdefault(key, value) != value:
            raise SettingError(f"{known[key].symbol} is set twice in {text!r}, to different values; set it once.")
    return found


def _number(text: str, setting: Fixed, owner: str) -> float:
    try:
        return float(text)
    except ValueError:
        wanted = f"{owner}:{setting.key}={setting.written(setting.default)}"
        raise SettingError(
            f"{setting.symbol} is {text.strip()!r}, which is no number; write {wanted}, for instance."
        ) from None
