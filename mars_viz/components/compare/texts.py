"""Two texts side by side, as they were written, as one element in the browser: for texts whose rounds nobody kept.

Knows alignments; what is sent is JSON-able.
"""

from __future__ import annotations

from dataclasses import dataclass

from mars_viz.analysis.alignment import Side, Unit, Written
from mars_viz.components.compare.payload import Payload, rows_of
from mars_viz.components.explorer.packing import identified
from mars_viz.components.mount import Element, mount

ELEMENT = Element(
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
    mount(ELEMENT, [payload], key=key)


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
