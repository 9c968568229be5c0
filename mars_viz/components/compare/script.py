"""The comparison's script: the explorer's files that show a text, and its own. Knows the files and their order only."""

from __future__ import annotations

from mars_viz.components.scripts import joined

SHARED = (
    "elements",
    "run",
    "decisions",
    "crossings",
    "numbers",
    "naming",
    "reading",
    "trajectories",
    "shades",
    "chunks",
    "keys",
    "upkeep",
    "shelves",
    "names",
    "stream",
)
"""Of the explorer: a run, a reading of it, and its tokens."""
MODULES = ("difference", "side", "linked", "lanes", "compare")
"""In the order in which they are joined; the last one is the way in."""
STYLES = ("explorer/explorer", "compare/compare")
"""The explorer's style first: its colours and tokens are the comparison's too."""


def script() -> str:
    """All modules as one JavaScript module."""
    return joined([*(f"explorer/{name}" for name in SHARED), *(f"compare/{name}" for name in MODULES)])


def style() -> str:
    """All rules as one style sheet."""
    return joined(STYLES, "css")
