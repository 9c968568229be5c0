"""Reads and writes the query parameters of pages.

A page's view is a frozen dataclass. The functions `text`, `number`, `whole`, `flag`, `one_of`, `said` and `part` create
its fields together with their encoding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, Generic, TypeVar

from mars_viz.components.explorer.pins import PinnedRun, PinnedSetting, PinnedToken
from mars_viz.dialmap import whole_threshold_map
from mars_viz.options import value_in
from mars_viz.rules import Rule, rule_named
from mars_viz.run import Run
from mars_viz.words import exactly, number_in, whole_in

V = TypeVar("V")

OVERLAYS = ("outcome", "ratio", "margin", "p", "entropy")  # token colourings, the default first
_READ, _WRITE = "read", "write"


@dataclass(frozen=True, slots=True)
class Opened(Generic[V]):
    """Result of reading a link."""

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


def said(
    name: str,
    read: Callable[[str], Any],
    write: Callable[[Any], str],
    default: Any = None,
    wrong: str = "cannot be used",
) -> Any:
    """Return a field with one parameter; see `value_in`."""
    return part(
        lambda parameters, complaints: value_in(parameters, name, read, complaints, wrong),
        lambda value: {name: write(value)},
        default=default,
    )


def text(name: str) -> Any:
    """Return a field for a name, which may not exist; empty by default."""
    return said(name, str, str, "")


def number(name: str, default: float | None = None, low: float = -math.inf, high: float = math.inf) -> Any:
    """Return a field for a finite number within these bounds."""

    def read(text: str) -> float | None:
        value = number_in(text)
        return value if value is not None and low <= value <= high else None

    bounds = "" if math.isinf(high) else f" from {low:g} to {high:g}"
    return said(name, read, exactly, default, f"is no number{bounds}")


def whole(name: str, below: int = 10**9, default: int | None = None) -> Any:
    """Return a field for a non-negative integer."""
    return said(name, lambda text: whole_in(text, below), str, default, "is no whole number")


def flag(name: str, on: str = "1") -> Any:
    """Return a field that is True if the parameter equals `on`."""
    return said(name, on.__eq__, lambda value: on, False)


def one_of(name: str, default: Any, texts: Collection[str] = ()) -> Any:
    """Return a field for one of these texts, or for a member of the default's Enum by its value."""
    values = {each: each for each in texts} or {each.value: each for each in type(default)}
    written = {value: each for each, value in values.items()}
    return said(name, values.get, written.__getitem__, default, f"is none of {', '.join(values)}")


def to_parameters(view: Any, **also: str) -> dict[str, str]:
    """Return the query parameters of a view and the extra ones in `also`, without defaults."""
    written = also
    for each in fields(view):
        value = getattr(view, each.name)
        if _WRITE in each.metadata and (each.default is MISSING or value != each.default):
            written |= each.metadata[_WRITE](value)
    return {name: text for name, text in written.items() if text}


def from_parameters(kind: type[V], parameters: Mapping[str, str]) -> Opened[V]:
    """Return the view of this class in a link. Invalid parts take their default and add a complaint."""
    complaints: list[str] = []
    values = {
        each.name: each.metadata[_READ](parameters, complaints)
        for each in fields(kind)  # type: ignore[arg-type]
        if _READ in each.metadata
    }
    view = kind(**{name: value for name, value in values.items() if value is not None})
    return Opened(view, tuple(complaints))


def _pin(name: str, kind: Any) -> Any:
    return said(name, kind.read, lambda pin: str(pin.key))


@dataclass(frozen=True, slots=True)
class View:
    """State of Explore."""

    run: str = text("run")  # id of the run; empty for the default run
    dial: float | None = number("dial")  # value of the dial; None for the run's own
    overlay: str = one_of("overlay", OVERLAYS[0], OVERLAYS)
    selected: int | None = whole("selected")
    gamma: int | None = whole("gamma")  # tokens per block, if the run has a dial map; None for the run's own
    cuts: bool = flag("cuts")  # True if the dial is a draft-length controller's threshold, on a run with a map of it
    pin_token: PinnedToken | None = _pin("pin_token", PinnedToken)  # token to compare with the selected one
    pin_dial: PinnedSetting | None = _pin("pin_dial", PinnedSetting)  # setting to compare with the current
    pin_run: PinnedRun | None = _pin("pin_run", PinnedRun)  # run shown next to this one


def misplaced(rule: Rule, dial: float | None, whose: str, instead: str) -> str:
    """Return a sentence if a rule has no such dial value, otherwise an empty text. `whose` names the rule, and
    `instead` describes the fallback."""
    if dial is None:
        return ""
    if rule.dial is None:
        return f"The link sets a dial, but {whose} has none."
    if rule.dial.low <= dial <= rule.dial.high:
        return ""
    bounds = f"{rule.dial.low:g} to {rule.dial.high:g}"
    return f"The link's {rule.dial.symbol} = {exactly(dial)} lies outside {bounds}, so {instead}."


def misplaced_on(run: Run, dial: float | None) -> str:
    """Return `misplaced` for the rule of a run."""
    rule = rule_named(run.settings.rule)
    whose = f"the rule of this run, {rule.title},"
    return misplaced(rule, dial, whose, "the run's own value is shown")


def fitted(view: View, run: Run) -> Opened[View]:
    """Return the view with invalid parts set to the default, and a complaint for each."""
    complaints: list[str] = []
    dial, selected, cuts, mapped = view.dial, view.selected, view.cuts, whole_threshold_map(run)
    if cuts and mapped is None:
        complaints.append("The link turns a controller's threshold, but this run has no whole map of one.")
        dial, cuts = None, False
    if cuts and mapped is not None and dial is not None and not mapped.span.low <= dial <= mapped.span.high:
        complaints.append(
            f"The link's {mapped.axis.symbol} = {exactly(dial)} lies outside {mapped.span.low:g} to "
            f"{mapped.span.high:g}, so drafts have full length."
        )
        dial = None
    if not cuts and (wrong := misplaced_on(run, dial)):
        complaints.append(wrong)
        dial = None
    gamma = view.gamma if view.gamma != run.settings.gamma else None
    if gamma is not None and (run.dial_map is None or gamma not in run.dial_map.span.gammas):
        complaints.append(
            f"The link asks for {run.settings.draft_of(gamma)}, which is not mapped for this run; its own is shown."
        )
        gamma = None
    slots = int(run.trace.lengths.sum()) + len(run.rounds)
    if selected is not None and selected >= slots and run.dial_map is None and not cuts:
        complaints.append(f"The link selects token {selected}, but this run has only {slots}.")
        selected = None
    token, setting = view.pin_token, view.pin_dial
    if setting is not None and (wrong := _unpinned(setting, run, cuts)):
        complaints.append(f"The pinned setting is none of this run's, so it is unpinned: {wrong}.")
        setting = None
    if token is not None:
        wrong = _unpinned(token.at, run, cuts)
        if not wrong and token.slot >= slots and run.dial_map is None and not cuts:
            wrong = f"it has only {slots}"
        if wrong:
            complaints.append(f"The pinned token is none of this run's, so it is unpinned: {wrong}.")
            token = None
    view = replace(view, dial=dial, selected=selected, gamma=gamma, cuts=cuts, pin_token=token, pin_dial=setting)
    return Opened(view, tuple(complaints))


def _unpinned(at: PinnedSetting, run: Run, cuts: bool) -> str:
    """Return why the run has no such setting, as half a sentence; empty if it has."""
    lengths = {run.settings.gamma} | (set() if cuts or run.dial_map is None else set(run.dial_map.span.gammas))
    if at.gamma not in lengths:
        return f"it has no rounds with {run.settings.draft_of(at.gamma)}"
    mapped, dial = whole_threshold_map(run), rule_named(run.settings.rule).dial
    symbol, bounds = "", None
    if cuts and mapped is not None:
        symbol, bounds = mapped.axis.symbol, (mapped.span.low, mapped.span.high)
    elif dial is not None:
        symbol, bounds = dial.symbol, (dial.low, dial.high)
    if at.dial is None:
        return "" if bounds is None else f"a value of {symbol} is missing"
    if bounds is None:
        return "its rule has no dial"
    low, high = bounds
    return "" if low <= at.dial <= high else f"{symbol} goes from {low:g} to {high:g}"
