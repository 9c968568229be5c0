"""What the teaching page looks at and remembers of one browser tab, and how it writes its address. Knows no lessons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import streamlit as st

from mars_viz.run import Run
from mars_viz.ui import links
from mars_viz.ui.jobs.background_task import BackgroundTask
from mars_viz.ui.links import Opened, clipped, misplaced_on
from mars_viz.ui.session import PageState, Session, remembered
from mars_viz.words import number_in, whole_in

KNOBS = ("alpha", "block", "cost", "drafted", "draws", "shift", "second", "wider")
"""What there is to move in a lesson, besides a run's dial."""
OWN = ("run", "lesson", "frame", "dial", "teach", *KNOBS)
"""The parameters that the page writes itself."""


def _knobs(parameters: Mapping[str, str], complaints: list[str]) -> dict[str, float]:
    said = {name: number_in(parameters.get(name, "")) for name in KNOBS}
    return {name: at for name, at in said.items() if at is not None}


def _written(knobs: Mapping[str, float]) -> dict[str, str]:
    return {name: f"{value:.10g}" for name, value in knobs.items()}


@dataclass(frozen=True, slots=True)
class LessonView:
    """What is shown, besides the run."""

    lesson: int = links.whole("lesson", "", below=10**7, default=0)
    """Number of the lesson; 0 is the stepper alone."""
    frame: int | None = links.whole(
        "frame", "The link's step {} is no whole number, so the run begins at its start.", below=10**7
    )
    """Frame of the stepper; None where nobody has moved it."""
    dial: float | None = links.number("dial", "The link's dial {} is no number, so it stands where the run was made.")
    """Value of the run's dial; None for where the lesson or the run puts it."""
    teach: bool = links.flag("teach")
    """True for large type without the page's controls."""
    knobs: Mapping[str, float] = links.part(_knobs, _written, default_factory=dict)
    """Where the lesson's knobs stand that were moved, by their names in KNOBS; whether they can stand there is the
    lesson's to say."""


def from_parameters(parameters: Mapping[str, str], lessons: int) -> Opened[LessonView]:
    """The view that a link asks for, of so many lessons."""
    asked = parameters.get("lesson", "")
    number = whole_in(asked, 10**7)
    if not asked or (number is not None and number <= lessons):
        return links.from_parameters(LessonView, parameters)
    opened = links.from_parameters(LessonView, {**parameters, "lesson": ""})
    said = f"There is no lesson “{clipped(asked)}”; they go from 1 to {lessons}. The stepper is shown."
    return Opened(opened.view, (said, *opened.complaints))


def fitted(view: LessonView, run: Run) -> Opened[LessonView]:
    """The view with a dial value that the run's rule does not have set back, and a complaint about it."""
    wrong = misplaced_on(run, view.dial)
    return Opened(replace(view, dial=None), (wrong,)) if wrong else Opened(view)


@dataclass(slots=True)
class LessonPageState(PageState):
    """The memory of one tab's teaching page."""

    view: LessonView = field(default_factory=LessonView)
    """What is shown, besides the run."""
    run: str = ""
    """Id of the run that is shown; empty for none."""
    chosen: dict[int, str] = field(default_factory=dict)
    """The run that somebody chose for a lesson, by the lesson's number; the others show their samples."""
    tasks: dict[str, BackgroundTask] = field(default_factory=dict)
    """What this tab has asked the worker to find out, by name."""

    def arrive(self, session: Session, parameters: Mapping[str, str], lessons: int) -> None:
        """Open what the link asks for, when it is this page that opens the tab; see `Session.arrive`."""
        if not session.arrives_at_run(parameters):
            return
        self.open_link(from_parameters(parameters, lessons))
        if self.view.lesson and session.view.run:
            self.chosen[self.view.lesson] = session.view.run

    def fit(self, run: Run) -> None:
        """Set back what of the view this run does not have, and note it."""
        self.settle_on(fitted(self.view, run))

    def turn_to(self, lesson: int) -> None:
        """Look at another lesson, from its beginning."""
        self.notices.clear()
        self.view = LessonView(lesson, teach=self.view.teach)

    def choose(self, run_id: str) -> None:
        """Look at another run in this lesson."""
        self.notices.clear()
        self.run = self.chosen[self.view.lesson] = run_id
        self.change(frame=None, dial=None)

    def change(self, **parts: object) -> None:
        """Look at something else of the same lesson."""
        self.view = replace(self.view, **parts)  # type: ignore[arg-type]


def current_desk() -> LessonPageState:
    """This tab's memory of the page."""
    return remembered("mars_viz_lessons", LessonPageState)


def write_address(desk: LessonPageState) -> None:
    """The page's own parameters, where they changed; those that a choice is bound to are left alone."""
    wanted = links.to_parameters(desk.view, run=desk.run)
    for name in OWN:
        if name in wanted and st.query_params.get(name) != wanted[name]:
            st.query_params[name] = wanted[name]
        elif name not in wanted and name in st.query_params:
            del st.query_params[name]
