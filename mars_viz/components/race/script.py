"""The race's script: its own small files after those of the explorer that write tokens, name them and know the theme.

Knows the files and their order, and nothing of what is in them; `components.scripts` joins them.
"""

from __future__ import annotations

from mars_viz.components.scripts import joined

SHARED = ("elements", "numbers", "naming", "shades")
"""Of the explorer."""
MODULES = ("listed", "clock", "track", "controls", "board", "legend", "race")
"""In the order in which they are joined; the last one is the way in."""


def script() -> str:
    """All of them as one JavaScript module."""
    return joined([*(f"explorer/{name}" for name in SHARED), *(f"race/{name}" for name in MODULES)])


def style() -> str:
    """The explorer's looks, and what is the race's own."""
    return joined(("explorer/explorer", "race/race"), "css")
