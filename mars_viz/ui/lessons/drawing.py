"""How lessons show a figure: in the page's theme, larger in teacher mode, with its finding as alternative text."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st
from plotly.graph_objects import Figure

from mars_viz import figures
from mars_viz.ui.charts import chart
from mars_viz.ui.lessons import lesson_layout
from mars_viz.ui.lessons.base import LessonContext

LARGER = 1.45
"""How much larger type is in teacher mode."""
HEIGHT = 196
"""Pixels of a figure, so that a lesson fits a screen; its title stands above it."""
TOP = 10
"""Pixels above the plot."""
KEY = 20
"""Pixels more where a key stands there."""


def forget(key: str, choices: Sequence[object]) -> None:
    """Let a control that chose among another run's things begin anew."""
    if key in st.session_state and st.session_state[key] not in choices:
        del st.session_state[key]


def draw(room: LessonContext, figure: Figure, key: str) -> None:
    """A figure; its title says the finding, stands above it as a heading, and is what a screen reader says."""
    alt = figures.spoken_title(figure)
    lesson_layout.caption(alt)
    grown, by = figure.layout, LARGER if room.large else 1.0
    figure.update_layout(
        title_text="",
        height=by * HEIGHT,
        font_size=by * grown.font.size,
        margin={"l": by * grown.margin.l, "t": by * (TOP + KEY * _has_key(figure)), "b": by * grown.margin.b},
    )
    if room.large:
        figure.update_xaxes(title_font_size=17)
        figure.update_yaxes(title_font_size=17)
        figure.update_annotations(font_size=17)
    chart(figure, key, alt=alt, saves=False)


def _has_key(figure: Figure) -> bool:
    """True if words stand above the plot; the dial's name stands in it."""
    return any((words.yref, words.y, words.yanchor) == ("paper", 1, "bottom") for words in figure.layout.annotations)
