"""Page style and common elements: notes, numbers, headings and figures. All text is escaped."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeVar

import streamlit as st

from mars_viz import figures
from mars_viz.escapes import Html, html, joined, markdown, visible
from mars_viz.figures import DARK, LIGHT, Theme
from mars_viz.ui import visitors

if TYPE_CHECKING:
    from plotly.graph_objects import Figure
    from streamlit.delta_generator import DeltaGenerator

T = TypeVar("T")


Tile = tuple[str, str, str]  # a number's label, its text and its tooltip

WIDE_FIGURE = "wide-figure"  # key of a container whose figure scrolls sideways on a phone

_STYLE = (files(__package__) / "theme.css").read_text("utf-8")


def figure_theme() -> Theme:
    """Return the colours of figures for the browser's theme; light until the browser has reported it."""
    return DARK if st.context.theme.type == "dark" else LIGHT


def show(markup: Html) -> None:
    """Draw HTML. All HTML on the pages goes through here."""
    st.html(markup)


def title(name: str, line: str) -> None:
    """Draw the page's style sheet, its title and one line about its purpose."""
    show(Html(f"<style>{_STYLE}</style>"))
    show(Html(f'<div class="mv-head"><h1>{html(name)}</h1><p>{html(line)}</p></div>'))


def section(question: str) -> None:
    show(Html(f'<h2 class="mv-section">{html(question)}</h2>'))


def note(*sentences: str) -> None:
    """Draw sentences that need attention; empty ones are left out."""
    for sentence in filter(None, sentences):
        show(Html(f'<p class="mv-note" role="status">{html(visitors.told(sentence))}</p>'))


def lead(words: str) -> None:
    show(Html(f'<p class="mv-lead" role="status">{html(words)}</p>'))


def numbers(tiles: Iterable[Tile]) -> None:
    cells = (
        Html(f'<div title="{html(tip)}"><dt>{html(name)}</dt><dd>{html(value)}</dd></div>')
        for name, value, tip in tiles
    )
    show(Html(f'<dl class="mv-numbers">{joined(cells)}</dl>'))


def line(heading: str, facts: str) -> None:
    show(Html(f'<p class="mv-line">{html(heading)}<small>{html(visitors.told(facts))}</small></p>'))


def tag(basis: str, meaning: str) -> Html:
    return Html(f'<span class="mv-tag" title="{html(meaning)}">{html(basis)}</span>')


def small(words: str, more: str = "") -> None:
    hover = Html(f' title="{html(more)}"' if more else "")
    show(Html(f'<p class="mv-small"{html(hover)}>{html(visitors.told(words))}</p>'))


def choice(
    label: str,
    options: Iterable[T],
    key: str,
    words: Callable[[T], str] = str,
    *,
    default: T | None = None,
    place: DeltaGenerator | None = None,
    help: str | None = None,
) -> T:
    """Draw a row of options and return the chosen one, initially the default or the first."""
    row, each = st if place is None else place, list(options)
    how: dict[str, Any] = {"default": each[0] if default is None else default, "required": True, "help": help}
    chosen: T = row.segmented_control(
        markdown(label), each, key=key, format_func=lambda one: markdown(words(one)), **how
    )
    return chosen


FORMATS = ("SVG", "PNG")  # formats of the save button, the default first
FORMAT = "figure-format"  # session key of the format


def chart(figure: Figure, key: str, *, of: str = "", alt: str = "", saves: bool = True) -> None:
    """Draw a figure. The saved file is named after `of` and `key`; `alt` replaces the title as alternative text.
    Figures whose result is in the page's text have `saves` False, because the file would lack that text."""
    kind = str(st.session_state.get(FORMAT) or FORMATS[0]).lower()
    saved = {"format": kind, "filename": f"{of}-{key}" if of else key, "scale": 2 if kind == "png" else 1}
    button: dict[str, object] = {"displayModeBar": False}
    if saves:
        button = {"displaylogo": False, "modeBarButtons": [["toImage"]], "toImageButtonOptions": saved}
    # on a phone or tablet, dragging over a figure scrolls the page; an iPad that identifies as a Macintosh is not known
    agent = st.context.headers.get("User-Agent", "")
    figure.update_layout(dragmode=False if any(name in agent for name in ("Mobi", "Android", "iPad")) else None)
    st.plotly_chart(figure, theme=None, key=key, config=button, alt=visible(alt or figures.spoken_title(figure)))
