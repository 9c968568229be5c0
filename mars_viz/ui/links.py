"""A view as query parameters, so that a link opens it again. Knows views and rules; knows no Streamlit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from mars_viz.figures.words import exactly
from mars_viz.rules import rule_named
from mars_viz.run import Run

OVERLAYS = ("outcome", "ratio", "margin", "p", "entropy")
"""What the tokens can be coloured by, the default first."""


PARAMETERS = ("run", "dial", "overlay", "selected", "gamma")
"""What a view's link may say."""


@dataclass(frozen=True, slots=True)
class View:
    """What is being looked at."""

    run: str = ""
    """Id of the run; empty for the first there is."""
    dial: float | None = None
    """The dial's value; None for the run's own."""
    overlay: str = OVERLAYS[0]
    """One of `OVERLAYS`."""
    selected: int | None = None
    """The selected token; None for none."""
    gamma: int | None = None
    """Tokens per block, on a run with a dial map; None for the run's own."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A link, read."""

    view: View
    """What of it can be shown."""
    complaints: tuple[str, ...] = ()
    """A sentence for each part that cannot."""


def to_parameters(view: View) -> dict[str, str]:
    """The query parameters of a view; what is at its default is left out."""
    written = {"run": view.run, "dial": "" if view.dial is None else exactly(view.dial)}
    written["overlay"] = "" if view.overlay == OVERLAYS[0] else view.overlay
    written["selected"] = "" if view.selected is None else str(view.selected)
    written["gamma"] = "" if view.gamma is None else str(view.gamma)
    return {name: text for name, text in written.items() if text}


def asks_for_a_view(parameters: Mapping[str, str]) -> bool:
    """True of a link to a view, wherever it points: Explore once was the page that the bare address opens."""
    return any(name in parameters for name in PARAMETERS)


def from_parameters(parameters: Mapping[str, str]) -> Opened:
    """The view that a link asks for; parts that cannot be read take their default, with a complaint."""
    complaints: list[str] = []
    dial, selected, overlay = (parameters.get(name, "") for name in ("dial", "selected", "overlay"))
    value = number_in(dial)
    if dial and value is None:
        complaints.append(f"The link's dial “{clipped(dial)}” is no number, so it stands where the run was made.")
    if selected and not _index(selected):
        complaints.append(f"The link's token “{clipped(selected)}” is no whole number, so no token is selected.")
    if overlay and overlay not in OVERLAYS:
        complaints.append(f"There is no overlay “{clipped(overlay)}”; choose one of {', '.join(OVERLAYS)}.")
        overlay = ""
    gamma = parameters.get("gamma", "")
    if gamma and not _index(gamma):
        complaints.append(f"The link's γ “{clipped(gamma)}” is no whole number, so the run's own is shown.")
    view = View(
        gamma=int(gamma) if _index(gamma) else None,
        run=parameters.get("run", ""),
        dial=value,
        overlay=overlay or OVERLAYS[0],
        selected=int(selected) if _index(selected) else None,
    )
    return Opened(view, tuple(complaints))


def fitted(view: View, run: Run) -> Opened:
    """The view with what this run does not have set back to the default, and a complaint for each."""
    complaints: list[str] = []
    dial, selected = view.dial, view.selected
    rule = rule_named(run.settings.rule)
    if dial is not None and rule.dial is None:
        complaints.append(f"The link sets a dial, but the rule of this run, {rule.title}, has none.")
        dial = None
    elif dial is not None and rule.dial is not None and not rule.dial.low <= dial <= rule.dial.high:
        complaints.append(
            f"The link's {rule.dial.symbol} = {exactly(dial)} lies outside {rule.dial.low:g} to {rule.dial.high:g}, "
            "so the dial stands where the run was made."
        )
        dial = None
    gamma = view.gamma if view.gamma != run.settings.gamma else None
    if gamma is not None and (run.dial_map is None or gamma not in run.dial_map.span.gammas):
        complaints.append(f"The link asks for γ = {gamma}, which nobody has mapped for this run; its own is shown.")
        gamma = None
    slots = int(run.trace.lengths.sum()) + len(run.rounds)
    if selected is not None and selected >= slots and run.dial_map is None:
        complaints.append(f"The link selects token {selected}, but this run has only {slots}.")
        selected = None
    return Opened(View(view.run, dial, view.overlay, selected, gamma), tuple(complaints))


def number_in(text: str) -> float | None:
    """The finite number that a parameter says, or None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _index(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def clipped(text: str) -> str:
    """A parameter, short enough to be quoted."""
    return text if len(text) <= 20 else text[:19] + "…"
