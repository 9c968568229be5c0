"""What something is made of: a lying bar a kind, so that its name fits anywhere, and its share with the interval."""

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
    figure = blank(_title(kinds, counts, axis, noun), theme, f"share of {noun}s, %", axis)
    if not whole:
        return say_empty(figure, f"No {noun} here.", theme)
    estimate, low, high = (100 * np.nan_to_num(end) for end in (shares.estimate, shares.low, shares.high))
    figure.add_bar(
        x=estimate,
        y=list(kinds),
        orientation="h",
        customdata=np.stack([counts, low, high], axis=1),
        marker={"color": theme.relaxed},
        error_x={
            "type": "data",
            "array": np.maximum(0, high - estimate),
            "arrayminus": np.maximum(0, estimate - low),
            "color": theme.muted,
            "thickness": 1.5,
        },
        hovertemplate="%{y}: %{customdata[0]} (%{x:.3g} %, %{customdata[1]:.3g} to %{customdata[2]:.3g})"
        "<extra></extra>",
        name=noun,
    )
    figure.update_xaxes(rangemode="tozero")
    figure.update_yaxes(type="category", autorange="reversed", automargin=True, showgrid=False, dtick=1)
    return figure


def _title(kinds: Sequence[str], counts: np.ndarray, axis: str, noun: str) -> str:
    whole = int(counts.sum())
    if not whole:
        return f"There is no {noun} at this setting"
    most = int(counts.argmax())
    found = f"{axis} {kinds[most]}"
    if counts[most] == whole:
        return f"The one {noun} has {found}" if whole == 1 else f"All {counted(whole, noun)} have {found}"
    return f"{number(100 * counts[most] / whole)} % of {counted(whole, noun)} have {found}"
