"""Figures of the lessons: accuracy along the dial, and costs of passes."""

from __future__ import annotations

import math

import numpy as np
import plotly.graph_objects as go

from mars_viz.analysis.intervals import Steps, wilson
from mars_viz.costs import Costs, ratio
from mars_viz.figures.style import Entry, Theme, add_dial_line, blank, error_bars, ink_on
from mars_viz.words import counted, number, ranged, setting


def accuracy_curve(right: Steps, exercises: int, symbol: str, dial: float, theme: Theme) -> go.Figure:
    """Return the share of right answers along the dial, with its interval at the current value.

    `right` are counts, which the title contains because two counts may round to one percentage. The dial's high end is
    strict.
    """
    correct, strict = (int(right.at(at)) for at in (dial, right.high))
    sure = wilson(correct, exercises)
    low, high = round(100 * sure.low), round(100 * sure.high)
    title = (
        f"{number(correct)} of {counted(exercises, 'exercise')} {'is' if correct == 1 else 'are'} right at "
        f"{setting(symbol, dial)}, strict {number(strict)} (exact); 95 % interval {low} to {high} %"
    )
    figure = blank(title, theme, symbol, "right answers, %")
    simple = right.simplified()
    counts = np.append(simple.values, simple.values[-1])
    figure.add_scatter(
        x=simple.edges,
        y=100 * counts / exercises,
        customdata=counts,
        mode="lines",
        line={"shape": "hv", "color": theme.dial, "width": 2.5},
        hovertemplate=f"from %{{x:.3f}}: %{{customdata:d}} of {exercises} right<extra></extra>",
    )
    figure.add_scatter(
        x=[dial],
        y=[100 * sure.estimate],
        error_y=error_bars([100 * sure.estimate], [100 * sure.low], [100 * sure.high], theme.muted),
        mode="markers",
        marker={"size": 10, "color": theme.dial},
        hoverinfo="skip",
    )
    figure.update_xaxes(range=[right.low, right.high + 0.003 * (right.high - right.low)])
    lowest = 100 * wilson(int(right.values.min()), exercises).low  # over all settings, so that the axis does not move
    figure.update_yaxes(range=[max(0, 10 * math.floor((lowest - 2) / 10)), 101])  # zoom in on the differences
    add_dial_line(figure, symbol, dial, theme)
    return figure


def pass_costs(costs: Costs, theme: Theme) -> go.Figure:
    """Return the cost of target passes over 1, 2, … positions and of one drafter step, with intervals."""
    passes = costs.passes
    more = ratio(passes[-1], passes[0])
    title = f"Reading {len(passes)} positions at once costs {ranged((more.estimate, more.low, more.high))} "
    title += "times as much as reading one (measured)"
    key = [Entry("■", theme.dial, "target"), Entry("■", theme.relaxed, "drafter, one step")]
    figure = blank(title, theme, "positions read in one pass", "milliseconds", key)
    names = ["draft", *(str(count) for count in range(1, len(passes) + 1))]
    spreads = [costs.drafter_step, *passes]
    colours = [theme.relaxed, *([theme.dial] * len(passes))]
    values, low, high = 1000 * np.array([(each.seconds, each.low, each.high) for each in spreads]).T
    figure.add_bar(
        x=names,
        y=values,
        error_y=error_bars(values, low, high, theme.muted),
        marker={"color": colours},
        text=[number(value) for value in values],
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        insidetextfont={"color": [ink_on(colour) for colour in colours]},  # Plotly's default has too little contrast
        hovertemplate="%{x}: %{y:.3~f} ms<extra></extra>",
    )
    figure.update_layout(uniformtext={"minsize": 10, "mode": "hide"})  # hide labels instead of rotating some
    figure.update_xaxes(type="category", tickangle=0)
    figure.update_yaxes(range=[0, 2 * values.max()])
    return figure
