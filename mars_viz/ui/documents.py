"""Draws the blocks of a document on a page. All text is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import pandas as pd
import streamlit as st

from mars_viz.documents import BASES, Block, Code, Figure, Section, Sentence, Table
from mars_viz.escapes import Html, html, joined
from mars_viz.ui import theme

ROW = 32  # height of a table's row in pixels
MOST_ROWS = 40  # rows that a table shows without scrolling


def draw(blocks: Iterable[Block]) -> None:
    """Draw the blocks in order."""
    for block in blocks:
        match block:
            case Sentence(small=True):
                theme.small(block.text, block.more)
            case Sentence():
                theme.show(Html(f'<p class="mv-line">{html(_tagged(block))}</p>'))
            case Table():
                height: Literal["content", "auto"] = "content" if len(block.rows) <= MOST_ROWS else "auto"
                how: dict[str, Any] = {"hide_index": True, "row_height": ROW, "placeholder": ""}
                st.dataframe(frame(block), height=height, key=block.key, alt=block.alt, **how)
            case Code():
                st.code(block.text, language=None, wrap_lines=True)
            case Figure():
                theme.chart(block.draw(theme.figure_theme()), block.key)
            case Section():
                theme.section(block.title)
                draw(block.blocks)


def sentence(text: str, basis: str = "") -> None:
    """Draw a sentence with the basis of its numbers."""
    draw([Sentence(text, basis)])


def lead(parts: Iterable[Sentence], more: str = "") -> None:
    """Draw the page's main result, the parts of a sentence with their bases, and a remark below."""
    below = Html(f"<br><small>{html(more)}</small>") if more else Html()
    theme.show(Html(f'<p class="mv-lead" role="status">{joined(map(_tagged, parts))}{html(below)}</p>'))


def _tagged(sentence: Sentence) -> Html:
    tag = theme.tag(sentence.basis, BASES[sentence.basis]) if sentence.basis else Html()
    return Html(f"{html(sentence.text)} {html(tag)}")


def frame(table: Table) -> pd.DataFrame:
    """Return the table as a data frame of text."""
    return pd.DataFrame(list(table.rows), columns=list(table.heads))
