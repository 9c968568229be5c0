"""A token's text as a label: what cannot be seen is made visible, and it is never long. Text is data: escaped."""

from __future__ import annotations

from mars_viz.escapes import codepoint, figure, undrawn

_VISIBLE = {" ": "·", "\n": "⏎", "\t": "⇥"}
LONGEST = 14
"""Characters of a label."""


def token_label(text: str, longest: int = LONGEST) -> str:
    """`shown_token`, escaped for a figure."""
    return figure(shown_token(text, longest))


def shown_token(text: str, longest: int = LONGEST) -> str:
    """The text with whitespace as marks and control characters as code points, and cut."""
    cut = text if len(text) <= longest else text[: longest - 1] + "…"
    return "".join(map(_seen, cut)) or "(empty)"


def _seen(char: str) -> str:
    if char in _VISIBLE:
        return _VISIBLE[char]
    return codepoint(char) if undrawn(char) else char
