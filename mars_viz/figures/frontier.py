"""Figures of Tune: speed against accuracy, a figure's curve along the dial, and bars of shares. Intervals are bands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from mars_viz.analysis.intervals import Band, Frontier, Steps
from mars_viz.escapes import figure as escaped
from mars_viz.figures.style import (
    DIAL_MARK,
    Entry,
    Theme,
    add_dial_line,
    add_text,
    blank,
    error_bars,
    faded,
    line,
    line_at,
    mark,
    path_looks,
    say_empty,
    wide_title,
)
from mars_viz.words import counted, decimals_within, exact_setting, number, ranged, times

TALL = 430  # height in pixels
NEAR = 3  # settings that lose up to so many times the limit are shown at first
TITLE_WIDTH = 46  # characters per title line that fit on a phone


@dataclass(frozen=True, slots=True)
class RulePath:
    name: str  # for display: the rule's title, with a suffix if two sweeps share a rule
    symbol: str  # the dial's symbol
    path: Frontier
    strict: float  # the dial value of the strict end
    loosest: float  # the dial value of the other end
    marked: float  # the dial value to mark: the chosen setting, or the best one within the allowed loss


def frontier_figure(paths: Sequence[RulePath], theme: Theme, limit: float) -> go.Figure:
    """Return the paths, the chosen rule's first; `limit` is the allowed loss in points."""
    first = paths[0].path
    across = f"accuracy change vs {first.over}, points" if first.paired else "accuracy, %"
    figure = blank("", theme, across, f"modelled speed-up over {first.over}")
    looks = path_looks(theme, len(paths))
    bands = [_boxes(each.path) for each in paths]
    for each, (colour, dash, _), corners in reversed(list(zip(paths, looks, bands, strict=True))):
        ends = np.full((len(corners), 1), np.nan)  # one ring for each box
        x, y = (np.column_stack([corners[..., axis], corners[:, 0, axis], ends]).ravel() for axis in (0, 1))
        area = {"fill": "toself", "fillcolor": faded(colour, 0.13), "line": {"width": 0}}
        figure.add_scatter(x=x, y=y, mode="lines", hoverinfo="skip", name="band", **area)
        _add_path(figure, each, colour, dash)
    for place, (each, (colour, *_)) in enumerate(zip(paths, looks, strict=True)):
        near = each.path.near(each.marked)
        x, y = 100 * each.path.accuracy.estimate[near], each.path.speed_up.estimate[near]
        symbol, shade = ("diamond-open", colour) if place else ("diamond", theme.dial)
        figure.add_trace(mark(x, y, each.name if place else DIAL_MARK, symbol=symbol, size=13, color=shade))
    _set_ranges(figure, paths, limit, theme)
    marks = [Entry("◆", theme.dial, "chosen setting")]
    if any(bool(np.ptp(corners, axis=1).all(axis=-1).any()) for corners in bands):
        marks.append(Entry("▒", theme.muted, "interval of each"))
    if len(paths) > 1:
        marks.append(Entry("◇", theme.muted, "fastest within the loss"))
    names = [
        Entry(line, colour, f"{each.name}, to {exact_setting(each.symbol, each.loosest)}")
        for each, (colour, _, line) in zip(paths, looks, strict=True)
    ]
    key = [marks[:2], marks[2:], *([each] for each in names)]
    figure.update_layout(wide_title(_title(paths, limit), TALL, TITLE_WIDTH, key))
    at, label = first.near(paths[0].marked), exact_setting(paths[0].symbol, paths[0].marked)
    x, y = 100 * first.accuracy.estimate[at], first.speed_up.estimate[at]
    add_text(figure, label, theme.dial, x=x, y=y, yshift=14, name=DIAL_MARK)
    if first.paired:
        figure.add_shape(**line_at({"color": theme.rejected, "width": 1, "dash": "dot"}, x=-limit))
        at_limit = {"x": -limit, "xanchor": "right", "xshift": -3, "y": 0, "yref": "paper", "yanchor": "bottom"}
        add_text(figure, f"{number(limit)} lost", theme.rejected, **at_limit)
    return figure


def _boxes(path: Frontier) -> np.ndarray:
    """Return the intervals of each setting as corners, anticlockwise, float64 [D, 4, 2]; equal neighbours are one."""
    a, s = path.accuracy, path.speed_up
    boxes = np.stack([100 * a.low, 100 * a.high, s.low, s.high], axis=1)  # [D, 4]
    changes = np.append(True, np.any(np.diff(boxes, axis=0) != 0, axis=1))
    finite = boxes[changes & np.isfinite(boxes).all(axis=1)]
    return finite[:, [[0, 2], [1, 2], [1, 3], [0, 3]]]


def _add_path(figure: go.Figure, each: RulePath, colour: str, dash: str) -> None:
    path = each.path
    order = slice(None, None, -1 if each.strict > each.loosest else 1)  # starting at strict
    a, s = path.accuracy, path.speed_up
    unit = " points" if path.paired else " %"
    figure.add_scatter(
        x=(100 * a.estimate)[order],
        y=s.estimate[order],
        mode="lines+markers",
        line={"color": colour, "width": 2, "dash": dash},
        marker={"size": 4, "color": colour},
        customdata=[
            [ranged(a.at(place).scaled(100), unit), ranged(s.at(place).scaled(1), "×", words=times)]
            for place in range(len(path.dials))[order]
        ],
        hovertext=[escaped(exact_setting(each.symbol, dial)) for dial in path.dials[order].tolist()],
        hovertemplate=f"<b>{escaped(each.name)}, %{{hovertext}}</b>"
        "<br>%{customdata[0]}<br>%{customdata[1]}, modelled<extra></extra>",
        name=each.name,
    )


def _set_ranges(figure: go.Figure, paths: Sequence[RulePath], limit: float, theme: Theme) -> None:
    """Show the settings that lose up to `NEAR` times the limit, with buttons below for these and for all."""
    whole = _ranges(paths, [np.ones(len(each.path.dials), bool) for each in paths], limit)
    losses = [each.path.lost(each.strict) for each in paths]
    most = max(NEAR * limit, *(lost[each.path.near(each.marked)] for each, lost in zip(paths, losses, strict=True)))
    near = _ranges(paths, [lost <= most for lost in losses], limit)
    figure.update_layout({f"{axis}_range": ends for axis, ends in near.items()})
    if whole["xaxis"][0] >= near["xaxis"][0] - 0.1 * (near["xaxis"][1] - near["xaxis"][0]):
        return
    buttons = [
        {"label": label, "method": "relayout", "args": [{f"{axis}.range": ends for axis, ends in shown.items()}]}
        for label, shown in (("near strict", near), ("all settings", whole))
    ]
    place = {"x": 0, "y": 0, "pad": {"t": 44}, "xanchor": "left", "yanchor": "top", "direction": "right"}
    looks = {"bgcolor": theme.grid, "bordercolor": theme.muted, "font": {"color": theme.ink, "size": 12}}
    menu = {"type": "buttons", "buttons": buttons, "showactive": False, **place, **looks}
    figure.update_layout(updatemenus=[menu], height=figure.layout.height + 40, margin_b=84)


def _ranges(paths: Sequence[RulePath], shown: Sequence[np.ndarray], limit: float) -> dict[str, tuple[float, float]]:
    """Return the ranges of both axes that include these settings, bool [D] each, with their intervals."""
    ends, pairs = ("estimate", "low", "high"), list(zip(paths, shown, strict=True))
    xs = np.concatenate([100 * getattr(each.path.accuracy, end)[part] for each, part in pairs for end in ends])
    ys = np.concatenate([getattr(each.path.speed_up, end)[part] for each, part in pairs for end in ends])
    paired = [0.0, -1.3 * limit] if paths[0].path.paired else []
    xs, ys = np.append(xs[np.isfinite(xs)], paired), ys[np.isfinite(ys)]
    ranges = {}
    for axis, values, after in (("xaxis", xs, 0.16), ("yaxis", ys, 0.12)):
        low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
        spread = max(high - low, 0.02 * max(abs(high), 1.0))
        ranges[axis] = (low - 0.08 * spread, high + after * spread)
    return ranges


def _title(paths: Sequence[RulePath], limit: float) -> str:
    first = paths[0]
    place = first.path.near(first.marked)
    if len(paths) > 1:
        places = [each.path.best_within(each.strict, limit) for each in paths]
        speeds = [float(each.path.speed_up.estimate[at]) for each, at in zip(paths, places, strict=True)]
        best = int(np.argmax(speeds))
        at = exact_setting(paths[best].symbol, float(paths[best].path.dials[places[best]]))
        return (
            f"For at most {_points(limit)} lost on these prompts, {paths[best].name} is fastest: "
            f"{times(speeds[best])}× {first.path.over}, at {at}"
        )
    lost = float(first.path.lost(first.strict)[place])
    at, speed = exact_setting(first.symbol, first.marked), times(first.path.speed_up.estimate[place])
    pace = f"as fast as {first.path.over}" if speed == "1" else f"{speed}× as fast as {first.path.over}"
    change = first.path.accuracy.at(place).scaled(100)
    digits = decimals_within(*change[1:])
    price = "loses nothing"
    if abs(lost) > 0.005:
        price = f"loses {_points(lost, digits)}" if lost > 0 else f"wins {_points(-lost, digits)}"
    return f"{first.name} at {at} is {pace} and {price} of accuracy on these prompts"


def _points(points: float, decimals: int = 3) -> str:
    text = number(round(points, 3), decimals)
    return f"{text} point" if text == "1" else f"{text} points"


MOST = 2_000  # steps to draw; more are subsampled evenly


@dataclass(frozen=True, slots=True)
class DialCurve:
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
    hover = f"{escaped(curve.symbol)} from %{{x:.6g}}: %{{y:.4g}}"
    figure.add_trace(line(np.append(places, high), np.append(values, values[-1]), theme.ink, "exact", hover))
    pad = 0.01 * (high - low)
    figure.update_xaxes(range=[low - pad, high + pad])
    add_dial_line(figure, curve.symbol, dial, theme)
    return figure


def share_bars(kinds: Sequence[str], counts: np.ndarray, shares: Band, theme: Theme, *, axis: str) -> go.Figure:
    """Return bars of the relaxed tokens' `counts` int64 [K] and shares [K]; `axis` names the kinds."""
    noun = "relaxed token"
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
