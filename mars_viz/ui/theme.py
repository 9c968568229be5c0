"""Page style and common elements: notes, numbers, headings and figures. All text is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import streamlit as st

from mars_viz import figures
from mars_viz.escapes import Html, html, joined, visible
from mars_viz.figures import DARK, LIGHT, Theme
from mars_viz.ui import visitors

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


@dataclass(frozen=True, slots=True)
class Tile:
    """Number with a label."""

    name: str
    value: str
    help: str


WIDE_FIGURE = "wide-figure"  # key of a container whose figure scrolls sideways on a phone

_STYLE = """
.stAppHeader { height: 3.25rem; min-height: 0; } /* opaque: what scrolls below it must not be read through its links */
.stMain { scroll-padding-top: 3.5rem; } /* nor stand below it with the focus */
.stMainBlockContainer { padding-top: 3.5rem; padding-bottom: 3rem; }
.mv-head { display: flex; flex-wrap: wrap; align-items: baseline; gap: .2rem .9rem; }
.mv-head h1 { font-size: 1.5rem; font-weight: 650; padding: 0; margin: 0; }
.mv-head p { margin: 0; opacity: .75; }
@media (max-width: 1000px) { .mv-head p { display: none; } }
.mv-note { margin: 0; padding: .55rem .8rem; border-left: 3px solid #E69F00; border-radius: .25rem;
  background: color-mix(in srgb, currentColor 6%, transparent); }
.stApp [data-testid="stCaptionContainer"] { color: inherit; opacity: .8; }
button[kind="primary"]:not(:disabled) { background: #0072B2; border-color: #0072B2; color: #fff; }
button[kind="primary"]:not(:disabled):hover { background: #005F95; border-color: #005F95; }
.stMultiSelect [data-tag] { background: #0072B2; color: #fff; } /* white on the dark theme's blue is too faint */
.stButtonGroup button[data-selected="true"] { color: inherit !important; } /* blue on its own tint is too faint */
.st-key-what-made { margin-top: -.75rem; }
@media (max-width: 640px) { [data-testid="stLayoutWrapper"]:has(> .st-key-what-made) { display: none; } }
@media (max-width: 640px) { .st-key-wide-figure { overflow-x: auto; } .st-key-wide-figure > * { min-width: 720px; } }
.st-key-text-painted, .st-key-every-page, .st-key-class-view { display: none; }
/* in the header, beside the pages' names: no page gives room to it */
[data-testid="stLayoutWrapper"]:has(> .st-key-models) { position: absolute; } /* which has no gap below it */
.st-key-models { position: fixed; top: .45rem; right: 4rem; z-index: 999991; width: auto; flex-wrap: nowrap; }
.st-key-models button { min-height: 2.2rem; padding: .1rem .7rem; }
.st-key-models .mv-small { max-width: min(20rem, 32vw); white-space: nowrap;
  overflow: hidden; text-overflow: ellipsis; }
/* a table's own CSV has text that spreadsheets run; that of Share has not */
[data-testid="stElementToolbarButton"]:has([aria-label^="Download as CSV"]) { display: none; }
[class*="st-key-deleted-"] button { animation: mv-second-click 1s; } /* of two on Delete, the second is none on Undo */
@keyframes mv-second-click { from, to { pointer-events: none; } }
.mv-section { font-size: 1.1rem; font-weight: 650; padding: 0; margin: 1.1rem 0 0; }
.mv-live { white-space: pre-wrap; overflow-wrap: anywhere; line-height: 1.7; min-height: 18rem; margin: 0; }
.mv-live .prompt { opacity: .6; }
.mv-served { white-space: pre-wrap; overflow-wrap: anywhere; line-height: 1.9; margin: .4rem 0 1rem; }
.mv-served .odd { background: color-mix(in srgb, currentColor 9%, transparent); }
.mv-served .corrected, .mv-served .bonus { text-decoration: underline; text-underline-offset: .2em; }
.mv-served .corrected { font-weight: 600; }
.mv-tag { font-size: .78rem; padding: .05rem .45rem; border-radius: 1rem; border: 1px solid currentColor; opacity: .75;
  white-space: nowrap; cursor: help; vertical-align: .1em; }
.mv-lead { margin: 0; font-size: 1.12rem; line-height: 1.55; unicode-bidi: plaintext; overflow-wrap: anywhere; }
.mv-lead small { opacity: .85; font-size: .95rem; }
.mv-line { margin: 0; overflow-wrap: anywhere; }
.mv-line small { display: block; opacity: .7; }
.mv-small { margin: 0; font-size: .85rem; opacity: .8; overflow-wrap: anywhere; }
dl.mv-numbers.mv-numbers { display: flex; flex-wrap: wrap; gap: .2rem 0; margin: 0; padding: 0; }
.mv-numbers { font-variant-numeric: tabular-nums; }
.mv-numbers > div { min-width: 5.5rem; margin-right: 2rem; cursor: help; }
.mv-numbers dt { font-size: .8rem; opacity: .7; font-weight: 400; }
.mv-numbers dd { margin: 0; font-size: 1.25rem; font-weight: 600; white-space: nowrap; }
"""


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
    """Draw a heading."""
    show(Html(f'<h2 class="mv-section">{html(question)}</h2>'))


def note(*sentences: str) -> None:
    """Draw sentences that need attention; empty ones are left out."""
    for sentence in filter(None, sentences):
        show(Html(f'<p class="mv-note" role="status">{html(visitors.told(sentence))}</p>'))


def lead(words: str, basis: str = "", meaning: str = "") -> None:
    """Draw a page's result in large type, with its basis."""
    mark = tag(basis, meaning) if basis else Html()
    show(Html(f'<p class="mv-lead" role="status">{html(words)} {html(mark)}</p>'))


def sentence(words: str) -> None:
    """Draw a sentence."""
    show(Html(f'<p class="mv-line">{html(words)}</p>'))


def live_text(prompt: str, text: str) -> None:
    """Draw a prompt and its continuation so far."""
    show(Html(f'<p class="mv-live" dir="auto"><bdi class="prompt">{html(prompt)}</bdi>{html(text)}</p>'))


def numbers(tiles: Iterable[Tile]) -> None:
    """Draw tiles in a row."""
    cells = (
        Html(f'<div title="{html(tile.help)}"><dt>{html(tile.name)}</dt><dd>{html(tile.value)}</dd></div>')
        for tile in tiles
    )
    show(Html(f'<dl class="mv-numbers">{joined(cells)}</dl>'))


def line(heading: str, facts: str) -> None:
    """Draw a line of a list, with small facts below."""
    show(Html(f'<p class="mv-line">{html(heading)}<small>{html(visitors.told(facts))}</small></p>'))


def tag(basis: str, meaning: str) -> Html:
    """Return the basis of a number as HTML, with its meaning as a tooltip."""
    return Html(f'<span class="mv-tag" title="{html(meaning)}">{html(basis)}</span>')


def small(words: str, more: str = "") -> None:
    """Draw a sentence in small type, with `more` as a tooltip."""
    hover = Html(f' title="{html(more)}"' if more else "")
    show(Html(f'<p class="mv-small"{html(hover)}>{html(visitors.told(words))}</p>'))


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
    figure.update_layout(dragmode=False if _by_finger() else None)
    st.plotly_chart(figure, theme=None, key=key, config=button, alt=visible(alt or figures.spoken_title(figure)))


def _by_finger() -> bool:
    """Return True on a phone or tablet, where dragging over a figure must scroll the page instead of zooming. An iPad
    that identifies as a Macintosh is not recognized."""
    agent = st.context.headers.get("User-Agent", "")
    return any(name in agent for name in ("Mobi", "Android", "iPad"))
