"""The explorer's script: plain files, one noun each, that share one scope and are joined as they stand.

Knows the files and their order, and nothing of what is in them. Streamlit takes a component's script as one string, so
the files do not import each other: each may use what stands above it, and in its functions also what stands below.
"""

from __future__ import annotations

from importlib.resources import files

MODULES = (
    "elements",
    "run",
    "decisions",
    "numbers",
    "reading",
    "trajectories",
    "sentence",
    "shades",
    "overlays",
    "tiles",
    "tip",
    "strip",
    "dial",
    "chunks",
    "stream",
    "law",
    "inspector",
    "explorer",
)
"""In the order in which they are joined; the last one is the way in."""


def script() -> str:
    """All modules as one JavaScript module."""
    folder = files(__package__)
    return "\n".join((folder / f"{name}.js").read_text("utf-8") for name in MODULES)
