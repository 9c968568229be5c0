"""Two texts side by side, as they were written, as one element in the browser: for texts whose rounds nobody kept.

Knows Streamlit's components; what is sent is made by `payload`, what is shown by the JavaScript that `script` joins.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import streamlit as st

from mars_viz.components.texts.payload import Payload
from mars_viz.components.texts.script import script, style

__all__ = ["two_texts"]


def two_texts(payload: Payload, *, key: str) -> None:
    """Show them."""
    _component()(key=key, data=payload)


@cache
def _component() -> Any:
    return st.components.v2.component("mars_viz_texts", js=script(), css=style())
