"""Lesson 4: the MARS rule, shown on a text."""

from __future__ import annotations

from mars_viz.components.explorer.element import Look, explorer
from mars_viz.run import Run
from mars_viz.ui.lessons.base import GREEDY, RUNNER_UP, THETA_DIAL, Lesson, LessonPageState, texts, write_address


def _show(page_state: LessonPageState, run: Run) -> None:
    key, look = f"learn-explorer-{page_state.run}", Look.LARGE if page_state.view.teach else Look.LEAN
    state = explorer(run, dial=page_state.view.dial, overlay="ratio", selected=None, key=key, look=look)
    moved = None if state.dial == run.settings.dial else state.dial
    if moved != page_state.view.dial:
        page_state.change(dial=moved, frame=None)
    write_address(page_state)


LESSON = Lesson(**texts("margins"), needs=(GREEDY, THETA_DIAL, RUNNER_UP), show=_show, whole_width=True)
