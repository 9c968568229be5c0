"""What the dial buys and what it costs: tokens per pass along it, and the share of right answers where known."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from mars_viz.analysis.steps import Steps
from mars_viz.figures.style import Entry, Theme, add_dial_line, blank
from mars_viz.figures.words import number, setting


def along_the_dial(tau: Steps, symbol: str, dial: float, right: Steps | None, theme: Theme, strict: float) -> go.Figure:
    """τ of every setting as steps; where the text is wrong the ground is shaded."""
    here, off = float(tau.at(dial)), float(tau.at(strict))
    title = f"At {setting(symbol, dial)} a pass yields {number(here)} tokens; strict yields {number(off)} (exact)"
    key = [Entry("━", theme.relaxed, "tokens per pass, τ")]
    if right is not None:
        key.append(Entry("■", theme.rejected, "wrong answer"))
    figure = blank(title, theme, symbol, "tokens per pass, τ", key)
    if right is not None:
        wrong = right.simplified()
        for low, high, value in zip(wrong.edges, wrong.edges[1:], wrong.values, strict=False):
            if value == 0:
                figure.add_vrect(x0=float(low), x1=float(high), fillcolor=theme.rejected, opacity=0.22, line_width=0)
    _steps(figure, tau, theme.relaxed, "τ = %{y:.2f}")
    figure.update_xaxes(range=[tau.low, tau.high + 0.003 * (tau.high - tau.low)])
    values = tau.values[np.isfinite(tau.values)]
    figure.update_yaxes(range=[0, 1.15 * float(values.max())] if len(values) else None)
    add_dial_line(figure, symbol, dial, theme)
    return figure


def accuracy_curve(
    right: Steps, exercises: int, low: float, high: float, symbol: str, dial: float, theme: Theme
) -> go.Figure:
    """Share of right answers along the dial; `low` and `high` are its interval where the dial stands."""
    share = float(right.at(dial)) / exercises
    title = (
        f"At {setting(symbol, dial)} {number(round(100 * share))} % of {exercises} exercises are right "
        f"({number(round(100 * low))} to {number(round(100 * high))} %, exact maps)"
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
    figure.update_yaxes(range=[0, 104])
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
