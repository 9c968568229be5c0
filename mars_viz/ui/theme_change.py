"""That a page is drawn again when its theme changes. Knows nothing of what is drawn."""

from __future__ import annotations

import streamlit as st

from mars_viz.components.mount import Element, mount

THEME_CHANGE = Element("mars_viz_theme_change", ("theme_change",))


def redraw_at_change() -> None:
    """Run the script again where the page's theme is not, or is no longer, the one it was drawn for: in the menu or by
    the system's clock Streamlit changes its own colours alone, and figures keep theirs."""
    if drawn := st.context.theme.type:
        mount(THEME_CHANGE, [drawn], key="theme-change", answers=("changed",))
