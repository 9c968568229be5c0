"""Whether the browser shows what matters most, so that what can wait is sent after it and not beside it.

Knows Streamlit's components. A browser that is sent everything at once loads and draws all of it before it paints
anything: figures, whose library is by far the largest of the page, would hold up the text above them.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import streamlit as st

PATIENCE = 4.0
"""Seconds after which it is taken to be there, whatever the browser shows."""


def painted(selector: str, *, key: str) -> bool:
    """True in the rerun that follows the first frame with an element of that CSS selector; ask no more after that.

    Ask in a fragment, which alone is then run again. The selector is looked for in the page and in its components.
    """
    result = _component()(key=key, data=[{"selector": selector, "patience": PATIENCE}], on_painted_change=_nothing)
    return bool(result.get("painted"))


@cache
def _component() -> Any:
    return st.components.v2.component("mars_viz_painted", js=(files(__package__) / "painted.js").read_text("utf-8"))


def _nothing() -> None:
    """Named so that the element's value exists before the first report."""
