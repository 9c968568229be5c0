"""What the Tune page looks at, and remembers of one browser tab. Sweeps themselves are on disk and with the worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from mars_viz import default_folders
from mars_viz.analysis.intervals import Bootstrap
from mars_viz.errors import SettingError
from mars_viz.sweep import Plan
from mars_viz.sweep.terms import METHODS, Terms
from mars_viz.ui import links
from mars_viz.ui.links import Opened
from mars_viz.ui.session import PageState, Session, remembered
from mars_viz.words import exactly, number_in

POINTS, CONFIDENCE, BCA = 1.0, 0.95, "bca"
LEAST_POINTS, MOST_CONFIDENCE = 0.001, 0.9999
"""What the page's fields take; beyond that no set of prompts can tell."""
MOST_COMPARED = 4
"""Other sweeps on the frontier at a time."""
REFRESH = 2.0
"""Seconds between two drawings of a sweep that grows, at the least."""
RESTS = 5.0
"""Times as long as a drawing took that the next one waits: the more there is to draw, the less often."""


def _points(text: str) -> float | None:
    value = number_in(text)
    if value is not None and not LEAST_POINTS <= value <= 100:
        raise SettingError(f"The link allows a loss of {value:g} points; it must be from {LEAST_POINTS:g} to 100.")
    return value


def _confidence(text: str) -> float | None:
    value = number_in(text)
    if value is not None and not 0.5 <= value <= MOST_CONFIDENCE:
        raise SettingError(f"The link's confidence is {value:g}; it must be from 0.5 to {MOST_CONFIDENCE:g}.")
    return value


def _method(text: str) -> str | None:
    return text if text in METHODS else None


def _others(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, text.split(","))))[:MOST_COMPARED]


_LEFT = "is no number, so it is left at its default."


@dataclass(frozen=True, slots=True)
class TuneView:
    """What is being looked at."""

    sweep: str = links.text("sweep")
    """Name of the sweep's folder; empty for the newest."""
    dial: float | None = links.number("dial", f"The link's dial {{}} {_LEFT}")
    """The chosen setting; None for the recommended one."""
    others: tuple[str, ...] = links.said("with", _others, ",".join, ())
    """Names of sweeps to compare with."""
    points: float = links.said("loss", _points, "{:.10g}".format, POINTS, f"The link's loss {{}} {_LEFT}")
    """Accuracy loss to allow, percentage points."""
    confidence: float = links.said(
        "confidence", _confidence, "{:.10g}".format, CONFIDENCE, f"The link's confidence {{}} {_LEFT}"
    )
    """Of the recommendation and of all intervals."""
    intervals: str = links.said(
        "intervals",
        _method,
        str,
        BCA,
        f"The link's intervals {{}} are none of {' and '.join(METHODS)}; {BCA} is taken.",
    )
    """How intervals are made, a name in `METHODS`."""

    @property
    def terms(self) -> Terms:
        """What of it a sweep is judged by."""
        return Terms(self.points, Bootstrap(self.confidence, METHODS[self.intervals]))


def fitted(view: TuneView, plan: Plan) -> Opened[TuneView]:
    """The view with a dial value that was not swept set back, and a complaint about it."""
    if view.dial is None or plan.low <= view.dial <= plan.high:
        return Opened(view)
    swept = f"what was swept, {plan.low:g} to {plan.high:g}"
    said = f"The link's {plan.symbol} = {exactly(view.dial)} lies outside {swept}, so the default is shown."
    return Opened(replace(view, dial=None), (said,))


@dataclass(frozen=True, slots=True)
class ShownResults:
    """The results that a tab shows."""

    sweep: str
    """Of which sweep."""
    finished: int
    """Prompts that they stand on; where there is nothing to show, those that were finished all the same."""
    began: float
    """When the page began to draw them, monotonic seconds."""
    ended: float
    """When it had."""

    def outdated(self, sweep: str, finished: int, now: float) -> bool:
        """True if more prompts have finished, and drawing them keeps the server from little."""
        waits = max(REFRESH, RESTS * (self.ended - self.began))
        return self.sweep == sweep and finished > self.finished and now - self.ended >= waits


@dataclass(slots=True)
class TunePageState(PageState):
    """The memory of one tab's Tune page."""

    view: TuneView = field(default_factory=TuneView)
    """The sweep, the setting, what it is compared with."""
    folder: Path = field(default_factory=default_folders.sweeps)
    """Where results are."""
    drawn: ShownResults = ShownResults("", 0, 0.0, 0.0)
    """What the page drew last."""
    begun: int = 0
    """Sweeps that were begun in its form, which then closes."""

    def arrive(self, session: Session, parameters: Mapping[str, str]) -> None:
        """Open what the link asks for, when it is this page that opens the tab; see `Session.arrive`."""
        if session.arrives():
            self.open_link(links.from_parameters(TuneView, parameters))

    def fit(self, plan: Plan) -> None:
        """Set back what of the view this sweep does not have, and note it."""
        self.settle_on(fitted(self.view, plan))

    def open(self, sweep: str) -> None:
        """Look at another sweep, at the setting that it speaks for."""
        self.notices.clear()
        self.view = replace(self.view, sweep=sweep, dial=None, others=())

    def turn(self, dial: float) -> None:
        """Choose another setting."""
        self.notices.clear()
        self.view = replace(self.view, dial=dial)


def current_tuning() -> TunePageState:
    """This tab's memory of the page."""
    return remembered("mars_viz_tune", TunePageState)
