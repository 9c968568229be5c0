"""State of the Tune page in one tab. The sweeps are on disk and in the worker."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from mars_viz import default_folders
from mars_viz.analysis.intervals import Bootstrap
from mars_viz.errors import SettingError
from mars_viz.sweep import Plan
from mars_viz.sweep.terms import METHODS, Terms
from mars_viz.ui import links
from mars_viz.ui.links import Opened
from mars_viz.ui.session import PageState
from mars_viz.words import exactly, number_in

POINTS, CONFIDENCE, BCA = 1.0, 0.95, "bca"
LEAST_POINTS, MOST_CONFIDENCE = 0.001, 0.9999  # limits of the page's fields; no prompt set is large enough beyond these
MOST_COMPARED = 4  # maximum number of other sweeps on the frontier
REFRESH = 2.0  # minimum seconds between two redraws of a growing sweep
RESTS = 5.0  # minimum pause between two redraws, as a multiple of the time that the last one took


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


def _others(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, text.split(","))))[:MOST_COMPARED]


_LEFT = "is no number, so it is left at its default."


@dataclass(frozen=True, slots=True)
class TuneView:
    """State of the Tune page."""

    sweep: str = links.text("sweep")  # name of the sweep's folder; empty for the newest
    dial: float | None = links.number("dial", f"The link's dial {{}} {_LEFT}")
    """The chosen setting; None for the recommended one."""
    others: tuple[str, ...] = links.said("with", _others, ",".join, ())  # names of sweeps to compare with
    points: float = links.said("loss", _points, "{:.10g}".format, POINTS, f"The link's loss {{}} {_LEFT}")
    """Tolerated loss of accuracy in percentage points."""
    confidence: float = links.said(
        "confidence", _confidence, "{:.10g}".format, CONFIDENCE, f"The link's confidence {{}} {_LEFT}"
    )
    """Confidence of the recommendation and of all intervals."""
    intervals: str = links.one_of(
        "intervals", METHODS, BCA, f"The link's intervals {{}} are none of {' and '.join(METHODS)}; {BCA} is taken."
    )
    """Name in `METHODS`."""

    @property
    def terms(self) -> Terms:
        """The terms of the recommendation."""
        return Terms(self.points, Bootstrap(self.confidence, METHODS[self.intervals]))


def fitted(view: TuneView, plan: Plan) -> Opened[TuneView]:
    """Return the view with a dial value outside the sweep reset, and a complaint."""
    if view.dial is None or plan.low <= view.dial <= plan.high:
        return Opened(view)
    swept = f"what was swept, {plan.low:g} to {plan.high:g}"
    complaint = f"The link's {plan.symbol} = {exactly(view.dial)} lies outside {swept}, so the default is shown."
    return Opened(replace(view, dial=None), (complaint,))


@dataclass(frozen=True, slots=True)
class ShownResults:
    """Results that a tab shows."""

    sweep: str
    finished: int  # number of finished prompts when they were drawn, also if nothing could be shown
    began: float  # start of the drawing, monotonic seconds
    ended: float  # end of the drawing

    def outdated(self, sweep: str, finished: int, now: float) -> bool:
        """Return True if more prompts have finished and a redraw would not slow the server down."""
        waits = max(REFRESH, RESTS * (self.ended - self.began))
        return self.sweep == sweep and finished > self.finished and now - self.ended >= waits


@dataclass(slots=True)
class TunePageState(PageState):
    """State of one tab's Tune page."""

    names_run: ClassVar[bool] = False
    view: TuneView = field(default_factory=TuneView)
    folder: Path = field(default_factory=default_folders.sweeps)  # folder of the results
    drawn: ShownResults = ShownResults("", 0, 0.0, 0.0)
    begun: int = 0  # number of sweeps started with the form, which closes the form

    def fit(self, plan: Plan) -> None:
        """Reset parts of the view that the sweep does not have, with a notice."""
        self.settle_on(fitted(self.view, plan))

    def open(self, sweep: str) -> None:
        """Open another sweep at its recommended setting."""
        self.notices.clear()
        self.view = replace(self.view, sweep=sweep, dial=None, others=())

    def turn(self, dial: float) -> None:
        """Choose another setting."""
        self.notices.clear()
        self.view = replace(self.view, dial=dial)
