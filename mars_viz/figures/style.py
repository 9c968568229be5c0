"""Shared style of figures: themes, height, wrapped titles and a key in words.

Hues are from the Okabe-Ito palette, and also differ by lightness and shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from html import unescape
from textwrap import wrap
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import ArrayLike

from mars_viz.escapes import figure as escaped
from mars_viz.words import setting

HEIGHT = 340  # height of every figure in pixels
UNBROKEN = "\u00a0=\u00a0"  # an equals sign at which titles do not break
LEFT = 50  # left margin in pixels
DIAL_MARK = "dial"  # name of every mark at the dial's value
TITLE_WIDTH = 40  # characters per title line; three lines fit


@dataclass(frozen=True, slots=True)
class Theme:
    ink: str
    muted: str  # axis names and ticks
    grid: str
    quiet: str  # marks without emphasis: matched tokens
    relaxed: str  # tokens accepted only because the rule is relaxed
    rejected: str  # rejected tokens
    discarded: str  # tokens rolled back after a rejection
    dial: str  # lines at the dial's value


LIGHT = Theme("#1F2937", "#4B5563", "#E5E7EB", "#94A3B8", "#C77700", "#C2410C", "#CBD5E1", "#0072B2")
DARK = Theme("#E5E7EB", "#9CA3AF", "#2B333E", "#8796AC", "#FFC04D", "#F28A5B", "#4A5568", "#56B4E9")


@dataclass(frozen=True, slots=True)
class Entry:
    symbol: str  # a character that looks like the mark
    colour: str
    words: str


def blank(title: str, theme: Theme, x: str, y: str, key: Sequence[Entry] = ()) -> go.Figure:
    """Return a figure without traces: title, key and named axes on a transparent background."""
    notes = {"annotations": [text_at(key_words(key), None, **NOTE)]} if key else {}
    return go.Figure(layout=plain_layout(title, theme, x, y) | notes)  # one call: each update costs as much again


def drawn(layout: Mapping[str, Any], *changes: Mapping[str, Any], data: Sequence[Mapping[str, Any]] = ()) -> go.Figure:
    """Return a figure with these traces and the layout, changed recursively.

    Plotly's validation is skipped, since it takes two thirds of the time of a move of the dial; the tests validate.
    """
    return go.Figure(data=list(data), layout=reduce(_merged, changes, layout), _validate=False)


def _merged(layout: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    nested = {name: _merged(layout.get(name, {}), new) for name, new in changes.items() if isinstance(new, Mapping)}
    return {**layout, **changes, **nested}


def plain_layout(title: str, theme: Theme, x: str, y: str) -> dict[str, Any]:
    xaxis, yaxis = (
        {
            "title": {"text": escaped(name), "standoff": 6, "font": {"size": 12}},
            "gridcolor": theme.grid,
            "linecolor": theme.grid,
            "zeroline": False,
        }
        for name in (x, y)
    )
    return {
        "title": {
            "text": in_bold(titled_lines(title, TITLE_WIDTH)),
            "x": 0,
            "xref": "container",
            "y": 1 - 18 / HEIGHT,
            "yanchor": "bottom",
            "font": {"size": 14, "color": theme.ink},
        },
        "font": {"family": '"Source Sans", "Source Sans 3", system-ui, sans-serif', "size": 13, "color": theme.muted},
        "height": HEIGHT,
        "margin": {"l": LEFT, "r": 12, "t": 92, "b": 44},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "showlegend": False,
        "hoverlabel": {"font": {"size": 13}},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": theme.muted, "activecolor": theme.ink},
        "bargap": 0.06,
        "barmode": "stack",
        "xaxis": xaxis,
        "yaxis": yaxis,
    }


def wide_title(title: str, height: int, width: int = 100, key: Sequence[Sequence[Entry]] = ()) -> dict[str, Any]:
    """Return changes of a layout: a title over the page's width, with `width` characters per line, and below it the
    lines of a key. `height` in pixels is without further lines of both."""
    lines, keys = titled_lines(title, width), [key_words(entries) for entries in key if entries]
    above = 17 * (len(lines) - 1) + 17 * max(0, len(keys) - 1)
    height += 17 * max(0, len(keys) - 1)
    return {
        "title": {"text": in_bold(lines), "y": 1 - 18 / height},
        "height": height,
        "margin": {"t": 58 + 8 * bool(keys) + above},
        "annotations": [text_at("<br>".join(keys), None, **NOTE)] if keys else [],
    }


COLOURS_ON_LIGHT = ("#007A5A", "#A03C78", "#B34700", "#5B55C0", "#8A6A00")
"""Colours of paths, in order; from the Okabe-Ito palette, dark enough for text."""
COLOURS_ON_DARK = ("#2FC79B", "#E39CC3", "#F28A5B", "#A7A2F2", "#F0D35A")
DASHES = (("solid", "━"), ("dash", "╍"), ("dot", "┉"), ("dashdot", "┅"), ("longdash", "╺"))


def path_looks(theme: Theme, count: int) -> list[tuple[str, str, str]]:
    """Return the colour of each of several lines, Plotly's name of its dash, and a character like it for a key."""
    colours = COLOURS_ON_DARK if theme == DARK else COLOURS_ON_LIGHT
    return [(colours[place % len(colours)], *DASHES[place % len(DASHES)]) for place in range(count)]


def titled_lines(title: str, width: int) -> list[str]:
    return wrap(title.replace(" = ", UNBROKEN), width, break_on_hyphens=False)


def in_bold(lines: Sequence[str]) -> str:
    return f"<b>{'<br>'.join(map(escaped, lines))}</b>"


def faded(colour: str, opacity: float) -> str:
    """Return '#rrggbb' as a transparent colour."""
    return f"rgba({','.join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))},{opacity})"


def ink_on(colour: str) -> str:
    """Return black or white, whichever contrasts more with '#rrggbb'; always above 4.5 : 1 (WCAG 2.1)."""
    shares = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares)
    return "#000000" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 else "#FFFFFF"


def spoken_title(figure: go.Figure) -> str:
    """Return the title as plain text, for screen readers."""
    text = figure.layout.title.text.removeprefix("<b>").removesuffix("</b>").replace("<br>", " ")
    return unescape(text).replace(UNBROKEN, " = ")


def key_words(key: Sequence[Entry]) -> str:
    return " &nbsp; ".join(
        f'<span style="color:{entry.colour}">{entry.symbol}</span> {escaped(entry.words)}' for entry in key
    )


def add_text(figure: go.Figure, markup: str, colour: str | None, **place: Any) -> None:
    """Add a text, which is markup, at a position in Plotly's words."""
    figure.add_annotation(**text_at(markup, colour, **place))


def text_at(markup: str, colour: str | None, **place: Any) -> dict[str, Any]:
    """Return a text, which is markup, at a position in Plotly's words, as an annotation."""
    font = {"size": 12} if colour is None else {"color": colour, "size": 12}
    return {"text": markup, "showarrow": False, "font": font, **place}


_ABOVE = {"x": 0, "xref": "paper", "xanchor": "left", "y": 1, "yref": "paper", "yanchor": "bottom"}
NOTE: dict[str, Any] = _ABOVE | {"align": "left", "xshift": 2 - LEFT, "yshift": 6}
"""Place of a line above the plot, in place of a key."""


def line_at(line: Mapping[str, Any], *, x: float | None = None, y: float | None = None) -> dict[str, Any]:
    """Return an upright or level line over the whole plot as a shape of Plotly. `add_vline` and `add_hline` take five
    times as long as setting all shapes at once."""
    if x is not None:
        return {"type": "line", "line": line, "x0": x, "x1": x, "xref": "x", "y0": 0, "y1": 1, "yref": "y domain"}
    return {"type": "line", "line": line, "x0": 0, "x1": 1, "xref": "x domain", "y0": y, "y1": y, "yref": "y"}


def add_dial_line(figure: go.Figure, symbol: str, value: float, theme: Theme, *, above: bool = False) -> None:
    """Add a vertical line at the dial's value with a label on the side with more space.

    `above` puts the label above the plot, for plots filled with colour.
    """
    figure.add_shape(**line_at({"color": theme.dial, "width": 2}, x=value), name=DIAL_MARK)
    low, high = figure.layout.xaxis.range
    roomy_left = value > (low + high) / 2
    place = {"x": value, "y": 1, "yref": "paper", "yanchor": "bottom" if above else "top"}
    side = {"xanchor": "right", "xshift": -4} if roomy_left else {"xanchor": "left", "xshift": 4}
    add_text(figure, escaped(setting(symbol, value)), theme.dial, **place, **side, name=DIAL_MARK)


MANY = 3_000  # points above which a trace is drawn by WebGL
TOO_MANY = 20_000  # points above which they are thinned
CELLS = 120  # cells along each axis


def points(
    x: np.ndarray,
    y: np.ndarray,
    entry: Entry,
    symbol: str,
    size: int,
    extra: np.ndarray,
    hover: str,
    *,
    log: bool = False,
) -> dict[str, Any]:
    """Return a trace of marks with these `extra` values for the hover. Of very many, each cell has one; `log` for a
    logarithmic y."""
    kind = "scattergl" if len(x) > MANY else "scatter"
    if len(x) > TOO_MANY:
        sides = np.stack([x, np.log(y) if log else y], axis=1)
        spread = np.ptp(sides, axis=0)
        cells = np.floor((sides - sides.min(axis=0)) / np.where(spread, spread, 1.0) * CELLS)
        chosen = np.unique(cells, axis=0, return_index=True)[1]
        x, y, extra = x[chosen], y[chosen], extra[chosen]
    return {
        **{"type": kind, "x": x, "y": y, "mode": "markers", "name": entry.words, "customdata": extra},
        "marker": {"color": entry.colour, "symbol": symbol, "size": size},
        "hovertemplate": f"{hover}<extra>{entry.words}</extra>",
    }


def line(
    x: ArrayLike, y: ArrayLike, colour: str, name: str, hover: str, *, shape: str = "hv", **more: Any
) -> dict[str, Any]:
    """Return a trace of a line, by default of steps, with `more` in Plotly's words."""
    looks = {"color": colour, "shape": shape, "width": 2}
    trace = {"type": "scatter", "mode": "lines", "x": x, "y": y, "name": name, "line": looks}
    return {**trace, "hovertemplate": f"{hover}<extra></extra>", **more}


def mark(x: float, y: float, name: str, hover: str = "", **looks: Any) -> dict[str, Any]:
    """Return a trace of a single mark with these looks in Plotly's words; without `hover` it says nothing."""
    hovered = {"hovertemplate": f"{hover}<extra></extra>"} if hover else {"hoverinfo": "skip"}
    return {"type": "scatter", "mode": "markers", "x": [x], "y": [y], "name": name, "marker": looks, **hovered}


def error_bars(estimate: ArrayLike, low: ArrayLike, high: ArrayLike, colour: str) -> dict[str, Any]:
    """Return the error bars of estimates; none for an unknown interval."""
    centre, below, above = (np.asarray(each, np.float64) for each in (estimate, low, high))
    known = np.isfinite(below) & np.isfinite(above)
    up, down = (np.where(known, np.maximum(0, each), 0) for each in (above - centre, centre - below))
    return {"type": "data", "array": up, "arrayminus": down, "color": colour, "thickness": 1}


def whole_ticks(figure: go.Figure, largest: float) -> None:
    if largest <= 5:
        figure.update_yaxes(dtick=1)


def say_empty(figure: go.Figure, words: str, theme: Theme) -> go.Figure:
    """Show a sentence in place of marks, and return the figure."""
    add_text(figure, escaped(words), theme.muted, x=0.5, y=0.5, xref="paper", yref="paper")
    figure.update_xaxes(showticklabels=False, range=[0, 1])
    figure.update_yaxes(showticklabels=False, range=[0, 1])
    return figure
