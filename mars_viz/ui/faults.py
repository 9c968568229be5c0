"""Confines errors to the part of a page that raised them: shows a sentence there and logs the traceback.

All pages and fragments are drawn this way.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

import streamlit as st

from mars_viz.errors import BadInput, contained
from mars_viz.ui import theme

P = ParamSpec("P")
REMEDY = "Choose another run or sweep, or reload the page."


def drawn(draw: Callable[P, object]) -> Callable[P, None]:
    """Wrap a drawing function so that an error is shown as a sentence in its place. Streamlit's exceptions that stop or
    rerun a script pass through."""

    @wraps(draw)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            with contained("This part of the page", REMEDY):
                draw(*args, **kwargs)
        except BadInput as error:
            theme.note(str(error))

    return wrapper


def fragment(draw: Callable[P, object], *, run_every: float | None = None) -> Callable[P, None]:
    """Return a Streamlit fragment that is drawn with `drawn`."""
    return st.fragment(drawn(draw), run_every=run_every)
