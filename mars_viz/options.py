"""Options that are declared once, as fields of a dataclass, and read by files, forms, links and the command line."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from numbers import Integral
from typing import Any

from mars_viz.bounds import OPTION, Bounds
from mars_viz.words import exactly, number_in


@dataclass(frozen=True, slots=True)
class Option:
    """A setting that a user may choose: a number, one of `choices`, or a value that `parse` reads."""

    label: str = ""  # in forms and lists
    help: str = ""  # in forms and in --help
    bounds: Bounds | None = None  # numbers that files and the Python API may have
    kind: type = str  # int or float for numbers
    low: float = -math.inf  # least number that forms and links offer
    high: float = math.inf  # largest one
    step: float | None = None  # of a form's buttons; None for the usual one
    choices: tuple[str, ...] = ()
    parse: Callable[[str, Mapping[str, Any]], Any] | None = None
    """Returns the value of a text, given the options before it by name; None or BadInput for an unusable text."""
    write: Callable[[Any], str] = str  # returns the text of a value that is no number
    wrong: str = ""  # verb of the complaint about an unusable text; empty for the usual one
    example: str = ""  # a value as in a file
    usual: str = ""  # the default in words, for --help
    metavar: str | None = None  # placeholder of its value in --help
    link: str = ""  # name in links; empty for the field's
    law: bool = False  # True if it shapes the distribution that tokens are drawn from
    limited: bool = False  # True if a classroom may limit it
    name: str = ""  # the field's
    default: Any = None

    @property
    def flag(self) -> str:
        """Its name on the command line."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def refusal(self) -> str:
        """Verb of the complaint about an unusable text."""
        if self.wrong or self.parse is not None:
            return self.wrong or "cannot be used"
        if self.choices:
            return f"is none of {', '.join(self.choices)}"
        ends = "" if math.isinf(self.high) else f" from {self.written(self.low)} to {self.written(self.high)}"
        return f"is no {'whole ' * (self.kind is int)}number{ends}"

    def written(self, value: Any) -> str:
        """Return the shortest text that reads back as the value."""
        return exactly(value) if self.kind is float else self.write(value)

    def read(self, text: str, before: Mapping[str, Any] | None = None) -> Any:
        """Return the value of a text, or None if it is none that forms offer. Raises BadInput as `parse`."""
        if self.parse is not None:
            return self.parse(text, before or {})
        if self.choices:
            return text if text in self.choices else None
        if self.kind is str:
            return text
        value = number_in(text)
        if value is None or not self.low <= value <= self.high or value != self.kind(value):
            return None
        return self.kind(value)


def option(default: Any, label: str = "", about: str = "", bounds: Bounds | None = None, **how: Any) -> Any:
    """Return a dataclass field that declares an option; `how` has the other fields of `Option`. Forms and links offer
    the range of `bounds` unless `low` or `high` narrow it."""
    if bounds is not None:
        how = {"low": bounds.low, "high": bounds.high, "kind": int if bounds.kind is Integral else float} | how
    return field(default=default, metadata={OPTION: Option(label, about, bounds, **how)})


_found: dict[type, dict[str, Option]] = {}


def declared(kind: type) -> Mapping[str, Option]:
    """Return a dataclass's options by name, in the order of its fields."""
    if kind not in _found:
        made = [(each, each.metadata[OPTION]) for each in fields(kind) if OPTION in each.metadata]
        _found[kind] = {
            each.name: replace(its, name=each.name, link=its.link or each.name, default=each.default)
            for each, its in made
        }
    return _found[kind]


def options_of(kind: type) -> Mapping[str, Option]:
    """Return a dataclass's numbers by name, in the order of its fields."""
    return {name: each for name, each in declared(kind).items() if each.bounds is not None}


def normalize(record: Any) -> None:
    """Convert a frozen record's numbers to Python's types. Raises SettingError for one that is out of bounds."""
    for name, each in declared(type(record)).items():
        if each.bounds is not None:
            object.__setattr__(record, name, each.bounds.checked(getattr(record, name), name))


def changed(record: Any, base: Any = None) -> dict[str, Any]:
    """Return the options that differ from those of `base`, or from their defaults, by name."""
    values = {name: getattr(record, name) for name in declared(type(record))}
    return {
        name: value
        for name, value in values.items()
        if value != (declared(type(record))[name].default if base is None else getattr(base, name))
    }


def described(record: Any) -> dict[str, str]:
    """Return all numbers by label, as texts."""
    return {each.label: each.written(getattr(record, each.name)) for each in options_of(type(record)).values()}


def argument(parser: argparse.ArgumentParser, each: Option, **how: Any) -> None:
    """Add an option to a command, in which an empty text is None; `how` replaces arguments of `add_argument`."""
    about = f"{each.help} (default: {each.usual or each.written(each.default)})"
    usual: dict[str, Any] = {
        "type": each.kind,
        "default": None if each.default == "" else each.default,
        "metavar": each.metavar,
    }
    parser.add_argument(each.flag, **usual | {"help": about} | how)
