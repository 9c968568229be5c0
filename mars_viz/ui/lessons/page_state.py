"""What the teaching page remembers of one browser tab, and how it writes its address. Knows views; knows no lessons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import streamlit as st

from mars_viz.run import Run
from mars_viz.ui.jobs.background_task import BackgroundTask
from mars_viz.ui.lessons.lesson_view import OWN, LessonView, fitted, from_parameters, to_parameters
from mars_viz.ui.session import Session

_KEY = "mars_viz_lessons"


@dataclass(slots=True)
class LessonPageState:
    """The memory of one tab's teaching page."""

    view: LessonView = field(default_factory=LessonView)
    """What is shown, besides the run."""
    run: str = ""
    """Id of the run that is shown; empty for none."""
    chosen: dict[int, str] = field(default_factory=dict)
    """The run that somebody chose for a lesson, by the lesson's number; the others show their samples."""
    notices: list[str] = field(default_factory=list)
    """Sentences about the link, to show until something else is chosen."""
    errands: dict[str, BackgroundTask] = field(default_factory=dict)
    """What this tab has asked the worker to find out, by name."""

    def arrive(self, session: Session, parameters: Mapping[str, str], lessons: int) -> None:
        """Open what the link asks for, when it is this page that opens the tab; see `Session.arrive`."""
        if not session.arrives_at_run(parameters):
            return
        opened = from_parameters(parameters, lessons)
        self.view = opened.view
        if self.view.lesson and session.view.run:
            self.chosen[self.view.lesson] = session.view.run
        self.notices[:] = opened.complaints

    def fit(self, run: Run) -> None:
        """Set back what of the view this run does not have, and note it."""
        opened = fitted(self.view, run)
        self.view = opened.view
        self.notices.extend(opened.complaints)

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
    if _KEY not in st.session_state:
        st.session_state[_KEY] = LessonPageState()
    desk: LessonPageState = st.session_state[_KEY]
    return desk


def write_address(desk: LessonPageState) -> None:
    """The page's own parameters, where they changed; those that a choice is bound to are left alone."""
    wanted = to_parameters(desk.run, desk.view)
    for name in OWN:
        if name in wanted and st.query_params.get(name) != wanted[name]:
            st.query_params[name] = wanted[name]
        elif name not in wanted and name in st.query_params:
            del st.query_params[name]
