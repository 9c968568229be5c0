"""Options that are declared once, as fields of a dataclass, and read by files, forms, links and the command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from numbers import Integral
from typing import Any

from mars_viz.bounds import OPTION, Bounds, shortened
from mars_viz.errors import BadInput, SettingError
from mars_viz.words import exactly, number_in


@dataclass(frozen=True, slots=True)
class Option:
    """A number that a user may set."""

    label: str  # in forms and lists
    help: str  # in forms and in --help
    bounds: Bounds  # numbers that files and the Python API may have
    low: float  # least number that forms and links offer
    high: float  # largest one
    step: float | None = None  # of a form's buttons; None for the usual one
    link: str = ""  # name in links; empty for the field's
    law: bool = False  # True if it shapes the distribution that tokens are drawn from
    name: str = ""  # the field's
    default: Any = None

    @property
    def whole(self) -> bool:
        """True for integers."""
        return self.bounds.kind is Integral

    @property
    def flag(self) -> str:
        """Its name on the command line."""
        return f"--{self.name.replace('_', '-')}"

    def written(self, value: float) -> str:
        """Return the shortest text that reads back as the value."""
        return str(value) if self.whole else exactly(value)

    def read(self, text: str) -> float | None:
        """Return the number in a text, or None if it is none that forms offer."""
        value = number_in(text)
        if value is None or not self.low <= value <= self.high or (self.whole and value != int(value)):
            return None
        return int(value) if self.whole else value


def option(default: float, label: str, about: str, bounds: Bounds, **how: Any) -> Any:
    """Return a dataclass field that declares an option; `how` has the other fields of `Option`. Forms and links offer
    the range of `bounds` unless `low` or `high` narrow it."""
    how = {"low": bounds.low, "high": bounds.high} | how
    return field(default=default, metadata={OPTION: Option(label, about, bounds, **how)})


_found: dict[type, dict[str, Option]] = {}


def options_of(kind: type) -> Mapping[str, Option]:
    """Return a dataclass's options by name, in the order of its fields."""
    if kind not in _found:
        declared = [(each, each.metadata[OPTION]) for each in fields(kind) if OPTION in each.metadata]
        _found[kind] = {
            each.name: replace(made, name=each.name, link=made.link or each.name, default=each.default)
            for each, made in declared
        }
    return _found[kind]


def normalize(record: Any) -> None:
    """Convert a frozen record's numbers to Python's types. Raises SettingError for one that is out of bounds."""
    for name, each in options_of(type(record)).items():
        value = getattr(record, name)
        if not each.bounds.holds(value):
            raise SettingError(f"{name} is {shortened(value)}; it must be {each.bounds.words}.")
        object.__setattr__(record, name, each.bounds.plain(value))


def changed(record: Any) -> dict[str, float]:
    """Return the options that differ from their defaults, by name."""
    values = {name: getattr(record, name) for name in options_of(type(record))}
    return {name: value for name, value in values.items() if value != options_of(type(record))[name].default}


def described(record: Any) -> dict[str, str]:
    """Return all options by label, as texts."""
    return {each.label: each.written(getattr(record, each.name)) for each in options_of(type(record)).values()}


def argument(parser: argparse.ArgumentParser, each: Option, **how: Any) -> None:
    """Add an option to a command; `how` replaces arguments of `add_argument`."""
    usual = {"default": each.default, "help": f"{each.help} (default: {each.written(each.default)})"}
    parser.add_argument(each.flag, type=int if each.whole else float, **usual | how)


def from_link(kind: type, parameters: Mapping[str, str], complaints: list[str]) -> dict[str, float]:
    """Return the options in a link by name. Unusable ones are left out, with a sentence each in `complaints`."""
    values = {}
    for name, each in options_of(kind).items():
        wanted = f"is no {'whole ' * each.whole}number from {each.written(each.low)} to {each.written(each.high)}"
        value = value_in(parameters, each.link, each.read, complaints, wanted)
        if value is not None:
            values[name] = value
    return values


def value_in(
    parameters: Mapping[str, str],
    name: str,
    read: Callable[[str], Any],
    complaints: list[str],
    wrong: str = "cannot be used",
) -> Any:
    """Return the value of a link's parameter; None if it is missing or unusable. For an unusable text, `read` returns
    None or raises BadInput, and a sentence is added to `complaints`; `wrong` is its verb."""
    text, why = parameters.get(name, ""), ""
    if not text:
        return None
    try:
        value = read(text)
    except BadInput as error:
        value, why = None, f" {error}"
    if value is None:
        complaints.append(f"The link's {name} “{clipped(text)}” {wrong}, so it is left out.{why}")
    return value


def clipped(text: str, most: int = 20) -> str:
    """Shorten a text for quotation."""
    return text if len(text) <= most else text[: most - 1] + "…"


def to_link(record: Any) -> dict[str, str]:
    """Return a link's parameters for the options that differ from their defaults."""
    kinds = options_of(type(record))
    return {kinds[name].link: kinds[name].written(value) for name, value in changed(record).items()}
