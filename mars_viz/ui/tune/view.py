"""What the Tune page looks at, as query parameters, so that a link opens it again. Knows no Streamlit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from mars_viz.figures.words import exactly
from mars_viz.sweep import Plan
from mars_viz.ui.links import clipped, number_in

POINTS, CONFIDENCE = 1.0, 0.95
LEAST_POINTS, MOST_CONFIDENCE = 0.001, 0.9999
"""What the page's fields take; beyond that no set of prompts can tell."""
MOST_COMPARED = 4
"""Other sweeps on the frontier at a time."""


@dataclass(frozen=True, slots=True)
class TuneView:
    """What is being looked at."""

    sweep: str = ""
    """Name of the sweep's folder; empty for the newest."""
    dial: float | None = None
    """The chosen setting; None for the recommended one."""
    others: tuple[str, ...] = ()
    """Names of sweeps to compare with."""
    points: float = POINTS
    """Accuracy loss to allow, percentage points."""
    confidence: float = CONFIDENCE
    """Of the recommendation."""


@dataclass(frozen=True, slots=True)
class OpenedTune:
    """A link, read."""

    view: TuneView
    """What of it can be shown."""
    complaints: tuple[str, ...] = ()
    """A sentence for each part that cannot."""


def to_parameters(view: TuneView) -> dict[str, str]:
    """The query parameters of a view; what is at its default is left out."""
    written = {
        "sweep": view.sweep,
        "dial": "" if view.dial is None else exactly(view.dial),
        "with": ",".join(view.others),
        "loss": "" if view.points == POINTS else f"{view.points:.10g}",
        "confidence": "" if view.confidence == CONFIDENCE else f"{view.confidence:.10g}",
    }
    return {name: text for name, text in written.items() if text}


def from_parameters(parameters: Mapping[str, str]) -> OpenedTune:
    """The view that a link asks for; parts that cannot be read take their default, with a complaint."""
    complaints: list[str] = []

    def number(name: str, what: str) -> float | None:
        text = parameters.get(name, "")
        value = number_in(text)
        if text and value is None:
            complaints.append(f"The link's {what} “{clipped(text)}” is no number, so it is left at its default.")
        return value

    dial, points, confidence = number("dial", "dial"), number("loss", "loss"), number("confidence", "confidence")
    if points is not None and not LEAST_POINTS <= points <= 100:
        complaints.append(f"The link allows a loss of {points:g} points; it must be from {LEAST_POINTS:g} to 100.")
        points = None
    if confidence is not None and not 0.5 <= confidence <= MOST_CONFIDENCE:
        complaints.append(f"The link's confidence is {confidence:g}; it must be from 0.5 to {MOST_CONFIDENCE:g}.")
        confidence = None
    others = tuple(dict.fromkeys(filter(None, parameters.get("with", "").split(","))))[:MOST_COMPARED]
    view = TuneView(parameters.get("sweep", ""), dial, others, points or POINTS, confidence or CONFIDENCE)
    return OpenedTune(view, tuple(complaints))


def fitted(view: TuneView, plan: Plan) -> OpenedTune:
    """The view with a dial value that was not swept set back, and a complaint about it."""
    if view.dial is None or plan.low <= view.dial <= plan.high:
        return OpenedTune(view)
    said = (
        f"The link's {plan.symbol} = {exactly(view.dial)} lies outside what was swept, {plan.low:g} to {plan.high:g}, "
    )
    return OpenedTune(replace(view, dial=None), (said + "so the default is shown.",))
