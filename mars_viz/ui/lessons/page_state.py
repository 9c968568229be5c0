"""State of the Learn page in one tab, and its link."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import streamlit as st

from mars_viz.run import Run
from mars_viz.ui import links
from mars_viz.ui.jobs.job import BackgroundTask
from mars_viz.ui.links import Opened, clipped, misplaced_on
from mars_viz.ui.session import PageState, Session
from mars_viz.words import number_in, whole_in

KNOBS = ("alpha", "block", "cost", "drafted", "draws", "shift", "second", "wider")
"""Names of the lessons' controls; the run's dial is not one of them."""
OWN = ("run", "lesson", "frame", "dial", "teach", *KNOBS)  # query parameters that the page writes itself


def _knobs(parameters: Mapping[str, str], complaints: list[str]) -> dict[str, float]:
    values = {name: number_in(parameters.get(name, "")) for name in KNOBS}
    return {name: at for name, at in values.items() if at is not None}


def _written(knobs: Mapping[str, float]) -> dict[str, str]:
    return {name: f"{value:.10g}" for name, value in knobs.items()}


@dataclass(frozen=True, slots=True)
class LessonView:
    """State of the Learn page; the run is separate."""

    lesson: int = links.whole("lesson", "", below=10**7, default=0)  # number of the lesson; 0 is the stepper alone
    frame: int | None = links.whole(
        "frame", "The link's step {} is no whole number, so the run begins at its start.", below=10**7
    )
    """Frame of the stepper; None before it is moved."""
    dial: float | None = links.number("dial", "The link's dial {} is no number; the run's own value is shown.")
    """Value of the run's dial; None for the lesson's or the run's default."""
    teach: bool = links.flag("teach")  # True for large type without the page's controls
    knobs: Mapping[str, float] = links.part(_knobs, _written, default_factory=dict)
    """Values of moved controls, by names in KNOBS. The lesson checks their range."""


def from_parameters(parameters: Mapping[str, str], lessons: int) -> Opened[LessonView]:
    """Return the view of a link, given the number of lessons."""
    lesson = parameters.get("lesson", "")
    number = whole_in(lesson, 10**7)
    if not lesson or (number is not None and number <= lessons):
        return links.from_parameters(LessonView, parameters)
    opened = links.from_parameters(LessonView, {**parameters, "lesson": ""})
    complaint = f"There is no lesson “{clipped(lesson)}”; they go from 1 to {lessons}. The stepper is shown."
    return Opened(opened.view, (complaint, *opened.complaints))


def fitted(view: LessonView, run: Run) -> Opened[LessonView]:
    """Return the view with an invalid dial value reset, and a complaint."""
    wrong = misplaced_on(run, view.dial)
    return Opened(replace(view, dial=None), (wrong,)) if wrong else Opened(view)


@dataclass(slots=True)
class LessonPageState(PageState):
    """State of one tab's Learn page."""

    view: LessonView = field(default_factory=LessonView)
    run: str = ""  # id of the shown run; empty for none
    chosen: dict[int, str] = field(default_factory=dict)
    """Chosen runs by lesson number; other lessons show their samples."""
    tasks: dict[str, BackgroundTask] = field(default_factory=dict)  # background tasks of this tab by name

    def arrive(self, session: Session, parameters: Mapping[str, str], lessons: int) -> None:
        """Open the link if this page is the first of the tab; see `Session.arrive`."""
        if not session.arrives_at_run(parameters):
            return
        self.open_link(from_parameters(parameters, lessons))
        if self.view.lesson and session.view.run:
            self.chosen[self.view.lesson] = session.view.run

    def fit(self, run: Run) -> None:
        """Reset parts of the view that the run does not have, with a notice."""
        self.settle_on(fitted(self.view, run))

    def turn_to(self, lesson: int) -> None:
        """Go to another lesson."""
        self.notices.clear()
        self.view = LessonView(lesson, teach=self.view.teach)

    def choose(self, run_id: str) -> None:
        """Show another run in this lesson."""
        self.notices.clear()
        self.run = self.chosen[self.view.lesson] = run_id
        self.change(frame=None, dial=None)


def write_address(page_state: LessonPageState) -> None:
    """Write the page's own parameters to the address if they changed. Parameters bound to widgets are left alone."""
    parameters = links.to_parameters(page_state.view, run=page_state.run)
    for name in OWN:
        if name in parameters and st.query_params.get(name) != parameters[name]:
            st.query_params[name] = parameters[name]
        elif name not in parameters and name in st.query_params:
            del st.query_params[name]
