"""What a page looks at as query parameters, so that a link opens it again.

A page's view is a frozen dataclass whose fields say how a link writes them: `text`, `number`, `whole`, `flag`,
`chosen`, `said` for another kind, `part` for one that takes several parameters. One codec reads and writes all views.
Knows rules and runs; knows no Streamlit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from enum import Enum
from typing import Any, Generic, TypeVar

from mars_viz.components.explorer.pins import PinnedRun, PinnedSetting, PinnedToken
from mars_viz.errors import SettingError
from mars_viz.rules import Rule, rule_named
from mars_viz.run import Run
from mars_viz.run_with_map import whole_controller_map
from mars_viz.words import exactly, number_in, whole_in

V = TypeVar("V")

OVERLAYS = ("outcome", "ratio", "margin", "p", "entropy")
"""What the tokens can be coloured by, the default first."""
_LINK = "link"


@dataclass(frozen=True, slots=True)
class Opened(Generic[V]):
    """A link, read."""

    view: V
    """What of it can be shown."""
    complaints: tuple[str, ...] = ()
    """A sentence for each part that cannot."""


@dataclass(frozen=True, slots=True)
class InLink:
    """How a field of a view is written in a link."""

    read: Callable[[Mapping[str, str], list[str]], Any]
    """Its value, of all parameters; None for its default. What is wrong with them goes to the list of complaints."""
    write: Callable[[Any], Mapping[str, str]]
    """Its parameters, of a value that is not the default; empty ones are left out."""


def part(
    read: Callable[[Mapping[str, str], list[str]], Any], write: Callable[[Any], Mapping[str, str]], **how: Any
) -> Any:
    """A field of its own kind; `how` is for `dataclasses.field`."""
    return field(metadata={_LINK: InLink(read, write)}, **how)


def said(
    name: str, read: Callable[[str], Any], write: Callable[[Any], str], default: Any = None, wrong: str = ""
) -> Any:
    """A field that one parameter says. `read` gives None, or raises SettingError with a complaint, for what means
    nothing; `wrong` is then the complaint, with {} for what was said."""

    def found(parameters: Mapping[str, str], complaints: list[str]) -> Any:
        text = parameters.get(name, "")
        try:
            value = read(text) if text else None
        except SettingError as error:
            complaints.append(str(error))
            return None
        if text and value is None and wrong:
            complaints.append(wrong.format(f"“{clipped(text)}”"))
        return value

    return part(found, lambda value: {name: write(value)}, default=default)


def text(name: str) -> Any:
    """A field that is a name, which may be nobody's; empty where the link says none."""
    return said(name, str, str, "")


def number(name: str, wrong: str) -> Any:
    """A field that is a finite number, or None."""
    return said(name, number_in, exactly, None, wrong)


def whole(name: str, wrong: str, *, below: int = 10**9, default: int | None = None) -> Any:
    """A field that is a whole number from 0 on."""
    return said(name, lambda asked: whole_in(asked, below), str, default, wrong)


def flag(name: str, on: str = "1") -> Any:
    """A field that is True where the parameter says so."""
    return said(name, lambda asked: asked == on or None, lambda value: on, False)


def switch(name: str) -> Any:
    """A field that is True unless the parameter is 0."""
    return said(name, {"0": False, "1": True}.get, lambda value: str(int(value)), True)


def chosen(name: str, default: Enum, wrong: str) -> Any:
    """A field that is a member of an Enum, by its value."""
    known = {each.value: each for each in type(default)}
    return said(name, known.get, lambda value: str(value.value), default, wrong)


def to_parameters(view: Any, **also: str) -> dict[str, str]:
    """The query parameters of a view, beside others; what is at its default is left out."""
    written = also
    for each in fields(view):
        value = getattr(view, each.name)
        if _LINK in each.metadata and (each.default is MISSING or value != each.default):
            written |= each.metadata[_LINK].write(value)
    return {name: said for name, said in written.items() if said}


def from_parameters(kind: type[V], parameters: Mapping[str, str]) -> Opened[V]:
    """The view of this kind that a link asks for; parts that cannot be read take their default, with a complaint."""
    complaints: list[str] = []
    found = {
        each.name: each.metadata[_LINK].read(parameters, complaints)
        for each in fields(kind)  # type: ignore[arg-type]
        if _LINK in each.metadata
    }
    view = kind(**{name: value for name, value in found.items() if value is not None})
    return Opened(view, tuple(complaints))


def clipped(text: str, most: int = 20) -> str:
    """A parameter, short enough to be quoted."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _pin(name: str, kind: Any, what: str) -> Any:
    return said(
        name,
        kind.read,
        lambda pin: str(pin.key),
        None,
        f"The link's pinned {what} {{}} cannot be read, so none is pinned.",
    )


@dataclass(frozen=True, slots=True)
class View:
    """What is being looked at on Explore."""

    run: str = text("run")
    """Id of the run; empty for the first there is."""
    dial: float | None = number("dial", "The link's dial {} is no number, so it stands where the run was made.")
    """The dial's value; None for the run's own."""
    overlay: str = said(
        "overlay",
        lambda asked: asked if asked in OVERLAYS else None,
        str,
        OVERLAYS[0],
        f"There is no overlay {{}}; choose one of {', '.join(OVERLAYS)}.",
    )
    """One of `OVERLAYS`."""
    selected: int | None = whole("selected", "The link's token {} is no whole number, so no token is selected.")
    """The selected token; None for none."""
    gamma: int | None = whole("gamma", "The link's γ {} is no whole number, so the run's own is shown.")
    """Tokens per block, on a run with a dial map; None for the run's own."""
    cuts: bool = flag("cuts")
    """True where the dial is the threshold of a draft-length controller, on a run with a map of that."""
    pin_token: PinnedToken | None = _pin("pin_token", PinnedToken, "token")
    """The token that the selected one is held against; None for none."""
    pin_dial: PinnedSetting | None = _pin("pin_dial", PinnedSetting, "setting")
    """The setting that the one shown is held against; None for none."""
    pin_run: PinnedRun | None = _pin("pin_run", PinnedRun, "run")
    """The run that stands beside this one; None for none."""


def asks_for_a_view(parameters: Mapping[str, str]) -> bool:
    """True of a link to a view, wherever it points: Explore once was the page that the bare address opens."""
    return any(each.name in parameters for each in fields(View))


def misplaced(rule: Rule, dial: float | None, whose: str, instead: str) -> str:
    """Why a rule has no such value of its dial, as a sentence that says what is shown `instead`; empty where it has.
    `whose` names the rule."""
    if dial is None:
        return ""
    if rule.dial is None:
        return f"The link sets a dial, but {whose} has none."
    if rule.dial.low <= dial <= rule.dial.high:
        return ""
    bounds = f"{rule.dial.low:g} to {rule.dial.high:g}"
    return f"The link's {rule.dial.symbol} = {exactly(dial)} lies outside {bounds}, so {instead}."


def misplaced_on(run: Run, dial: float | None) -> str:
    """Likewise of the rule that a run was made with."""
    rule = rule_named(run.settings.rule)
    whose = f"the rule of this run, {rule.title},"
    return misplaced(rule, dial, whose, "the dial stands where the run was made")


def fitted(view: View, run: Run) -> Opened[View]:
    """The view with what this run does not have set back to the default, and a complaint for each."""
    complaints: list[str] = []
    dial, selected, cuts, made = view.dial, view.selected, view.cuts, whole_controller_map(run)
    if cuts and made is None:
        complaints.append("The link turns a controller's threshold, but this run has no whole map of one.")
        dial, cuts = None, False
    if cuts and made is not None and dial is not None and not made.span.low <= dial <= made.span.high:
        complaints.append(
            f"The link's {made.dial.symbol} = {exactly(dial)} lies outside {made.span.low:g} to {made.span.high:g}, so "
            "drafts have full length."
        )
        dial = None
    if not cuts and (wrong := misplaced_on(run, dial)):
        complaints.append(wrong)
        dial = None
    gamma = view.gamma if view.gamma != run.settings.gamma else None
    if gamma is not None and (run.dial_map is None or gamma not in run.dial_map.span.gammas):
        complaints.append(
            f"The link asks for {run.settings.draft_of(gamma)}, which nobody has mapped for this run; its own is shown."
        )
        gamma = None
    slots = int(run.trace.lengths.sum()) + len(run.rounds)
    if selected is not None and selected >= slots and run.dial_map is None and not cuts:
        complaints.append(f"The link selects token {selected}, but this run has only {slots}.")
        selected = None
    fitting = _fitted_pins(replace(view, dial=dial, selected=selected, gamma=gamma, cuts=cuts), run, slots)
    return Opened(fitting.view, (*complaints, *fitting.complaints))


def _fitted_pins(view: View, run: Run, slots: int) -> Opened[View]:
    """Without the pins of a token and of a setting that this run does not have, and a complaint for each; `slots` are
    those of its own rounds."""
    complaints: list[str] = []
    token, setting = view.pin_token, view.pin_dial
    if setting is not None and (wrong := _unpinned(setting, run, view.cuts)):
        complaints.append(f"The pinned setting is none of this run's, so it is unpinned: {wrong}.")
        setting = None
    if token is not None and (wrong := _unpinned(token.at, run, view.cuts)):
        complaints.append(f"The pinned token is none of this run's, so it is unpinned: {wrong}.")
        token = None
    if token is not None and token.slot >= slots and run.dial_map is None and not view.cuts:
        complaints.append(f"The pinned token is none of this run's, so it is unpinned: it has only {slots}.")
        token = None
    return Opened(replace(view, pin_token=token, pin_dial=setting), tuple(complaints))


def _unpinned(at: PinnedSetting, run: Run, cuts: bool) -> str:
    """Why a run has no such setting, as half a sentence; empty where it has."""
    lengths = {run.settings.gamma} | (set() if cuts or run.dial_map is None else set(run.dial_map.span.gammas))
    if at.gamma not in lengths:
        return f"it has no rounds with {run.settings.draft_of(at.gamma)}"
    made, dial = whole_controller_map(run), rule_named(run.settings.rule).dial
    symbol, bounds = "", None
    if cuts and made is not None:
        symbol, bounds = made.dial.symbol, (made.span.low, made.span.high)
    elif dial is not None:
        symbol, bounds = dial.symbol, (dial.low, dial.high)
    if at.dial is None:
        return "" if bounds is None else f"a value of {symbol} is missing"
    if bounds is None:
        return "its rule has no dial"
    low, high = bounds
    return "" if low <= at.dial <= high else f"{symbol} goes from {low:g} to {high:g}"
