"""Agreement of an EAGLE-3 head with its target by depth, with true features and with its own states as input."""

from __future__ import annotations

import math

import plotly.graph_objects as go

from mars_viz.analysis.head_agreement import HeadCheck
from mars_viz.analysis.intervals import Interval
from mars_viz.figures.style import Entry, Theme, blank
from mars_viz.words import number

_APART = 0.05  # horizontal offset of the two marks of a depth, so that their intervals do not overlap


def head_agreement(check: HeadCheck, theme: Theme) -> go.Figure:
    """Return both shares by depth with their intervals; the title names the depth of the largest difference."""
    true = [each.true_features for each in check.depths]
    own_states = [each.own_states for each in check.depths]
    widest = max(check.depths, key=lambda each: each.true_features.estimate - each.own_states.estimate)
    title = (
        f"The head agrees in {_percent(widest.own_states.estimate)} % at depth {widest.depth} by its own states, in "
        f"{_percent(widest.true_features.estimate)} % by true features (measured)"
    )
    key = [Entry("○", theme.dial, "fed true features"), Entry("◆", theme.relaxed, "fed its own states")]
    figure = blank(title, theme, "depth in the draft", "agrees, of drafts that did so far, %", key)
    depths = [each.depth for each in check.depths]
    _series(figure, depths, -_APART, true, key[0], "circle-open")
    _series(figure, depths, _APART, own_states, key[1], "diamond")
    figure.update_xaxes(dtick=1, range=[0.5, depths[-1] + 0.5])
    figure.update_yaxes(range=[0, 103])
    return figure


def _series(
    figure: go.Figure, depths: list[int], aside: float, shares: list[Interval], entry: Entry, symbol: str
) -> None:
    up = [100 * (each.high - each.estimate) if _sure(each) else 0 for each in shares]
    down = [100 * (each.estimate - each.low) if _sure(each) else 0 for each in shares]
    figure.add_scatter(
        x=[depth + aside for depth in depths],
        y=[100 * each.estimate for each in shares],
        error_y={"array": up, "arrayminus": down, "color": entry.colour, "thickness": 1},
        mode="lines+markers",
        line={"color": entry.colour, "width": 2, "dash": "dot" if symbol == "circle-open" else "solid"},
        marker={"size": 9, "symbol": symbol, "color": entry.colour},
        customdata=list(map(_words, shares)),
        hovertemplate=f"depth %{{x:.0f}}, {entry.words}: %{{customdata}}<extra></extra>",
    )


def _words(share: Interval) -> str:
    between = f" ({_percent(share.low)} to {_percent(share.high)})" if _sure(share) else ""
    return f"{_percent(share.estimate)} %{between}"


def _sure(share: Interval) -> bool:
    return math.isfinite(share.low) and math.isfinite(share.high)


def _percent(share: float) -> str:
    return number(100 * share)
