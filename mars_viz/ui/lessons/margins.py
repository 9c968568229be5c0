"""Lesson 4: the MARS rule, shown on a text."""

from __future__ import annotations

import numpy as np

from mars_viz.components.explorer.element import Look, explorer
from mars_viz.figures.svg import AMBER, QUIET, stacked_bars
from mars_viz.rules.mars import THETA
from mars_viz.run import Run
from mars_viz.ui.lessons.base import GREEDY, RUNNER_UP, THETA_DIAL, Lesson, LessonPageState, texts, write_address

_POSITIONS = 64  # maximum number of positions in the thumbnail
_FLOOR = 0.5  # start of its axis: few ratios are below


def _show(page_state: LessonPageState, run: Run) -> None:
    key, look = f"learn-explorer-{page_state.run}", Look.LARGE if page_state.view.teach else Look.LEAN
    state = explorer(run, dial=page_state.view.dial, overlay="ratio", selected=None, key=key, look=look)
    moved = None if state.dial == run.settings.dial else state.dial
    if moved != page_state.view.dial:
        page_state.change(dial=moved, frame=None)
    write_address(page_state)


def thumbnail(run: Run) -> str:
    """Return bars of z2/z1 at the first drafted positions, with relaxed ones in another colour."""
    theta = THETA.default if run.settings.dial is None else run.settings.dial
    values = []
    for round_ in run.rounds:
        spec = round_.speculation
        z1, z2 = (z[spec.judging_rows].astype(np.float64) for z in (spec.z1, spec.z2))
        values += np.where(z1 > 0, np.maximum(z2, 0) / np.where(z1 > 0, z1, 1), 0).tolist()
    return stacked_bars(
        [((max(0.0, ratio - _FLOOR), AMBER if ratio > theta else QUIET),) for ratio in values[:_POSITIONS]]
    )


LESSON = Lesson(
    **texts("margins"), needs=(GREEDY, THETA_DIAL, RUNNER_UP), show=_show, thumbnail=thumbnail, whole_width=True
)
