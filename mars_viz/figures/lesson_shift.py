"""What a constant added to every logit does to the ratio of the two best, while every probability stays."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

import numpy as np
import plotly.graph_objects as go

from mars_viz.analysis.close_calls import CloseCalls
from mars_viz.figures.style import Entry, Theme, blank, say_empty, whole_ticks
from mars_viz.figures.words import counted, number, setting

REACH = 40.0
"""Largest constant, either way."""
CURVES = 12
"""Runner-ups drawn, the closest first."""


def ratio_curves(calls: CloseCalls, theta: float, c: float, theme: Theme) -> go.Figure:
    """z2/z1 of the closest runner-ups against the constant, with θ as a line across and the constant as one down."""
    above = int(np.count_nonzero(calls.ratio(c) > theta))
    title = (
        f"With {number(c)} added to every logit {above} of {counted(len(calls), 'runner-up')} "
        f"{'lies' if above == 1 else 'lie'} above {setting('θ', theta)}"
    )
    key = [Entry("━", theme.relaxed, "z2/z1 of a drafted runner-up (exact)"), Entry("┅", theme.dial, "θ")]
    figure = blank(title, theme, "c, added to every logit", "z2/z1", key)
    if not len(calls):
        return say_empty(figure, "The drafter never proposed the target's second choice here.", theme)
    x = np.linspace(-REACH, REACH, 161)
    for place in range(min(CURVES, len(calls))):
        y = calls.ratio(x)[:, place]
        odds = calls.odds[place]
        figure.add_scatter(
            x=x,
            y=np.where(np.abs(y) < 5, y, np.nan),
            mode="lines",
            line={"color": theme.relaxed, "width": 1.5},
            opacity=0.75,
            hovertemplate=f"c = %{{x:.1f}}: z2/z1 = %{{y:.3f}}, while p2/p1 stays {odds:.3f}<extra></extra>",
        )
    now = calls.ratio(c)[:CURVES]
    figure.add_scatter(
        x=np.full(len(now), c),
        y=now,
        mode="markers",
        marker={"size": 7, "color": theme.relaxed},
        hoverinfo="skip",
    )
    figure.add_hline(y=theta, line={"color": theme.dial, "width": 2, "dash": "dash"})
    figure.add_vline(x=c, line={"color": theme.dial, "width": 2})
    figure.update_xaxes(range=[-REACH, REACH])
    figure.update_yaxes(range=[0, 1.1])
    return figure


def changed_verdicts(changed: Mapping[str, int], c: float, theme: Theme) -> go.Figure:
    """Verdicts of each rule that the constant changes, though it changes no probability."""
    most = max(changed.values(), default=0)
    worst = max(changed, key=lambda name: changed[name]) if most else ""
    title = (
        f"{worst} changes {counted(most, 'verdict')}, though no probability has changed"
        if most
        else "No rule changes a verdict, as it should be"
    )
    figure = blank(title, theme, "", "verdicts changed (block-local)")
    figure.add_bar(
        x=[escape(name).replace(" by ", "<br>by ").replace(" at ", "<br>at ") for name in changed],
        y=list(changed.values()),
        marker={"color": [theme.rejected if count else theme.quiet for count in changed.values()]},
        text=[number(count) for count in changed.values()],
        textposition="outside",
        hovertemplate=f"%{{y}} verdicts change with c = {number(c)}<extra></extra>",
        cliponaxis=False,
    )
    figure.update_xaxes(tickangle=0)
    figure.update_layout(margin_b=62)
    figure.update_yaxes(range=[0, max(5.0, 1.2 * most)])
    whole_ticks(figure, most)
    return figure
