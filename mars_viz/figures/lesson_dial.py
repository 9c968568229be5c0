"""What the dial costs: the share of right answers along it."""

from __future__ import annotations

import math

import numpy as np
import plotly.graph_objects as go

from mars_viz.analysis.intervals import wilson
from mars_viz.analysis.steps import Steps
from mars_viz.figures.style import Theme, add_dial_line, blank
from mars_viz.figures.words import counted, number, setting


def accuracy_curve(right: Steps, exercises: int, symbol: str, dial: float, theme: Theme) -> go.Figure:
    """Share of right answers along the dial, with its interval where the dial stands; `right` are counts, and the
    title says them, because two of them may be one percentage. The dial's high end is the strict one."""
    here, strict = (int(right.at(at)) for at in (dial, right.high))
    sure = wilson(here, exercises)
    low, high = round(100 * sure.low), round(100 * sure.high)
    title = (
        f"{number(here)} of {counted(exercises, 'exercise')} {'is' if here == 1 else 'are'} right at "
        f"{setting(symbol, dial)}, strict {number(strict)} (exact); 95 % interval {low} to {high} %"
    )
    figure = blank(title, theme, symbol, "right answers, %")
    _steps(figure, right, exercises, theme.dial)
    figure.add_scatter(
        x=[dial],
        y=[100 * sure.estimate],
        error_y={
            "array": [100 * (sure.high - sure.estimate)],
            "arrayminus": [100 * (sure.estimate - sure.low)],
            "color": theme.muted,
        },
        mode="markers",
        marker={"size": 10, "color": theme.dial},
        hoverinfo="skip",
    )
    figure.update_xaxes(range=[right.low, right.high + 0.003 * (right.high - right.low)])
    lowest = 100 * wilson(int(right.values.min()), exercises).low  # of every setting: the axis stands still
    figure.update_yaxes(range=[max(0, 10 * math.floor((lowest - 2) / 10)), 101])  # where the differences are
    add_dial_line(figure, symbol, dial, theme)
    return figure


def _steps(figure: go.Figure, right: Steps, exercises: int, colour: str) -> None:
    simple = right.simplified()
    counts = np.append(simple.values, simple.values[-1])
    figure.add_scatter(
        x=simple.edges,
        y=100 * counts / exercises,
        customdata=counts,
        mode="lines",
        line={"shape": "hv", "color": colour, "width": 2.5},
        hovertemplate=f"from %{{x:.3f}}: %{{customdata:d}} of {exercises} right<extra></extra>",
    )
