"""Names such as 'vllm-thinking:k=5': one registry and one parser for rules, controllers, shapes and drafters.

Each thing registers itself under a name, with the settings that may follow a colon: 'name:key=value,key=value'. Keys
ignore case, and spaces around keys and numbers are dropped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from mars_viz.bounds import LONGEST_TEXT, real, shortened, whole
from mars_viz.errors import SettingError


@dataclass(frozen=True, slots=True)
class Fixed:
    """A setting that is a number. One of a rule does not move with the dial."""

    key: str  # key as typed: 'w'
    symbol: str  # as in its paper: 'W'
    name: str  # in words: 'window'
    low: float
    high: float
    default: float  # setting of the paper or engine
    meaning: str  # effect as a phrase: 'how many of the target's best tokens count'
    whole: bool = True  # True for a whole number
    runs_on: ClassVar[bool] = False

    @property
    def step(self) -> float:
        return 1.0 if self.whole else 0.1

    @property
    def example(self) -> str:
        return self.written(self.default)

    def checked(self, value: float | str | None) -> float:
        """Return the value rounded as in names, an int for a count, or the default for None. Raises BadInput for a
        value that is out of range or no number."""
        value = self.default if value is None else value
        if not self.whole:
            return float(self.written(real(self.low, self.high).checked(value, self.symbol)))
        value = int(value) if isinstance(value, float) and value.is_integer() else value
        return whole(self.low, self.high).checked(value, self.symbol)

    def read(self, text: str) -> float:
        """Return the value of a text in a name. Raises BadInput as `checked`."""
        try:
            value: float | str = float(text)
        except ValueError:
            value = text.strip()
        return self.checked(value)

    def written(self, value: float) -> str:
        """Return the value as text for names and titles."""
        return f"{value:.6g}"

    def at(self, value: float) -> str:
        return f"{self.symbol} = {self.written(value)}"


@dataclass(frozen=True, slots=True)
class Words:
    """A setting that is a text."""

    key: str  # key as typed; empty if the value is the whole text after the colon
    example: str  # a valid value as typed; empty to keep it out of messages
    wanted: str = ""  # valid values as a phrase: 'draft-order or longest'
    convert: Callable[[str], Any] = str  # returns the value of a text; raises ValueError
    runs_on: bool = False  # True if commas belong to the value, which ends at the next such key or with the name

    def read(self, text: str) -> Any:
        """Return the value of a text in a name. Raises BadInput for an invalid one."""
        try:
            return self.convert(text)
        except ValueError:
            raise SettingError(
                f"{self.key or 'The value after the colon'} is {shortened(text.strip())}; it must be {self.wanted}."
            ) from None


Setting = Fixed | Words
T = TypeVar("T")


class Registry(dict[str, T], Generic[T]):
    """Things of one kind by name, in the order of lists."""

    def __init__(self, kind: str, settings: Callable[[T], Sequence[Setting]], also: Sequence[str] = ()) -> None:
        """`kind` names the things in messages. `settings` returns the settings that a thing's name may have. `also`
        lists further valid names, which the caller handles."""
        super().__init__()
        self.settings = settings
        self._kind, self._also = kind, also

    def register(self, name: str, thing: T) -> None:
        assert name not in self, name
        self[name] = thing

    def named(self, name: str) -> T:
        """Return the thing of a name without settings. Raises BadInput with the valid names."""
        if not isinstance(name, str) or name not in self:
            names = ", ".join((*self._also, *self))
            raise SettingError(f"There is no {self._kind} {shortened(name)}. Choose one of {names}.")
        return self[name]

    def parse(self, name: str) -> tuple[T, dict[str, Any]]:
        """Return the thing of a name, and by key the values of the settings in the name. Raises BadInput with the valid
        names or settings."""
        short = isinstance(name, str) and len(name) <= LONGEST_TEXT
        family, colon, text = name.partition(":") if short else (name, "", "")
        thing = self.named(family)
        known = {each.key: each for each in self.settings(thing)}
        if colon and not text.strip():
            raise SettingError(self._wrong(family, ":"))
        if "" in known:
            return thing, {"": known[""].read(text)} if colon else {}
        values: dict[str, Any] = {}
        for key, value in _pairs(text, [key for key in known if known[key].runs_on]):
            if value is None or key not in known:
                raise SettingError(self._wrong(family, key))
            read = known[key].read(value)
            if values.setdefault(key, read) != read:
                raise SettingError(f"{key} is set twice in {shortened(name)}, to different values; set it once.")
        return thing, values

    def _wrong(self, family: str, key: str) -> str:
        """Return a sentence about a setting that the thing does not have, with examples of those that it has."""
        known = [each for each in self.settings(self[family]) if each.example]
        examples = [f"{family}:{each.key}{'=' * bool(each.key)}{each.example}" for each in known]
        remedy = f"Write {' or '.join(examples)}, for instance." if examples else "Leave it out."
        return f"The {self._kind} {family} has no setting {shortened(key)}. {remedy}"


def _pairs(text: str, running_on: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Split 'key=value,key=value' into keys in lower case and values, None without '='. Drops empty parts."""
    while text:
        part, _, rest = text.partition(",")
        key = part.partition("=")[0].strip().lower()
        if key in running_on:
            later = "|".join(running_on[running_on.index(key) + 1 :]) or "$^"
            part, rest = (*re.split(rf",(?=\s*(?:{later})\s*=)", text, maxsplit=1, flags=re.IGNORECASE), "")[:2]
        if part.strip():
            _, equals, value = part.partition("=")
            yield key, value if equals else None
        text = rest
