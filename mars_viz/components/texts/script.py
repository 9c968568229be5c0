"""The script of two texts: what the explorer and the comparison have for tokens, and its own. Knows files only."""

from __future__ import annotations

from mars_viz.components.scripts import joined

MODULES = ("explorer/elements", "explorer/shades", "compare/difference", "texts/texts")
"""In the order in which they are joined; the last one is the way in."""
STYLES = ("explorer/explorer", "compare/compare", "texts/texts")
"""What looks alike is written once."""


def script() -> str:
    """All modules as one JavaScript module."""
    return joined(MODULES)


def style() -> str:
    """All rules as one style sheet."""
    return joined(STYLES, "css")
