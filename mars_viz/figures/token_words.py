"""A token's text as a label: what cannot be seen is made visible, and it is never long. Text is data: escaped."""

from __future__ import annotations

import unicodedata
from html import escape

_VISIBLE = {" ": "·", "\n": "⏎", "\t": "⇥"}
LONGEST = 14
"""Characters of a label."""


def token_label(text: str, longest: int = LONGEST) -> str:
    """The text with whitespace as marks and control characters as code points, cut, and escaped for HTML."""
    cut = text if len(text) <= longest else text[: longest - 1] + "…"
    return escape("".join(_seen(char) for char in cut), quote=False) or "(empty)"  # Plotly does not know &quot;


def _seen(char: str) -> str:
    if char in _VISIBLE:
        return _VISIBLE[char]
    return f"U+{ord(char):04X}" if unicodedata.category(char).startswith("C") else char
