"""The terms on which the Tune page judges a sweep, and the form that changes them."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from mars_viz.analysis.intervals import Method
from mars_viz.sweep.report import drawn
from mars_viz.sweep.terms import METHODS
from mars_viz.ui import theme
from mars_viz.ui.tune.cached_sweep import CachedSweep
from mars_viz.ui.tune.page_state import LEAST_POINTS, MOST_CONFIDENCE, TunePageState

_WORDS = {Method.BCA: "BCa", Method.PERCENTILE: "Percentile"}


def terms(page_state: TunePageState, sweep: CachedSweep) -> None:
    """Draw the terms in words, and the button that opens the form."""
    current = page_state.view.terms
    brackets = current.brackets(drawn(sweep.result), sweep.result.questions)
    left, right = st.columns([8.6, 3.1], vertical_alignment="center", gap="medium")
    with left:
        theme.small(f"{current.safe} {brackets}" if sweep.accuracy_known else brackets)
    with right.popover("Change these terms", width="stretch"):
        _fields(page_state)


def _fields(page_state: TunePageState) -> None:
    view, most = page_state.view, 100 * MOST_CONFIDENCE
    st.session_state["tune-points"] = view.points
    st.session_state["tune-confidence"] = min(most, 100 * view.confidence)
    st.session_state["tune-intervals"] = view.intervals

    def change() -> None:
        values = st.session_state
        page_state.view = replace(
            page_state.view,
            points=values["tune-points"],
            confidence=values["tune-confidence"] / 100,
            intervals=values["tune-intervals"],
        )

    st.number_input(
        "Tolerated loss of accuracy, points",
        LEAST_POINTS,
        100.0,
        step=0.5,
        format="%.3f",
        key="tune-points",
        on_change=change,
        help="A setting is safe where its loss is shown to be no larger",
    )
    st.number_input(
        "Confidence, %",
        50.0,
        most,
        step=1.0,
        key="tune-confidence",
        on_change=change,
        help="Of what is called safe, and of all intervals of this sweep",
    )
    st.segmented_control(
        "Intervals by the bootstrap",
        list(METHODS),
        required=True,
        key="tune-intervals",
        on_change=change,
        format_func=lambda name: _WORDS[METHODS[name]],
        help="BCa corrects the percentile interval for bias and skew",
    )
    if view.dial is not None:
        st.button("Go to the recommended setting", on_click=lambda: page_state.open(view.sweep))
