"""What the dial costs: the share of right answers along it."""

from __future__ import annotations

import math

import numpy as np
import plotly.graph_objects as go

from mars_viz.analysis.steps import Steps
from mars_viz.figures.style import Theme, add_dial_line, blank
from mars_viz.figures.words import number, setting


def accuracy_curve(
    right: Steps, exercises: int, low: float, high: float, symbol: str, dial: float, theme: Theme
) -> go.Figure:
    """Share of right answers along the dial; `low` and `high` are its interval where the dial stands.
    The dial's high end is the strict one."""
    share, strict = (float(right.at(at)) / exercises for at in (dial, right.high))
    title = (
        f"{number(round(100 * share))} % ({number(round(100 * low))} to {number(round(100 * high))}) of {exercises} "
        f"exercises are right at {setting(symbol, dial)} (exact); strict {number(round(100 * strict))} %"
    )
    figure = blank(title, theme, symbol, "right answers, %")
    percent = Steps(right.edges, 100 * right.values / exercises)
    _steps(figure, percent, theme.dial, "%{y:.0f} % right")
    figure.add_scatter(
        x=[dial],
        y=[100 * share],
        error_y={"array": [100 * (high - share)], "arrayminus": [100 * (share - low)], "color": theme.muted},
        mode="markers",
        marker={"size": 10, "color": theme.dial},
        hoverinfo="skip",
    )
    figure.update_xaxes(range=[right.low, right.high + 0.003 * (right.high - right.low)])
    lowest = min(100 * low, float(percent.values.min()))
    figure.update_yaxes(range=[max(0, 10 * math.floor((lowest - 2) / 10)), 101])  # where the differences are
    add_dial_line(figure, symbol, dial, theme)
    return figure


def _steps(figure: go.Figure, steps: Steps, colour: str, said: str) -> None:
    simple = steps.simplified()
    figure.add_scatter(
        x=simple.edges,
        y=np.append(simple.values, simple.values[-1]),
        mode="lines",
        line={"shape": "hv", "color": colour, "width": 2.5},
        hovertemplate=f"from %{{x:.3f}}: {said}<extra></extra>",
    )
