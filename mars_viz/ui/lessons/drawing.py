"""How lessons show a figure: in the page's theme, larger in teacher mode, with its finding as alternative text."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st
from plotly.graph_objects import Figure

from mars_viz import figures
from mars_viz.ui.charts import chart
from mars_viz.ui.lessons.base import Room

LARGER = 1.45
"""How much larger type is in teacher mode."""


def forget(key: str, choices: Sequence[object]) -> None:
    """Let a control that chose among another run's things begin anew."""
    if key in st.session_state and st.session_state[key] not in choices:
        del st.session_state[key]


def draw(room: Room, figure: Figure, key: str) -> None:
    """A figure; its title says the finding and is what a screen reader says."""
    alt = figures.spoken_title(figure)
    if room.large:
        grown = figure.layout
        figure.update_layout(
            height=LARGER * grown.height,
            font_size=LARGER * grown.font.size,
            title_font_size=LARGER * grown.title.font.size,
            margin={"l": LARGER * grown.margin.l, "t": LARGER * grown.margin.t, "b": LARGER * grown.margin.b},
        )
        figure.update_xaxes(title_font_size=17)
        figure.update_yaxes(title_font_size=17)
        figure.update_annotations(font_size=17)
    chart(figure, key, alt=alt)
