"""The lessons' own figures: what they say in numbers, where they stand still, and what stands above them."""

from __future__ import annotations

import json

import numpy as np
import plotly.graph_objects as go
import pytest
from streamlit.testing.v1 import AppTest

from mars_viz import figures
from mars_viz.analysis.intervals import wilson
from mars_viz.analysis.steps import Steps
from mars_viz.figures.lessons import accuracy_curve
from mars_viz.figures.style import UNBROKEN
from mars_viz.ui.lessons.base import KEY, LARGER, TOP

RIGHT = Steps(np.array([0.5, 0.6, 0.8, 0.9, 1.0]), np.array([282.0, 290.0, 295.0, 296.0]))


def curve(dial: float) -> go.Figure:
    return accuracy_curve(RIGHT, 300, "θ", dial, figures.LIGHT)


def test_counts_that_are_one_percentage_apart_or_none_are_told_as_counts():
    assert figures.spoken_title(curve(0.85)) == (
        "295 of 300 exercises are right at θ = 0.85, strict 296 (exact); 95 % interval 96 to 99 %"
    )
    drawn = curve(0.85).data[0]
    assert list(drawn.customdata) == [282, 290, 295, 296, 296] and "%{customdata:d} of 300 right" in drawn.hovertemplate
    assert drawn.y[0] == pytest.approx(94)
    one = accuracy_curve(Steps(np.array([0.5, 1.0]), np.array([1.0])), 1, "θ", 0.5, figures.DARK)
    assert figures.spoken_title(one).startswith("1 of 1 exercise is right at θ = 0.50, strict 1")


def test_the_axis_stands_still_while_the_dial_moves_and_holds_every_interval():
    ranges = {tuple(curve(dial).layout.yaxis.range) for dial in (0.5, 0.55, 0.7, 0.85, 0.95, 1.0)}
    ((low, high),) = ranges
    for dial in (0.5, 0.7, 0.85, 1.0):
        mark = curve(dial).data[1]
        sure = wilson(int(RIGHT.at(dial)), 300)
        reach = [mark.y[0] - mark.error_y.arrayminus[0], mark.y[0] + mark.error_y.array[0]]
        assert reach == pytest.approx([100 * sure.low, 100 * sure.high])
        assert low <= reach[0] < reach[1] <= high


def page(large: bool) -> None:
    """A figure with the dial alone, one with a key as well, and one with neither, as a lesson draws them."""
    from types import SimpleNamespace

    from mars_viz import figures
    from mars_viz.figures.style import Entry, add_dial_line, blank
    from mars_viz.ui.lessons.base import draw

    key = [Entry("■", "#123456", "a mark")]
    for name, entries, dial in (("dial", (), True), ("both", key, True), ("key", key, False), ("bare", (), False)):
        figure = blank("At θ = 0.9 it is 98 % of all", figures.LIGHT, "x", "y", entries)
        figure.update_xaxes(range=[0, 1])
        if dial:
            add_dial_line(figure, "θ", 0.9, figures.LIGHT)
        draw(SimpleNamespace(large=large), figure, name)  # type: ignore[arg-type]


def drawn(large: bool) -> AppTest:
    tab = AppTest.from_function(page, kwargs={"large": large}).run()
    assert not tab.exception
    return tab


@pytest.mark.parametrize(("large", "by"), [(False, 1.0), (True, LARGER)])
def test_only_what_stands_above_the_plot_takes_room_there(large, by):
    tops = [json.loads(chart.proto.spec)["layout"]["margin"]["t"] for chart in drawn(large).get("plotly_chart")]
    assert tops == pytest.approx([by * TOP, by * (TOP + KEY), by * (TOP + KEY), by * TOP])


def test_a_lesson_s_figure_says_its_finding_beside_it_and_offers_no_file_without_it():
    tab = drawn(large=False)
    assert f"At θ{UNBROKEN}0.9 it is 98\u00a0% of all" in tab.html[0].body
    for chart in tab.get("plotly_chart"):
        assert chart.proto.alt == "At θ = 0.9 it is 98 % of all"
        assert "toImage" not in chart.proto.config and '"displayModeBar": false' in chart.proto.config
