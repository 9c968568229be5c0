"""What something is made of: a bar a kind, its share with the interval."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from mars_viz.analysis.intervals import Band
from mars_viz.figures.style import Theme, blank, say_empty
from mars_viz.figures.words import counted, number


def share_bars(
    kinds: Sequence[str], counts: np.ndarray, shares: Band, theme: Theme, *, axis: str, noun: str
) -> go.Figure:
    """`counts` int64 [K] and their shares [K] of all `noun`s; `axis` names what the kinds are."""
    whole = int(counts.sum())
    figure = blank(_title(kinds, counts, axis, noun), theme, axis, f"share of {noun}s, %")
    if not whole:
        return say_empty(figure, f"No {noun} here.", theme)
    estimate, low, high = (100 * np.nan_to_num(end) for end in (shares.estimate, shares.low, shares.high))
    figure.add_bar(
        x=list(kinds),
        y=estimate,
        customdata=np.stack([counts, low, high], axis=1),
        marker={"color": theme.relaxed},
        error_y={
            "type": "data",
            "array": np.maximum(0, high - estimate),
            "arrayminus": np.maximum(0, estimate - low),
            "color": theme.muted,
            "thickness": 1.5,
        },
        hovertemplate="%{x}: %{customdata[0]} (%{y:.3g} %, %{customdata[1]:.3g} to %{customdata[2]:.3g})"
        "<extra></extra>",
        name=noun,
    )
    figure.update_xaxes(type="category")
    figure.update_yaxes(rangemode="tozero")
    return figure


def _title(kinds: Sequence[str], counts: np.ndarray, axis: str, noun: str) -> str:
    whole = int(counts.sum())
    if not whole:
        return f"There is no {noun} at this setting"
    most = int(counts.argmax())
    share = number(100 * counts[most] / whole)
    return f"{share} % of {counted(whole, noun)} have {axis} {kinds[most]}"
