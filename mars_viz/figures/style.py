"""The look that all figures share: colours for either theme, one height, titles that wrap, and a key in words.

Knows Plotly and outcomes; knows no runs. Hues are from the Okabe-Ito family and told apart by lightness and shape too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import unescape
from textwrap import wrap
from typing import Any

import plotly.graph_objects as go

from mars_viz.escapes import figure as escaped
from mars_viz.words import setting

HEIGHT = 340
"""Pixels, of every figure."""
UNBROKEN = "\u00a0=\u00a0"
"""An equals sign that no title is broken at."""
LEFT = 50
"""Pixels left of the plot."""
DIAL_MARK = "dial"
"""Name of every mark that stands at the dial's value, whatever else the figure shows."""
TITLE_WIDTH = 40
"""Characters to a line of a title; three lines fit."""


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours of the page that a figure stands on."""

    ink: str
    """Text."""
    muted: str
    """Axis names and ticks."""
    grid: str
    """Grid lines."""
    quiet: str
    """Marks for what needs no attention: matched tokens."""
    relaxed: str
    """Marks for tokens kept only because the rule is relaxed."""
    rejected: str
    """Marks for rejected tokens."""
    discarded: str
    """Marks for tokens rolled back after a rejection."""
    dial: str
    """The dial's value, wherever it is a line."""


LIGHT = Theme("#1F2937", "#4B5563", "#E5E7EB", "#94A3B8", "#C77700", "#C2410C", "#CBD5E1", "#0072B2")
DARK = Theme("#E5E7EB", "#9CA3AF", "#2B333E", "#8796AC", "#FFC04D", "#F28A5B", "#4A5568", "#56B4E9")


@dataclass(frozen=True, slots=True)
class Entry:
    """One mark of a key: a symbol in its colour, and what it stands for."""

    symbol: str
    """A character that looks like the mark."""
    colour: str
    """Of the mark."""
    words: str
    """What it means."""


def blank(title: str, theme: Theme, x: str, y: str, key: Sequence[Entry] = ()) -> go.Figure:
    """A figure without traces: title, key in words below it, named axes; transparent, so that the page shows."""
    wrapped = wrap(title.replace(" = ", UNBROKEN), TITLE_WIDTH, break_on_hyphens=False)
    lines = "<br>".join(escaped(line) for line in wrapped)
    layout = {
        "title": {
            "text": f"<b>{lines}</b>",
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
        "xaxis": _axis(x, theme),
        "yaxis": _axis(y, theme),
    }
    figure = go.Figure(layout=layout)  # at once: each later update costs as much as all of this
    if key:
        add_key(figure, key)
    return figure


def set_wide_title(figure: go.Figure, title: str, height: int, width: int = 100) -> None:
    """The title on the page's full width, `width` characters to a line, above a figure of this height in pixels."""
    lines = wrap(title.replace(" = ", UNBROKEN), width, break_on_hyphens=False)
    words = "<br>".join(escaped(line) for line in lines)
    top = 58 + 17 * (len(lines) - 1)
    figure.update_layout(title={"text": f"<b>{words}</b>", "y": 1 - 18 / height}, height=height, margin={"t": top})


def _axis(name: str, theme: Theme) -> dict[str, Any]:
    return {
        "title": {"text": escaped(name), "standoff": 6, "font": {"size": 12}},
        "gridcolor": theme.grid,
        "linecolor": theme.grid,
        "zeroline": False,
    }


def ink_on(colour: str) -> str:
    """Black or white, whichever is read more easily on this colour, '#rrggbb'; always above 4.5 : 1 (WCAG 2.1)."""
    shares = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares)
    return "#000000" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 else "#FFFFFF"


def spoken_title(figure: go.Figure) -> str:
    """The title as plain words, for those who cannot see the figure."""
    text = figure.layout.title.text.removeprefix("<b>").removesuffix("</b>").replace("<br>", " ")
    return unescape(text).replace(UNBROKEN, " = ")


def add_key(figure: go.Figure, key: Sequence[Entry]) -> None:
    """What the marks mean, as one line of coloured symbols and words above the plot."""
    add_note(figure, key_words(key), markup=True)


def key_words(key: Sequence[Entry]) -> str:
    """A line of a key, as markup."""
    return " &nbsp; ".join(
        f'<span style="color:{entry.colour}">{entry.symbol}</span> {escaped(entry.words)}' for entry in key
    )


def add_note(figure: go.Figure, words: str, *, markup: bool = False, up: int = 6) -> None:
    """A line `up` pixels above the plot, where a key would stand; plain text unless it is `markup`."""
    figure.add_annotation(
        text=words if markup else escaped(words),
        x=0,
        xref="paper",
        xanchor="left",
        y=1,
        yref="paper",
        yanchor="bottom",
        showarrow=False,
        font={"size": 12},
        align="left",
        xshift=2 - LEFT,
        yshift=up,
    )


def add_dial_line(figure: go.Figure, symbol: str, value: float, theme: Theme, *, above: bool = False) -> None:
    """The dial's value as a vertical line with its name beside it, on the side where there is more room.

    `above` puts the name over the plot, where that is filled with colour.
    """
    figure.add_vline(x=value, line={"color": theme.dial, "width": 2}, name=DIAL_MARK)
    low, high = figure.layout.xaxis.range
    roomy_left = value > (low + high) / 2
    figure.add_annotation(
        text=escaped(setting(symbol, value)),
        x=value,
        y=1,
        yref="paper",
        yanchor="bottom" if above else "top",
        xanchor="right" if roomy_left else "left",
        xshift=-4 if roomy_left else 4,
        showarrow=False,
        font={"color": theme.dial, "size": 12},
        name=DIAL_MARK,
    )


def whole_ticks(figure: go.Figure, largest: float) -> None:
    """Whole numbers on a y axis that counts, also where the counts are small."""
    if largest <= 5:
        figure.update_yaxes(dtick=1)


def say_empty(figure: go.Figure, words: str, theme: Theme) -> go.Figure:
    """The figure with a sentence in place of marks."""
    figure.add_annotation(
        text=escaped(words), x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False, font={"color": theme.muted}
    )
    figure.update_xaxes(showticklabels=False, range=[0, 1])
    figure.update_yaxes(showticklabels=False, range=[0, 1])
    return figure


def made(plain: Mapping[str, Any], changes: Mapping[str, Any], data: Sequence[Mapping[str, Any]] = ()) -> go.Figure:
    """A figure with these traces; its layout is `plain` but for `changes`, which may name a part of a part only.

    Plotly is not asked to check every property, which takes two thirds of the time; the tests do.
    """
    return go.Figure(data=list(data), layout=_changed(plain, changes), _validate=False)


@lru_cache(16)
def plain_layout(theme: Theme, key: tuple[Entry, ...], x: str = "", y: str = "") -> Mapping[str, Any]:
    """The layout of `blank` without a title, as a dictionary for `made`; its first annotation is the key."""
    found: dict[str, Any] = blank("", theme, x, y, key).to_plotly_json()["layout"]
    found.pop("template", None)  # every figure gets it again
    return found


def _changed(plain: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return dict(plain) | {
        name: _changed(plain.get(name, {}), value) if isinstance(value, Mapping) else value
        for name, value in changes.items()
    }
