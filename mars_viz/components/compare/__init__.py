"""Two elements for comparing texts: two runs side by side with a strip of alternatives, and two texts without rounds.

`payload` builds the data. The reader's requests return as `Asked`, and the page answers by sending another payload.
"""

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
"""Scripts of the explorer that show a run and its tokens."""
OWN = ("compare/difference", "compare/side", "compare/linked", "compare/lanes", "compare/compare")
ELEMENT = Element("mars_viz_compare", (*SHARED, *OWN), ("explorer/explorer", "compare/compare"))


class Ask(Enum):
    """A kind of request."""

    SHOW = "show"  # compare a text with the reference
    PIN = "pin"  # make a text the reference
    TOKEN = "token"  # select a token
    COLOUR = "colour"  # colour the tokens by something else


@dataclass(frozen=True, slots=True)
class Asked:
    """A request of the reader."""

    what: Ask
    value: str  # the key of a text, or the name of a colouring; not validated


def compare(payload: Payload, *, key: str, on_ask: Callable[[Asked], None]) -> None:
    """Show the texts. `on_ask` is called before the rerun that a request causes."""

    def asked() -> None:
        state = st.session_state.get(key)
        request = _read(state.get("asked") if isinstance(state, Mapping) else None)
        if request is not None:
            on_ask(request)

    mount(ELEMENT, [payload], key=key, answers={"asked": asked})


def _read(value: object) -> Asked | None:
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
    """One of two texts to compare."""

    name: str
    detail: str  # a one-line summary
    text: Written  # the tokens and their text pieces
    side: Side  # the parts that both texts have in common


def two_texts(payload: Payload, *, key: str) -> None:
    """Show two texts side by side."""
    mount(TEXTS, [payload], key=key)


def texts_payload(prompt: str, left: TextPane, right: TextPane, unit: Unit) -> Payload:
    """Return the payload of both texts, with an `id` that is unique to its contents.

    Common tokens correspond one to one if the texts were aligned by tokens.
    """
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
