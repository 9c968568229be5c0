"""What strict verification keeps and throws away at every block length."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from mars_viz.analysis.rollback import Price
from mars_viz.figures.style import Entry, Theme, blank
from mars_viz.figures.words import counted, number


def rollback_bars(prices: Sequence[Price], gamma: int, theme: Theme) -> go.Figure:
    """Drafted tokens of the whole text, kept below and rolled back above, a bar a block length; the chosen one full."""
    chosen = next(price for price in prices if price.gamma == gamma)
    share = number(round(100 * chosen.wasted)) if chosen.kept + chosen.rolled_back else "0"
    title = (
        f"At γ = {gamma} the target runs {number(chosen.passes)} times for {counted(chosen.tokens, 'token')}, "
        f"and {share} % of the drafts are thrown away"
    )
    key = [Entry("■", theme.quiet, "kept"), Entry("■", theme.rejected, "rolled back (exact)")]
    figure = blank(title, theme, "γ, tokens drafted per block", "drafted tokens", key)
    x = [price.gamma for price in prices]
    opacity = [1.0 if price.gamma == gamma else 0.4 for price in prices]
    for name, values, colour in (
        ("kept", [price.kept for price in prices], theme.quiet),
        ("rolled back", [price.rolled_back for price in prices], theme.rejected),
    ):
        figure.add_bar(
            x=x,
            y=values,
            name=name,
            marker={"color": colour, "opacity": opacity},
            hovertemplate=f"γ = %{{x}}: %{{y}} {name}<extra></extra>",
        )
    for price in prices:
        figure.add_annotation(
            x=price.gamma,
            y=price.kept + price.rolled_back,
            text=f"{number(price.passes)} passes",
            showarrow=False,
            yanchor="bottom",
            font={"size": 12, "color": theme.ink if price.gamma == gamma else theme.muted},
        )
    figure.update_layout(barmode="stack")
    figure.update_xaxes(dtick=1)
    return figure
