"""Reads and writes the query parameters of pages.

A page's view is a frozen dataclass. The functions `text`, `number`, `whole`, `flag`, `one_of`, `pin`, `parameter` and
`part` create its fields together with their encoding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, Generic, TypeVar

from mars_viz.components.explorer.pins import PinnedSetting, PinnedToken
from mars_viz.errors import BadInput
from mars_viz.exploration import whole_threshold_map
from mars_viz.options import changed, declared, option
from mars_viz.rules import rule_named
from mars_viz.run import Run
from mars_viz.words import clipped, exactly, whole_in

V = TypeVar("V")

OVERLAYS = ("outcome", "ratio", "margin", "p", "entropy", "drafter")  # token colourings, the default first
_READ, _WRITE = "read", "write"


@dataclass(frozen=True, slots=True)
class Opened(Generic[V]):
    view: V  # the valid part of the view
    complaints: tuple[str, ...] = ()  # a sentence for each invalid part


def part(
    read: Callable[[Mapping[str, str], list[str]], Any], write: Callable[[Any], Mapping[str, str]], **how: Any
) -> Any:
    """Return a dataclass field with custom encoding; `how` is passed to `dataclasses.field`.

    `read` returns the value from all parameters, or None for the default, and appends complaints to the list. `write`
    returns the parameters of a value that is not the default; empty ones are left out.
    """
    return field(metadata={_READ: read, _WRITE: write}, **how)


def parameter(
    name: str, read: Callable[[str], Any], write: Callable[[Any], str], default: Any = None, wrong: str = ""
) -> Any:
    """Return a field with one parameter. For an unusable text, `read` returns None or raises BadInput; `wrong` is the
    verb of the complaint."""
    return option(default, parse=lambda text, before: read(text), write=write, wrong=wrong, link=name)


def text(name: str) -> Any:
    """Return a field for a name, which may not exist; empty by default."""
    return parameter(name, str, str, "")


def number(name: str) -> Any:
    """Return a field for a finite number; None by default."""
    return option(None, kind=float, link=name)


def whole(name: str, below: int = 10**9) -> Any:
    """Return a field for a non-negative integer; None by default."""
    return parameter(name, lambda text: whole_in(text, below), str, wrong="is no whole number")


def flag(name: str, on: str = "1") -> Any:
    """Return a field that is True if the parameter equals `on`."""
    return parameter(name, on.__eq__, lambda value: on, False)


def one_of(name: str, default: Any, texts: Collection[str] = ()) -> Any:
    """Return a field for one of these texts, or for a member of the default's Enum by its value."""
    values = {each: each for each in texts} or {each.value: each for each in type(default)}
    written = {value: each for each, value in values.items()}
    return parameter(name, values.get, written.__getitem__, default, f"is none of {', '.join(values)}")


def written(kind: type, values: Mapping[str, Any]) -> dict[str, str]:
    return {declared(kind)[name].link: declared(kind)[name].written(value) for name, value in values.items()}


def values_in(kind: type, parameters: Mapping[str, str], complaints: list[str]) -> dict[str, Any]:
    """Return the options of a dataclass in a link by name. Unusable ones are left out, with a sentence each in
    `complaints`."""
    values = dict[str, Any]()
    for name, each in declared(kind).items():
        text, why, value = parameters.get(each.link, ""), "", None
        try:
            value = each.read(text, values) if text else None
        except BadInput as error:
            why = f" {error}"
        if value is not None:
            values[name] = value
        elif text:
            complaints.append(f"The link's {each.link} “{clipped(text)}” {each.refusal}, so it is left out.{why}")
    return values


def to_parameters(view: Any, **also: str) -> dict[str, str]:
    """Return the query parameters of a view and the extra ones in `also`, without defaults."""
    parameters = also | written(type(view), changed(view))
    for each in fields(view):
        value = getattr(view, each.name)
        if _WRITE in each.metadata and (each.default is MISSING or value != each.default):
            parameters |= each.metadata[_WRITE](value)
    return {name: text for name, text in parameters.items() if text}


def from_parameters(kind: type[V], parameters: Mapping[str, str]) -> Opened[V]:
    """Return the view of this class in a link. Invalid parts take their default and add a complaint."""
    complaints: list[str] = []
    values = values_in(kind, parameters, complaints)
    for each in fields(kind):  # type: ignore[arg-type]
        if _READ in each.metadata and (value := each.metadata[_READ](parameters, complaints)) is not None:
            values[each.name] = value
    return Opened(kind(**values), tuple(complaints))


def pin(name: str, kind: Any) -> Any:
    """Return a field for a class that `read` parses and `key` writes; None by default."""
    return parameter(name, kind.read, lambda pin: str(pin.key))


@dataclass(frozen=True, slots=True)
class View:
    run: str = text("run")  # id of the run; empty for the default run
    dial: float | None = number("dial")  # value of the dial; None for the run's own
    overlay: str = one_of("overlay", OVERLAYS[0], OVERLAYS)
    selected: int | None = whole("selected")
    gamma: int | None = whole("gamma")  # tokens per block, if the run has a dial map; None for the run's own
    cuts: bool = flag("cuts")  # True if the dial is a draft-length controller's threshold, on a run with a map of it
    pin_token: PinnedToken | None = pin("pin_token", PinnedToken)  # token to compare with the selected one
    pin_dial: PinnedSetting | None = pin("pin_dial", PinnedSetting)  # setting to compare with the current


DialRange = tuple[str, float, float]  # a dial's symbol and bounds


def dial_range(run: Run, cuts: bool = False) -> DialRange | None:
    """Return the dial of a run: its rule's, or with `cuts` the threshold of its map. None if there is none."""
    mapped, dial = whole_threshold_map(run), rule_named(run.settings.rule).dial
    if cuts and mapped is not None:
        return mapped.axis.symbol, mapped.span.low, mapped.span.high
    return None if dial is None else (dial.symbol, dial.low, dial.high)


def misplaced(dial: float | None, bounds: DialRange | None) -> str:
    """Return a sentence if a link's dial value is out of bounds, otherwise an empty text."""
    if dial is None:
        return ""
    if bounds is None:
        return "The link sets a dial, but the rule has none."
    symbol, low, high = bounds
    if low <= dial <= high:
        return ""
    return f"The link's {symbol} = {exactly(dial)} lies outside {low:g} to {high:g}, so it is left out."


def fitted(view: View, run: Run) -> Opened[View]:
    """Return the view with invalid parts set to the default, and a complaint for each."""
    wrong: list[str] = []
    if view.cuts and whole_threshold_map(run) is None:
        view, wrong = replace(view, dial=None, cuts=False), ["cuts"]
    gammas = () if run.dial_map is None else run.dial_map.span.gammas
    slots = math.inf if run.dial_map is not None or view.cuts else int(run.trace.lengths.sum()) + len(run.rounds)
    bounds, own = dial_range(run, view.cuts), run.settings.gamma
    lengths = {own} if view.cuts else {own, *gammas}

    def has(at: PinnedSetting) -> bool:
        on_dial = at.dial is None if bounds is None else at.dial is not None and bounds[1] <= at.dial <= bounds[2]
        return at.gamma in lengths and on_dial

    setting, token, off_dial = view.pin_dial, view.pin_token, misplaced(view.dial, bounds)
    unfit = {
        "gamma": view.gamma not in (None, own, *gammas),
        "selected": view.selected is not None and view.selected >= slots,
        "pin_dial": setting is not None and not has(setting),
        "pin_token": token is not None and not (has(token.at) and token.slot < slots),
    }
    wrong += [name for name, is_wrong in unfit.items() if is_wrong]
    complaints = [f"The link's {name} does not fit this run, so it is left out." for name in wrong]
    kept: dict[str, Any] = {name: None if name in wrong else getattr(view, name) for name in unfit}
    kept |= {"dial": None if off_dial else view.dial, "gamma": None if view.gamma == own else kept["gamma"]}
    return Opened(replace(view, **kept), tuple(filter(None, [off_dial, *complaints])))
