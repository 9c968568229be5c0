"""Speed against accuracy: one path per rule with the dial as parameter, and its intervals as a band."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import plotly.graph_objects as go

from mars_viz.analysis.intervals import Frontier
from mars_viz.escapes import figure as escaped
from mars_viz.figures.style import DARK, DIAL_MARK, Entry, Theme, add_key, blank, say_empty, set_wide_title
from mars_viz.words import decimals_within, exact_setting, number, ranged, times

WIDTHS = (270, 680, 1160)  # widths in pixels of a plot on phone, tablet and desktop; labels must fit on all of them
_LETTER, _LINE = 0.53, 1.25  # relative to the font size: mean width of a character, and height of a line
_LEVELS = 6  # label positions to try above and below a point
_MARK = 9  # pixels around a point to keep free of labels

Box = tuple[float, float, float, float]  # left, right, bottom and top, in pixels from the plot's lower left corner


@dataclass(frozen=True, slots=True)
class Label:
    """A label and its point."""

    text: str  # without markup
    x: float  # position of the point from the plot's left, 0 to 1
    y: float  # position from the bottom, 0 to 1
    size: int = 12  # font size in pixels


@dataclass(frozen=True, slots=True)
class Spot:
    """The position of a label, as in Plotly's annotations."""

    xanchor: str  # 'left' is to the right of the point, 'right' to its left
    yanchor: str  # 'bottom' is above the point, 'top' below it
    xshift: int  # pixels to the right
    yshift: int  # pixels upwards


def spots(labels: Sequence[Label], height: float, taken: Sequence[Label] = ()) -> list[Spot]:
    """Return a spot for each label in order, on a plot `height` pixels high.

    The first candidate without overlap wins; otherwise the one with the smallest overlap. Labels must not cover other
    labels, points or `taken`, nor leave the plot, at any of `WIDTHS`. Labels in `taken` are above and left of their
    point.
    """
    fixed = Spot("right", "bottom", -3, 0)
    placed = [(each, fixed) for each in taken]
    chosen: list[Spot] = []
    for label in labels:
        step, candidates = round(_LINE * label.size), []
        for level in range(_LEVELS):
            for yanchor, yshift in (("bottom", 3 + step * level), ("top", -3 - step * level)):
                candidates.append(Spot("left", yanchor, _MARK, yshift))
                candidates.append(Spot("right", yanchor, -_MARK, yshift))
                candidates.append(Spot("center", yanchor, 0, yshift + (_MARK if yshift > 0 else -_MARK)))
        best = min(candidates, key=lambda spot: _covered(label, spot, placed, labels, height))
        placed.append((label, best))
        chosen.append(best)
    return chosen


def _covered(
    label: Label, spot: Spot, placed: Sequence[tuple[Label, Spot]], points: Sequence[Label], height: float
) -> float:
    """Return the overlap with other boxes and the outside, in pixels summed over all widths."""
    area = 0.0
    for width in WIDTHS:
        box = _box(label, spot, width, height)
        others = [_box(each, placed_spot, width, height) for each, placed_spot in placed]
        for each in points:
            x, y = each.x * width, each.y * height
            others.append((x - _MARK, x + _MARK, y - _MARK, y + _MARK))
        inside = _overlap(box, (0, width, 0, height))
        area += (box[1] - box[0]) * (box[3] - box[2]) - inside + sum(_overlap(box, other) for other in others)
    return area


def _box(label: Label, spot: Spot, width: float, height: float) -> Box:
    wide, high = _LETTER * label.size * len(label.text), _LINE * label.size
    x, y = label.x * width + spot.xshift, label.y * height + spot.yshift
    left = x - {"left": 0.0, "center": wide / 2, "right": wide}[spot.xanchor]
    bottom = y - (0.0 if spot.yanchor == "bottom" else high)
    return left, left + wide, bottom, bottom + high


def _overlap(one: Box, other: Box) -> float:
    wide = min(one[1], other[1]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[2], other[2])
    return max(0.0, wide) * max(0.0, high)


TALL = 430  # height in pixels
TITLE_WIDTH = 46  # characters per title line that fit on a phone
COLOURS_ON_LIGHT = ("#007A5A", "#A03C78", "#B34700", "#5B55C0", "#8A6A00")
"""Colours of paths, in order; from the Okabe-Ito palette, dark enough for text."""
COLOURS_ON_DARK = ("#2FC79B", "#E39CC3", "#F28A5B", "#A7A2F2", "#F0D35A")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")


@dataclass(frozen=True, slots=True)
class RulePath:
    """The path of one rule."""

    name: str  # for display: the rule's title, with a suffix if two sweeps share a rule
    symbol: str  # the dial's symbol
    path: Frontier
    strict: float  # the dial value of the strict end
    loosest: float  # the dial value of the other end
    marked: float  # the dial value to mark: the chosen setting, or the best one within the allowed loss


def frontier_figure(paths: Sequence[RulePath], theme: Theme, limit: float | None = None) -> go.Figure:
    """Return the paths, the chosen rule's first; `limit` is the allowed loss in points."""
    if not paths:
        return say_empty(blank("No sweep to show yet", theme, "accuracy", "speed"), "Sweep a set with answers.", theme)
    first = paths[0].path
    across = f"accuracy change vs {first.over}, points" if first.paired else "accuracy, %"
    figure = blank("", theme, across, f"modelled speed-up over {first.over}")
    colours = COLOURS_ON_DARK if theme == DARK else COLOURS_ON_LIGHT
    for place, each in reversed(list(enumerate(paths))):
        colour = colours[place % len(colours)]
        _add_band(figure, each, colour)
        _add_path(figure, each, colour, DASHES[place % len(DASHES)])
    for place, each in enumerate(paths):
        _add_mark(figure, each, theme.dial if place == 0 else colours[place % len(colours)], chosen=place == 0)
    _set_ranges(figure, paths, limit)
    has_band = any(bool(np.ptp(ring, axis=0).all()) for each in paths for ring in _rings(each.path))
    key = [
        Entry("◆", theme.dial, "chosen setting"),
        *([Entry("◇", theme.muted, "fastest within the loss")] if len(paths) > 1 else []),
        *([Entry("▒", theme.muted, "interval of each")] if has_band else []),
    ]
    add_key(figure, key)
    set_wide_title(figure, _title(paths, limit), TALL, TITLE_WIDTH)
    ends = [(each, colours[place % len(colours)]) for place, each in enumerate(paths)]
    _add_names(figure, ends, theme, limit if first.paired else None)
    return figure


def _add_band(figure: go.Figure, each: RulePath, colour: str) -> None:
    """Add the path's intervals as hulls of neighbouring boxes; all are anticlockwise, so that Plotly unites them."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    for ring in _rings(each.path):
        xs += [*ring[:, 0].tolist(), ring[0, 0], None]
        ys += [*ring[:, 1].tolist(), ring[0, 1], None]
    if xs:
        tint = f"rgba({int(colour[1:3], 16)},{int(colour[3:5], 16)},{int(colour[5:7], 16)},0.13)"
        figure.add_scatter(
            x=xs, y=ys, mode="lines", line={"width": 0}, fill="toself", fillcolor=tint, hoverinfo="skip", name="band"
        )


def _rings(path: Frontier) -> Iterator[np.ndarray]:
    """Yield float64 [corners, 2], anticlockwise."""
    a, s = path.accuracy, path.speed_up
    boxes = np.stack([100 * a.low, 100 * a.high, s.low, s.high], axis=1)  # [D, 4]
    changes = np.append(True, np.any(np.diff(boxes, axis=0) != 0, axis=1))
    finite = boxes[changes & np.isfinite(boxes).all(axis=1)]
    corners = finite[:, [[0, 2], [1, 2], [1, 3], [0, 3]]]  # [D, 4, 2]
    if len(corners) == 1:
        yield corners[0]
    for box, other in zip(corners[:-1], corners[1:], strict=True):
        yield _hull(np.concatenate([box, other]))


def _hull(points: np.ndarray) -> np.ndarray:
    """Return the convex hull, anticlockwise (Andrew 1979, Information Processing Letters 9:216-219)."""

    def chain(ordered: list[tuple[float, float]]) -> list[tuple[float, float]]:
        kept: list[tuple[float, float]] = []
        for x, y in ordered:
            while len(kept) > 1:  # until the last three points turn left
                (ax, ay), (bx, by) = kept[-2:]
                if (bx - ax) * (y - ay) - (by - ay) * (x - ax) > 0:
                    break
                kept.pop()
            kept.append((x, y))
        return kept[:-1]

    ordered = sorted({(float(x), float(y)) for x, y in points})
    if len(ordered) < 3:
        return np.array(ordered)
    return np.array(chain(ordered) + chain(ordered[::-1]))


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


def _add_mark(figure: go.Figure, each: RulePath, colour: str, *, chosen: bool) -> None:
    x, y = _point(each, each.marked)
    symbol = "diamond" if chosen else "diamond-open"
    figure.add_scatter(
        x=[x],
        y=[y],
        mode="markers",
        marker={"symbol": symbol, "size": 13, "color": colour},
        hoverinfo="skip",
        name=DIAL_MARK if chosen else each.name,
    )


def _add_names(figure: go.Figure, ends: Sequence[tuple[RulePath, str]], theme: Theme, limit: float | None) -> None:
    chosen = ends[0][0]
    points = [_point(chosen, chosen.marked), *(_point(each, each.loosest) for each, _ in ends)]
    texts = [exact_setting(chosen.symbol, chosen.marked)]
    texts += [f"{each.name}, {exact_setting(each.symbol, each.loosest)}" for each, _ in ends]
    limit_labels = []
    if limit is not None:
        limit_text = f"{number(limit)} lost"
        figure.add_vline(x=-limit, line={"color": theme.rejected, "width": 1, "dash": "dot"})
        figure.add_annotation(
            text=limit_text,
            x=-limit,
            y=0,
            yref="paper",
            yanchor="bottom",
            xanchor="right",
            xshift=-3,
            showarrow=False,
            font={"color": theme.rejected, "size": 12},
        )
        limit_labels = [Label(limit_text, _part(figure.layout.xaxis.range, -limit), 0.0)]
    labels = [
        Label(text, _part(figure.layout.xaxis.range, x), _part(figure.layout.yaxis.range, y), 13 if not place else 12)
        for place, (text, (x, y)) in enumerate(zip(texts, points, strict=True))
    ]
    margin = figure.layout.margin
    positions = spots(labels, TALL - margin.t - margin.b, limit_labels)
    for place, (text, (x, y), spot) in enumerate(zip(texts, points, positions, strict=True)):
        words = escaped(text)
        figure.add_annotation(
            text=words if place else f"<b>{words}</b>",
            x=x,
            y=y,
            showarrow=False,
            font={"color": ends[place - 1][1], "size": 12} if place else {"color": theme.dial, "size": 13},
            name=None if place else DIAL_MARK,
            **asdict(spot),
        )


def _point(each: RulePath, dial: float) -> tuple[float, float]:
    place = each.path.near(dial)
    return float(100 * each.path.accuracy.estimate[place]), float(each.path.speed_up.estimate[place])


def _part(ends: Sequence[float], value: float) -> float:
    return (value - ends[0]) / (ends[1] - ends[0])


def _set_ranges(figure: go.Figure, paths: Sequence[RulePath], limit: float | None) -> None:
    ends = ("estimate", "low", "high")
    xs = np.concatenate([100 * getattr(each.path.accuracy, end) for each in paths for end in ends])
    ys = np.concatenate([getattr(each.path.speed_up, end) for each in paths for end in ends])
    paired = [0.0, *([] if limit is None else [-1.3 * limit])] if paths[0].path.paired else []
    xs, ys = np.append(xs[np.isfinite(xs)], paired), ys[np.isfinite(ys)]
    for axis, values, after in ((figure.update_xaxes, xs, 0.16), (figure.update_yaxes, ys, 0.12)):
        low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
        spread = max(high - low, 0.02 * max(abs(high), 1.0))
        axis(range=[low - 0.08 * spread, high + after * spread])


def _title(paths: Sequence[RulePath], limit: float | None) -> str:
    first = paths[0]
    place = first.path.near(first.marked)
    if len(paths) > 1 and limit is not None:
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
    price = (
        f"loses {_points(lost, digits)}"
        if lost > 0.005
        else f"wins {_points(-lost, digits)}"
        if lost < -0.005
        else "loses nothing"
    )
    return f"{first.name} at {at} is {pace} and {price} of accuracy on these prompts"


def _points(points: float, decimals: int = 3) -> str:
    text = number(round(points, 3), decimals)
    return f"{text} point" if text == "1" else f"{text} points"
