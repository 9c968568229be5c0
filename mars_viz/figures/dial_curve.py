"""Figures of Tune: a sweep's curve along the dial, and horizontal bars of shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from mars_viz.analysis.intervals import Band
from mars_viz.analysis.steps import Steps
from mars_viz.escapes import figure as escaped
from mars_viz.figures.style import Entry, Theme, add_dial_line, blank, error_bars, say_empty
from mars_viz.words import counted, decimals_within, exact_setting, number, ranged

MOST = 2_000  # steps to draw; more are subsampled evenly


@dataclass(frozen=True, slots=True)
class DialCurve:
    """A curve over all settings."""

    title: str  # the quantity, with its unit
    symbol: str  # the dial's symbol
    steps: Steps  # one row; exact
    dials: np.ndarray  # float64 [D]; dial values of the interval
    band: Band  # shape [D], or [1] if independent of the dial
    strict: float  # the dial value to compare with
    percent: bool = False  # True for a share, shown in per cent
    modelled: bool = False  # True if computed from measured costs of passes, not from texts alone
    against: str = "strict"  # name of the comparison

    @property
    def scale(self) -> float:
        """Factor for displayed numbers."""
        return 100.0 if self.percent else 1.0

    def words(self, value: float, dial: float) -> str:
        """Return a value with the decimals that the interval at this dial value supports."""
        place = max(0, int(np.searchsorted(self.dials, dial, side="right")) - 1)
        interval = self.band.at(place)
        decimals = min(2 if self.percent else 3, decimals_within(*interval.scaled(self.scale)[1:]))
        return number(self.scale * value, decimals) + (" %" if self.percent else "")


def dial_curve(curve: DialCurve, dial: float, theme: Theme) -> go.Figure:
    """Return steps and band over the dial, with a line at the chosen setting."""
    key = [Entry("━", theme.ink, "modelled" if curve.modelled else "exact"), Entry("▒", theme.muted, "interval")]
    value, strict = (float(curve.steps.at(each)) for each in (dial, curve.strict))
    against = f"{curve.against} {curve.words(strict, dial)}" if value != strict else f"the same as {curve.against}"
    title = f"At {exact_setting(curve.symbol, dial)}: {curve.words(value, dial)}, {against}"
    axis = curve.title + (", %" if curve.percent else "")
    figure = blank(title, theme, f"{curve.symbol}, the dial", axis, key)
    ends = [np.broadcast_to(curve.scale * end, curve.dials.shape) for end in (curve.band.low, curve.band.high)]
    finite = np.isfinite(ends[0]) & np.isfinite(ends[1])
    for end, fill in zip(ends, (None, "tonexty"), strict=True):
        figure.add_scatter(
            x=curve.dials[finite],
            y=end[finite],
            mode="lines",
            line={"shape": "hv", "width": 0},
            fill=fill,
            fillcolor=f"{theme.quiet}33",
            hoverinfo="skip",
            name="interval",
        )
    low, high = curve.steps.low, float(curve.dials[-1])
    places = curve.steps.edges[:-1]
    if len(places) > MOST:
        places = places[np.linspace(0, len(places) - 1, MOST).round().astype(int)]
    values = curve.scale * curve.steps.values[np.searchsorted(curve.steps.edges, places, side="right") - 1]
    figure.add_scatter(
        x=np.append(places, high),
        y=np.append(values, values[-1]),
        mode="lines",
        line={"shape": "hv", "color": theme.ink, "width": 2},
        hovertemplate=f"{escaped(curve.symbol)} from %{{x:.6g}}: %{{y:.4g}}<extra></extra>",
        name="exact",
    )
    pad = 0.01 * (high - low)
    figure.update_xaxes(range=[low - pad, high + pad])
    add_dial_line(figure, curve.symbol, dial, theme)
    return figure


def share_bars(
    kinds: Sequence[str], counts: np.ndarray, shares: Band, theme: Theme, *, axis: str, noun: str
) -> go.Figure:
    """Return bars of `counts` int64 [K] and shares [K] of all `noun`s; `axis` names the kinds."""
    total, most = int(counts.sum()), int(counts.argmax()) if len(counts) else 0
    if not total:
        title = f"There is no {noun} at this setting"
    elif counts[most] == total:
        title = f"{f'The one {noun} has' if total == 1 else f'All {counted(total, noun)} have'} {axis} {kinds[most]}"
    else:
        title = f"{number(100 * counts[most] / total)} % of {counted(total, noun)} have {axis} {kinds[most]}"
    figure = blank(title, theme, f"share of {noun}s, %", axis)
    if not total:
        return say_empty(figure, f"No {noun} here.", theme)
    estimate, low, high = (100 * np.nan_to_num(end) for end in (shares.estimate, shares.low, shares.high))
    figure.add_bar(
        x=estimate,
        y=list(kinds),
        orientation="h",
        customdata=[[count, ranged(shares.at(place).scaled(100), " %")] for place, count in enumerate(counts.tolist())],
        marker={"color": theme.relaxed},
        error_x=error_bars(estimate, low, high, theme.muted),
        hovertemplate="%{y}: %{customdata[0]}, %{customdata[1]}<extra></extra>",
        name=noun,
    )
    figure.update_xaxes(rangemode="tozero")
    figure.update_yaxes(type="category", autorange="reversed", automargin=True, showgrid=False, dtick=1)
    return figure
