"""Two laws laid over each other, and what rejection sampling writes from them. Token text is escaped."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from mars_viz.analysis.overlap import OTHERS, Overlap, distance
from mars_viz.figures.style import Entry, Theme, blank
from mars_viz.figures.token_words import token_label
from mars_viz.figures.words import number
from mars_viz.run import Piece


def law_areas(laws: Overlap, pieces: Mapping[int, Piece], theme: Theme) -> go.Figure:
    """min(p, q) below; above it what only the target wants, or what only the drafter proposes."""
    title = f"{_percent(laws.acceptance)} of the drafts are kept here: the area that both laws share"
    key = [
        Entry("■", theme.quiet, "both: kept"),
        Entry("■", theme.dial, "only target: written instead"),
        Entry("■", theme.rejected, "only drafter: rejected"),
    ]
    figure = blank(title, theme, "", "probability (exact)", key)
    labels, places = _labels(laws, pieces), list(range(len(laws.tokens)))
    parts = (
        ("min(p, q)", laws.shared, theme.quiet),
        ("(p − q)₊", laws.residual, theme.dial),
        ("(q − p)₊", np.maximum(laws.q - laws.shared, 0), theme.rejected),
    )
    for name, values, colour in parts:
        figure.add_bar(
            x=places,
            y=values,
            name=name,
            marker={"color": colour},
            customdata=np.stack([laws.p, laws.q], 1),
            hovertemplate=f"{name} = %{{y:.3f}}; p = %{{customdata[0]:.3f}}, q = %{{customdata[1]:.3f}}<extra></extra>",
        )
    figure.update_layout(barmode="stack")
    figure.update_xaxes(tickvals=places, ticktext=labels, ticklabeloverflow="allow", tickangle=-35)
    return figure


def simulated(laws: Overlap, counts: np.ndarray, pieces: Mapping[int, Piece], theme: Theme) -> go.Figure:
    """How often each token was written, as bars, with the target's law as marks that they should reach."""
    draws = int(counts.sum())
    off, naive = distance(counts, laws.p), distance(laws.q * draws, laws.p)
    title = (
        f"After {number(draws)} trials the text is {_percent(off)} away from the target's law; "
        f"keeping every draft would be {_percent(naive)} away"
    )
    key = [
        Entry("■", theme.quiet, "written (simulated)"),
        Entry("◆", theme.dial, "target p"),
        Entry("○", theme.rejected, "drafter q"),
    ]
    figure = blank(title, theme, "", "share", key)
    labels, places = _labels(laws, pieces), list(range(len(laws.tokens)))
    share = counts / draws
    figure.add_bar(
        x=places,
        y=share,
        marker={"color": theme.quiet},
        customdata=counts,
        hovertemplate="written %{customdata} times: %{y:.4f}<extra></extra>",
    )
    for values, colour, symbol, name in (
        (laws.p, theme.dial, "diamond", "p"),
        (laws.q, theme.rejected, "circle-open", "q"),
    ):
        figure.add_scatter(
            x=places,
            y=values,
            mode="markers",
            marker={"color": colour, "symbol": symbol, "size": 11, "line": {"width": 2}},
            hovertemplate=f"{name} = %{{y:.4f}}<extra></extra>",
        )
    figure.update_xaxes(tickvals=places, ticktext=labels, ticklabeloverflow="allow", tickangle=-35)
    figure.update_yaxes(range=[0, 1.1 * max(float(laws.p.max()), float(laws.q.max()))])
    return figure


def _labels(laws: Overlap, pieces: Mapping[int, Piece]) -> list[str]:
    return ["others" if token == OTHERS else token_label(pieces[token].text, 10) for token in laws.tokens]


def _percent(share: float) -> str:
    return f"{number(100 * share)} %"
