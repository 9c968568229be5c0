"""Draws the blocks of a document on a page. All text is escaped."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
import streamlit as st

from mars_viz.documents import BASES, Block, Code, Facts, Figure, Section, Sentence, Table
from mars_viz.escapes import Html, html
from mars_viz.ui import theme

ROW = 32  # height of a table's row in pixels


def draw(blocks: Iterable[Block]) -> None:
    """Draw the blocks in order."""
    for block in blocks:
        match block:
            case Sentence(small=True):
                theme.small(block.text, block.more)
            case Sentence():
                basis = theme.tag(block.basis, BASES[block.basis]) if block.basis else Html()
                theme.show(Html(f'<p class="mv-line">{html(block.text)} {html(basis)}</p>'))
            case Table():
                frame = pd.DataFrame(list(block.rows), columns=list(block.heads))
                st.dataframe(frame, hide_index=True, row_height=ROW, key=block.key, placeholder="", alt=block.alt)
            case Facts():
                theme.show(block.html)
            case Code():
                st.code(block.text, language=None, wrap_lines=True)
            case Figure():
                theme.chart(block.draw(theme.figure_theme()), block.key)
            case Section():
                theme.section(block.title)
                draw(block.blocks)
