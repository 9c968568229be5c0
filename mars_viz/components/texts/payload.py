"""What the browser needs of two texts that come without their rounds: one JSON-able dict. Knows alignments only."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from mars_viz.analysis.alignment import Side, Unit, Written
from mars_viz.components.compare.payload import rows_of

Payload = dict[str, Any]
"""JSON-able."""


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


def texts_payload(prompt: str, left: TextPane, right: TextPane, unit: Unit) -> Payload:
    """Both, after the prompt; `id` tells them from any other two. Tokens in common are so in pairs where they are what
    the texts were aligned by."""
    payload = {"prompt": prompt, "positions": unit is Unit.TOKENS, "left": _pane(left), "right": _pane(right)}
    digest = hashlib.blake2b(json.dumps(payload, sort_keys=True).encode(), digest_size=12).hexdigest()
    return {"id": digest, **payload}


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
