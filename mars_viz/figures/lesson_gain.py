"""What passes cost, for the lesson on why drafting pays: by a run's own clock, or measured now."""

from __future__ import annotations

import plotly.graph_objects as go

from mars_viz.analysis.gain import Gain
from mars_viz.costs import Costs, ratio
from mars_viz.figures.style import Entry, Theme, blank, ink_on, say_empty
from mars_viz.figures.words import number


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
    names = ["drafting<br>one token", f"target reads<br>{found.gamma + 1} at once"]  # level also in large type
    values = [1000 * found.draft_step, 1000 * found.target_pass]
    _bars(figure, names, values, [theme.relaxed, theme.dial])
    return figure


def pass_costs(costs: Costs, theme: Theme) -> go.Figure:
    """Passes of the target over 1, 2, … positions, and one drafter step, with their intervals."""
    passes = costs.passes
    more = ratio(passes[-1], passes[0])
    figure = blank(
        f"Reading {len(passes)} positions at once costs {number(more.estimate)} ({number(more.low)} to "
        f"{number(more.high)}) times as much as reading one (measured)",
        theme,
        "positions read in one pass",
        "milliseconds",
        [Entry("■", theme.dial, "target"), Entry("■", theme.relaxed, "drafter, one step")],
    )
    names = ["draft", *(str(count) for count in range(1, len(passes) + 1))]
    spreads = [costs.drafter_step, *passes]
    colours = [theme.relaxed, *([theme.dial] * len(passes))]
    _bars(figure, names, [1000 * each.seconds for each in spreads], colours)
    figure.data[0].error_y = {
        "array": [1000 * (each.high - each.seconds) for each in spreads],
        "arrayminus": [1000 * (each.seconds - each.low) for each in spreads],
        "color": theme.muted,
        "thickness": 1,
    }
    top = max(each.seconds for each in spreads)
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
        textangle=0,
        insidetextfont={"color": [ink_on(colour) for colour in colours]},  # Plotly's own choice is too faint on some
        hovertemplate="%{x}: %{y:.3~f} ms<extra></extra>",
    )
    figure.update_layout(uniformtext={"minsize": 10, "mode": "hide"})  # rather none than some on their side
    figure.update_xaxes(type="category", tickangle=0)
    figure.update_yaxes(rangemode="tozero")
