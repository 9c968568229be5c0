"""Fixed settings of rules: ranges, and their form in a rule's name.

A rule with other settings than its defaults is a variant with its own name, 'vllm-thinking:k=5', which is valid
anywhere a rule's name is. Imports no rules.
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
    """A setting of a rule that does not move with the dial."""

    key: str  # key as typed: 'w'
    symbol: str  # as in its paper: 'W'
    name: str  # in words: 'window'
    low: float
    high: float
    default: float  # setting of the paper or engine
    meaning: str  # effect as a phrase: 'how many of the target's best tokens count'
    whole: bool = True  # True for a whole number

    @property
    def step(self) -> float:
        """Change per press of an arrow key."""
        return 1.0 if self.whole else 0.1

    def checked(self, value: float | None) -> float:
        """Return the value rounded as in names, an int for a count, or the default for None. Raises BadInput for a
        value that is out of range or no number."""
        value = self.default if value is None else value
        wanted = f"it must be a {'whole ' if self.whole else ''}number from {self.low:g} to {self.high:g}"
        if isinstance(value, bool) or not isinstance(value, Real):
            raise SettingError(f"{self.symbol} is {value!r}; {wanted}.")
        if not self.low <= value <= self.high or (self.whole and value != int(value)):  # NaN fails the first
            raise SettingError(f"{self.symbol} is {float(value):g}; {wanted}.")
        return int(value) if self.whole else float(self.written(value))

    def written(self, value: float) -> str:
        """Return the value as text for names and titles."""
        return f"{value:.6g}"

    def at(self, value: float) -> str:
        """Return a text such as 'k = 4'."""
        return f"{self.symbol} = {self.written(value)}"


def best_tokens(default: int) -> Fixed:
    """Return the setting k of a rule that looks at the target's k best tokens, at most as many as a recording keeps."""
    meaning = "how many of the target's best tokens can be kept; 1 is strict"
    return Fixed("k", "k", "best tokens", 1, CANDIDATES, default, meaning)


def values_in(text: str, owner: str, fixed: tuple[Fixed, ...], kind: str = "rule") -> dict[str, float]:
    """Return settings by key from the text after the colon of a variant's name, such as 'k=5'. `kind` names the owner's
    kind in messages. Raises BadInput with a remedy."""
    settings = {each.key: each for each in fixed}
    if not settings:
        raise SettingError(f"The {kind} {owner} has no settings other than its dial; leave out {':' + text!r}.")
    example = f"write {owner}:{fixed[0].key}={fixed[0].written(fixed[0].default)}"
    values: dict[str, float] = {}
    for part in text.split(","):
        pair = _WRITTEN.fullmatch(part.strip())
        if pair is None:
            raise SettingError(f"{shortened(part)} sets nothing of the {kind} {owner}; {example}, for instance.")
        key = pair[1].strip().lower()
        if key not in settings:
            raise SettingError(
                f"The {kind} {owner} has no setting {shortened(pair[1].strip())}; {example}, for instance."
            )
        each = settings[key]
        try:
            number = float(pair[2])
        except ValueError:
            wanted = f"write {owner}:{key}={each.written(each.default)}, for instance"
            raise SettingError(f"{each.symbol} is {pair[2].strip()!r}, which is no number; {wanted}.") from None
        value = each.checked(number)
        if values.setdefault(key, value) != value:
            raise SettingError(f"{each.symbol} is set twice in {text!r}, to different values; set it once.")
    return values
