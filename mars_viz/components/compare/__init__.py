"""Two texts side by side, and a strip of those to leaf through, as one element in the browser.

Knows Streamlit's components; what is sent is made by `payload`, what is shown by the JavaScript that `script` joins.
What the reader asks for comes back as an `Asked`; the page answers by sending something else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any

import streamlit as st

from mars_viz.components.compare.payload import Payload
from mars_viz.components.compare.script import script, style

__all__ = ["Ask", "Asked", "compare"]


class Ask(Enum):
    """What a reader can ask for."""

    SHOW = "show"
    """Put a text beside the reference."""
    PIN = "pin"
    """Make a text the reference."""
    TOKEN = "token"
    """Select a token."""
    COLOUR = "colour"
    """Colour the tokens by something else."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One wish of the reader."""

    what: Ask
    """Of which kind."""
    value: str
    """The key of a text, or the name of what to colour by; not checked."""


def compare(payload: Payload, *, key: str, on_ask: Callable[[Asked], None]) -> None:
    """Show the texts. `on_ask` is called before the rerun that follows what the reader does."""

    def asked() -> None:
        state = st.session_state.get(key)
        found = _read(state.get("asked") if isinstance(state, Mapping) else None)
        if found is not None:
            on_ask(found)

    _component()(key=key, data=payload, on_asked_change=asked)


def _read(value: object) -> Asked | None:
    """What the browser sent; None for anything else."""
    if not isinstance(value, Mapping) or value.get("what") not in {each.value for each in Ask}:
        return None
    return Asked(Ask(value["what"]), str(value.get("value", "")))


@cache
def _component() -> Any:
    return st.components.v2.component("mars_viz_compare", js=script(), css=style())
