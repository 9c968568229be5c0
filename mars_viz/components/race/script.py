"""The race's script: its own small files after the two of the explorer that write tokens and know the theme."""

from __future__ import annotations

from importlib.resources import files

SHARED = ("elements", "shades")
"""Of the explorer."""
MODULES = ("clock", "track", "controls", "board", "race")
"""In the order in which they are joined; the last one is the way in."""


def script() -> str:
    """All of them as one JavaScript module."""
    own, explorer = files(__package__), files("mars_viz.components.explorer")
    parts = [explorer / f"{name}.js" for name in SHARED] + [own / f"{name}.js" for name in MODULES]
    return "\n".join(part.read_text("utf-8") for part in parts)


def style() -> str:
    """The explorer's looks, and what is the race's own."""
    own, explorer = files(__package__), files("mars_viz.components.explorer")
    return (explorer / "explorer.css").read_text("utf-8") + (own / "race.css").read_text("utf-8")
