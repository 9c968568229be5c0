"""Two texts side by side, and a strip of those to leaf through, as one element in the browser; and another for texts
whose rounds nobody kept.

What is sent is made by `payload`. What the reader asks for comes back as an `Asked`; the page answers by sending
something else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

import streamlit as st

from mars_viz.analysis.alignment import Side, Unit, Written
from mars_viz.components.compare.payload import Payload, rows_of
from mars_viz.components.explorer.packing import identified
from mars_viz.components.mount import Element, mount

__all__ = ["Ask", "Asked", "TextPane", "compare", "texts_payload", "two_texts"]

SHARED = (
    "mount",
    "explorer/elements",
    "explorer/tip",
    "explorer/run",
    "explorer/decisions",
    "explorer/breakpoint_index",
    "explorer/numbers",
    "explorer/aria_labels",
    "explorer/reading",
    "explorer/trajectories",
    "explorer/colours",
    "explorer/placeholders",
    "explorer/virtual_list",
    "explorer/parting",
    "explorer/tree",
    "explorer/unfolding",
    "explorer/round_elements",
    "explorer/looks",
    "explorer/reconcile",
    "explorer/slot_marks",
    "explorer/stream",
)
"""Of the explorer: a run, a reading of it, and its tokens."""
OWN = ("compare/difference", "compare/side", "compare/linked", "compare/lanes", "compare/compare")
ELEMENT = Element("mars_viz_compare", (*SHARED, *OWN), ("explorer/explorer", "compare/compare"))


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

    mount(ELEMENT, [payload], key=key, answers={"asked": asked})


def _read(value: object) -> Asked | None:
    """What the browser sent; None for anything else."""
    if not isinstance(value, Mapping) or value.get("what") not in {each.value for each in Ask}:
        return None
    return Asked(Ask(value["what"]), str(value.get("value", "")))


TEXTS = Element(
    "mars_viz_texts",
    ("mount", "explorer/elements", "compare/difference", "compare/texts"),
    ("explorer/explorer", "compare/compare"),
)


@dataclass(frozen=True, slots=True)
class TextPane:
    """One of the two texts."""

    name: str
    """What it is called beside the other."""
    detail: str
    """What it came to, in a line."""
    text: Written
    """Its tokens, and what each reads."""
    side: Side
    """What of it the other has too."""


def two_texts(payload: Payload, *, key: str) -> None:
    """Show them."""
    mount(TEXTS, [payload], key=key)


def texts_payload(prompt: str, left: TextPane, right: TextPane, unit: Unit) -> Payload:
    """Both, after the prompt; `id` tells them from any other two. Tokens in common are so in pairs where they are what
    the texts were aligned by."""
    positions = unit is Unit.TOKENS
    return identified({"prompt": prompt, "positions": positions, "left": _pane(left), "right": _pane(right)})


def _pane(pane: TextPane) -> Payload:
    pieces = list(dict.fromkeys(pane.text.pieces))
    place = {piece: index for index, piece in enumerate(pieces)}
    return {
        "name": pane.name,
        "detail": pane.detail,
        "pieces": [{"text": piece.text, "special": piece.special} for piece in pieces],
        "tokens": [place[piece] for piece in pane.text.pieces],
        "common": rows_of(map(bool, pane.side.common)),
        "parts": pane.side.parts,
    }
