"""How much drafted work relaxing has spared, round by round, against the rule's strict end."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from mars_viz.analysis.positions import Positions
from mars_viz.figures.style import Theme, blank, say_empty, whole_ticks
from mars_viz.figures.words import counted, number, setting
from mars_viz.records import Outcome

MOST_POINTS = 2_000
"""Beyond as many rounds only every so manieth is drawn, and the last."""


def savings(positions: Positions, theme: Theme) -> go.Figure:
    """Running sum of (rolled back at the strict end - rolled back at the dial), block-local by nature.

    Both sides are judged on the same recorded prefixes, so this says what relaxing spared inside the blocks, not how
    long a strict text would have taken.
    """
    now, strict = (
        positions.per_round(is_one(Outcome.REJECTED) | is_one(Outcome.DISCARDED))
        for is_one in (positions.are, positions.strictly)
    )
    total = np.cumsum(strict - now)
    figure = blank(_title(positions, total), theme, "round", "tokens spared (block-local)")
    if not positions.rounds:
        return say_empty(figure, "No round to show yet.", theme)
    step = max(1, -(-positions.rounds // MOST_POINTS))
    drawn = np.unique([*range(0, positions.rounds, step), positions.rounds - 1])
    x, y = np.append(0, drawn + 1), np.append(0, total[drawn])
    figure.add_scatter(
        x=x,
        y=y,
        mode="lines",
        line={"shape": "vh", "color": theme.relaxed, "width": 2},
        fill="tozeroy",
        hovertemplate="after round %{x}: %{y} spared<extra></extra>",
        name="spared",
    )
    figure.add_annotation(
        x=x[-1],
        y=y[-1],
        text=number(int(y[-1])),
        showarrow=False,
        xanchor="right",
        yanchor="bottom",
        font={"color": theme.relaxed, "size": 13},
    )
    figure.update_yaxes(rangemode="tozero")
    whole_ticks(figure, float(np.abs(y).max()))
    if not y.any():
        figure.update_yaxes(range=[0, 5])
    return figure


def _title(positions: Positions, total: np.ndarray) -> str:
    dial = positions.rule.dial
    if not positions.rounds:
        return "No round yet"
    if dial is None or positions.dial is None:
        return f"{positions.rule.title} has no dial: nothing is relaxed, nothing spared"
    at, spared = setting(dial.symbol, positions.dial), int(total[-1])
    if spared == 0:
        return f"At {at} no drafted token is spared against strict"
    if spared < 0:
        return f"At {at} the rule throws away {counted(-spared, 'drafted token')} that strict would keep"
    verb = "that strict throws away"
    return f"At {at} relaxing spares {counted(spared, 'drafted token')} {verb}"
