"""The target's two best logits at every drafted position, with the rule's boundary."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import plotly.graph_objects as go

from mars_viz.analysis.positions import Positions
from mars_viz.figures.style import Entry, Theme, blank, say_empty
from mars_viz.records import Outcome
from mars_viz.rules import Scale
from mars_viz.words import counted, number, setting

MANY = 3_000  # points above which a trace is drawn by WebGL
TOO_MANY = 20_000  # points above which they are binned
CELLS = 120  # bins along each axis

Marker: TypeAlias = dict[str, Any]  # Plotly's marker dict


def two_logits(positions: Positions, theme: Theme) -> go.Figure:
    """Return z1 against z2 by outcome, with the rule's boundary if it is a line in this plane.

    The boundary is z2 = θ z1 for a dial on the ratio, and z2 = z1 - m for a dial on the difference.
    """
    groups = (
        (Entry("●", theme.discarded, "rolled back"), Outcome.DISCARDED, "circle-open", 4),
        (Entry("●", theme.quiet, "matched"), Outcome.MATCHED, "circle", 5),
        (Entry("×", theme.rejected, "rejected"), Outcome.REJECTED, "x", 7),
        (Entry("◆", theme.relaxed, "relaxed"), Outcome.RELAXED, "diamond", 8),
    )
    entries = [entry for entry, *_ in reversed(groups)]
    figure = blank(_title(positions), theme, "z1, best logit", "z2, second best", key=entries)
    shown = np.isfinite(positions.z1) & np.isfinite(positions.z2)
    if not shown.any():
        return say_empty(figure, "No drafted token to show yet.", theme)
    for entry, outcome, symbol, size in groups:
        chosen = positions.are(outcome) & shown
        marker: Marker = {"color": entry.colour, "symbol": symbol, "size": size}
        figure.add_trace(_points(positions, chosen, marker, entry.words))
    if positions.scale is not None and positions.dial is not None:
        line = _DialLine.of(positions.scale, positions.dial)
        _add_boundary(figure, positions.z1[shown], positions.z2[shown], line, theme)
    return figure


@dataclass(frozen=True, slots=True)
class _DialLine:
    """z2 = slope * z1 - offset."""

    slope: float  # 1 for a difference
    offset: float  # 0 for a ratio
    least: float  # smallest z1 at which the rule relaxes
    words: str  # the formula

    @classmethod
    def of(cls, scale: Scale, dial: float) -> _DialLine:
        if scale is Scale.RATIO:
            return cls(dial, 0.0, 0.0, f"z2 = {dial:g} z1")
        return cls(1.0, dial, -math.inf, f"z2 = z1 − {dial:g}")


def _points(positions: Positions, chosen: np.ndarray, marker: Marker, name: str) -> go.Scatter | go.Scattergl:
    x, y = positions.z1[chosen], positions.z2[chosen]
    if len(x) > TOO_MANY:
        x, y, counts = _cells(x, y)
        marker = {**marker, "opacity": 0.25 + 0.75 * np.sqrt(counts / counts.max())}
        extra, hover = counts[:, None], "about %{customdata[0]} tokens near z1 %{x:.2f}, z2 %{y:.2f}"
    else:
        extra = np.stack([positions.round_index[chosen] + 1, positions.ratio[chosen]], axis=1)
        hover = "z1 %{x:.2f}, z2 %{y:.2f}, ratio %{customdata[1]:.3f}, round %{customdata[0]}"
    kind = go.Scattergl if len(x) > MANY else go.Scatter
    template = f"{hover}<extra>{name}</extra>"
    return kind(x=x, y=y, mode="markers", marker=marker, name=name, customdata=extra, hovertemplate=template)


def _cells(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return centres and counts of the non-empty bins."""
    counts, x_edges, y_edges = np.histogram2d(x, y, CELLS)
    column, row = np.nonzero(counts)
    middles = [(edges[:-1] + edges[1:]) / 2 for edges in (x_edges, y_edges)]
    return middles[0][column], middles[1][row], counts[column, row]


def _add_boundary(figure: go.Figure, z1: np.ndarray, z2: np.ndarray, line: _DialLine, theme: Theme) -> None:
    """Add the boundary without moving the axes; its label is where z2 > z1, so that it covers no point."""
    ends = np.array([max(line.least, float(z1.min())), float(z1.max())])
    if ends[0] > ends[1]:
        return
    heights = line.slope * ends - line.offset
    low, high = float(z2.min()), float(z2.max())
    pad = 0.06 * (high - low) or 1.0
    figure.update_yaxes(range=[low - pad, high + pad])
    figure.add_scatter(
        x=ends,
        y=heights,
        mode="lines",
        line={"color": theme.dial, "width": 2},
        name="boundary",
        hovertemplate=f"{line.words}<extra>the rule's boundary</extra>",
    )
    beyond = " (below)" if heights[1] < low - pad else ""
    figure.add_annotation(
        text=f"{line.words}{beyond}",
        x=0.02,
        xref="paper",
        xanchor="left",
        y=0.99,
        yref="paper",
        yanchor="top",
        showarrow=False,
        font={"color": theme.dial, "size": 12},
    )


def _title(positions: Positions) -> str:
    rule = positions.rule
    if not len(positions):
        return "No drafted token yet"
    if rule.dial is None or positions.dial is None:
        return f"{rule.title} draws no line between the two logits"
    if not positions.movable.any():
        return f"{rule.dial.symbol} moves no verdict in this run, so there is no line to draw"
    saveable = int(np.count_nonzero(positions.movable))
    relaxed = int(np.count_nonzero(positions.are(Outcome.RELAXED)))
    at = setting(rule.dial.symbol, positions.dial)
    if not relaxed:
        return f"At {at} no draft is kept beyond what strict keeps"
    return f"At {at} relaxing keeps {counted(relaxed, 'more draft')}, of {number(saveable)} it could"
