"""What goes wrong while a run is drawn stays where it is drawn: a sentence there, the traceback in the log.

Knows Streamlit; what is drawn is an argument. Every page, and every fragment of one, is drawn this way.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, overload

import streamlit as st

from mars_viz.errors import BadInput, contained
from mars_viz.ui import theme

P = ParamSpec("P")
REMEDY = "Choose another run or sweep, or open the page anew."


def drawn(draw: Callable[P, object]) -> Callable[P, None]:
    """What this draws, or a sentence in its place. Streamlit's own ways to end a script or to run it again, which are
    no exceptions to Python, pass."""

    @wraps(draw)
    def safely(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            with contained("This part of the page", REMEDY):
                draw(*args, **kwargs)
        except BadInput as error:
            theme.note(str(error))

    return safely


@overload
def fragment(draw: Callable[P, object], *, run_every: float | None = None) -> Callable[P, None]: ...
@overload
def fragment(*, run_every: float) -> Callable[[Callable[P, object]], Callable[P, None]]: ...
def fragment(draw: Callable[..., object] | None = None, *, run_every: float | None = None) -> Callable[..., Any]:
    """Streamlit's fragment, drawn so; likewise as a decorator."""
    if draw is None:
        return lambda given: fragment(given, run_every=run_every)
    return st.fragment(drawn(draw), run_every=run_every)
