"""Draws the blocks of a document on a page. All text is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd
import streamlit as st

from mars_viz.documents import BASES, Block, Code, Facts, Section, Sentence, Table
from mars_viz.escapes import Html, html, joined, markdown
from mars_viz.ui import theme

ROW = 32  # height of a table's row in pixels
WHOLE = 40  # maximum number of rows of a table that is shown at its full height
PINNED = 4  # columns beyond which the first stays while the others are scrolled
NARROW = 24  # maximum number of characters of a first column that stays; a wider one would fill a phone's screen
NUMERIC = tuple("0123456789+−–") + ("",)  # first characters of numbers


def draw(blocks: Iterable[Block]) -> None:
    for block in blocks:
        match block:
            case Sentence(small=True):
                theme.small(block.text, block.more)
            case Sentence():
                theme.show(Html(f'<p class="mv-line">{html(_tagged(block))}</p>'))
            case Table():
                _table(block)
            case Facts():
                theme.show(block.html)
            case Code():
                st.code(block.text, language=None, wrap_lines=True)
            case Section():
                theme.section(block.title)
                draw(block.blocks)


def _table(block: Table) -> None:
    heads = list(block.heads)
    heads = [head + "\u200b" * heads[:place].count(head) for place, head in enumerate(heads)]  # names of columns differ
    frame = pd.DataFrame(list(block.rows), columns=heads)
    stays = len(heads) > PINNED and max((len(row[0]) for row in block.rows), default=0) <= NARROW
    columns = {
        head: st.column_config.TextColumn(
            help=markdown(block.help.get(head, "")) or None,
            pinned=place == 0 and stays,
            alignment="right" if all(cell[:1] in NUMERIC for cell in frame[head]) else "left",
        )
        for place, head in enumerate(heads)
    }
    height: Any = "content" if len(frame) <= WHOLE else "auto"
    st.dataframe(
        frame,
        height=height,
        hide_index=True,
        row_height=ROW,
        key=block.key,
        column_config=columns,
        placeholder="",
        alt=block.alt,
    )


def sentence(text: str, basis: str = "") -> None:
    draw([Sentence(text, basis)])


def lead(parts: Iterable[Sentence], more: str = "") -> None:
    """Draw the page's main result, the parts of a sentence with their bases, and a remark below."""
    below = Html(f"<br><small>{html(more)}</small>") if more else Html()
    theme.lead(joined([*map(_tagged, parts), below]))


def _tagged(sentence: Sentence) -> Html:
    tag = theme.tag(sentence.basis, sentence.more or BASES[sentence.basis]) if sentence.basis else Html()
    return Html(f"{html(sentence.text)} {html(tag)}")


def frame(table: Table) -> pd.DataFrame:
    return pd.DataFrame(list(table.rows), columns=list(table.heads))
