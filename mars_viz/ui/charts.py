"""Figures on a page: read aloud by their title, with a button that saves them. Knows Plotly's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from mars_viz import figures
from mars_viz.escapes import visible

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

FORMATS = ("SVG", "PNG")
"""What the button saves, the default first."""
FORMAT = "figure-format"
"""Under which name the session keeps which of them."""


def chart(figure: Figure, key: str, *, of: str = "", alt: str = "", saves: bool = True) -> None:
    """Draw it. Its file is named for the `key`, after what it is `of`; `alt` is read aloud in place of its title. No
    button `saves` a figure whose finding stands beside it on the page: the file would lack it."""
    kind = str(st.session_state.get(FORMAT) or FORMATS[0]).lower()
    saved = {"format": kind, "filename": f"{of}-{key}" if of else key, "scale": 2 if kind == "png" else 1}
    button: dict[str, object] = {"displayModeBar": False}
    if saves:
        button = {"displaylogo": False, "modeBarButtons": [["toImage"]], "toImageButtonOptions": saved}
    figure.update_layout(dragmode=False if _by_finger() else None)
    st.plotly_chart(figure, theme=None, key=key, config=button, alt=visible(alt or figures.spoken_title(figure)))


def _by_finger() -> bool:
    """True on a telephone or tablet: a finger that moves over a figure means the page, which Plotly would hold to zoom.
    As far as a browser says so: an iPad's calls itself a Macintosh."""
    agent = st.context.headers.get("User-Agent", "")
    return any(name in agent for name in ("Mobi", "Android", "iPad"))
