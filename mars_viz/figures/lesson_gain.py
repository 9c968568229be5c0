"""Figures of the lesson on why drafting pays: the speed-up curve with measured runs, and what a pass costs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from mars_viz.analysis.gain import Gain, expected_speed_up
from mars_viz.costs import Costs
from mars_viz.figures.style import Entry, Theme, blank, say_empty
from mars_viz.figures.words import number


def speed_up_curve(alpha: float, gamma: int, c: float, measured: Mapping[str, Gain], theme: Theme) -> go.Figure:
    """Speed-up over the target alone, upwards, against α; the dials' own point on the curve, runs beside it."""
    here = float(expected_speed_up(alpha, gamma, c))
    verb = "faster" if here >= 1 else "of the target's own speed: it loses time"
    said = f"{number(here)} times {verb}" if here >= 1 else f"{number(here)} {verb}"
    entries = [Entry("●", theme.dial, "your dials (modelled)"), Entry("◆", theme.relaxed, "recorded runs (measured)")]
    title = f"With α = {alpha:.2f}, γ = {gamma} and c = {c:.2f} drafting is {said}"
    figure = blank(title, theme, "α, chance that a drafted token is kept", "speed-up over the target alone", entries)
    x = np.linspace(0, 1, 101)
    y = expected_speed_up(x, gamma, c)
    figure.add_hline(y=1, line={"color": theme.quiet, "dash": "dot", "width": 1.5})
    figure.add_scatter(
        x=x,
        y=y,
        mode="lines",
        line={"color": theme.dial, "width": 2.5},
        hovertemplate="α %{x:.2f}: %{y:.2f} times<extra>formula</extra>",
    )
    shown = {name: each for name, each in measured.items() if each.timed and np.isfinite(each.alpha)}
    figure.add_scatter(
        x=[each.alpha for each in shown.values()],
        y=[each.speed_up for each in shown.values()],
        customdata=[[name, each.gamma, each.c] for name, each in shown.items()],
        mode="markers",
        marker={"symbol": "diamond", "size": 10, "color": theme.relaxed},
        hovertemplate="%{customdata[0]}<br>α %{x:.2f}, γ %{customdata[1]}, c %{customdata[2]:.2f}: "
        "%{y:.2f} times<extra>measured</extra>",
    )
    figure.add_scatter(
        x=[alpha],
        y=[here],
        mode="markers",
        marker={"size": 15, "color": theme.dial},
        hovertemplate="α %{x:.2f}: %{y:.2f} times<extra>your dials</extra>",
    )
    top = max([float(y[-1]), *(each.speed_up for each in shown.values())])
    figure.update_xaxes(range=[0, 1.02])
    figure.update_yaxes(range=[0, 1.08 * top])
    return figure


def run_times(found: Gain, theme: Theme) -> go.Figure:
    """A drafter's step beside the target's pass over a whole block, from the run's own clock."""
    if not found.timed:
        figure = blank("This run was not timed", theme, "", "milliseconds")
        return say_empty(figure, "No timings to show.", theme)
    times = number(1 / found.c)
    figure = blank(
        f"In one pass of the target over {found.gamma + 1} positions the drafter takes {times} steps (measured)",
        theme,
        "",
        "milliseconds",
    )
    names = ["drafting one token", f"target reads {found.gamma + 1} at once"]
    values = [1000 * found.draft_step, 1000 * found.target_pass]
    _bars(figure, names, values, [theme.relaxed, theme.dial])
    return figure


def pass_costs(costs: Costs, theme: Theme) -> go.Figure:
    """Passes of the target over 1, 2, … positions, and one drafter step, with the range of the repeats."""
    passes = costs.target_pass
    more = passes[-1].median / passes[0].median
    figure = blank(
        f"Reading {len(passes)} positions at once costs {number(more)} times as much as reading one (measured)",
        theme,
        "positions read in one pass",
        "milliseconds",
        [Entry("■", theme.dial, "target"), Entry("■", theme.relaxed, "drafter, one step")],
    )
    names = ["draft", *(str(count) for count in range(1, len(passes) + 1))]
    spreads = [costs.drafter_step, *passes]
    colours = [theme.relaxed, *([theme.dial] * len(passes))]
    _bars(figure, names, [1000 * each.median for each in spreads], colours)
    figure.data[0].error_y = {
        "array": [1000 * (each.high - each.median) for each in spreads],
        "arrayminus": [1000 * (each.median - each.low) for each in spreads],
        "color": theme.muted,
        "thickness": 1,
    }
    top = max(each.median for each in spreads)
    figure.update_yaxes(range=[0, 2000 * top])
    return figure


def _bars(figure: go.Figure, names: list[str], values: list[float], colours: list[str]) -> None:
    figure.add_bar(
        x=names,
        y=values,
        marker={"color": colours},
        text=[number(value) for value in values],
        textposition="inside",
        insidetextanchor="middle",
        hovertemplate="%{x}: %{y:.3~f} ms<extra></extra>",
    )
    figure.update_xaxes(type="category")
    figure.update_yaxes(rangemode="tozero")
