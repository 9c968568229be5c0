"""The explorer's script: plain files, one noun each, that share one scope and are joined as they stand.

Knows the files and their order, and nothing of what is in them; `components.scripts` joins them.
"""

from __future__ import annotations

from mars_viz.components.scripts import joined

MODULES = (
    "elements",
    "run",
    "decisions",
    "crossings",
    "numbers",
    "naming",
    "reading",
    "trajectories",
    "sentence",
    "shades",
    "overlays",
    "tiles",
    "tip",
    "strip",
    "lengths",
    "dial",
    "chunks",
    "keys",
    "upkeep",
    "shelves",
    "names",
    "stream",
    "law",
    "evidence",
    "inspector",
    "explorer",
)
"""In the order in which they are joined; the last one is the way in."""


def script() -> str:
    """All modules as one JavaScript module."""
    return joined(f"explorer/{name}" for name in MODULES)
