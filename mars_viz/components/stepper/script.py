"""The stepper's script: its own files after the explorer's way of making elements, and showing and naming tokens.

Knows the files and their order, and nothing of what is in them; `components.scripts` joins them.
"""

from __future__ import annotations

from mars_viz.components.scripts import joined

MODULES = (
    "explorer/elements",
    "explorer/numbers",
    "explorer/naming",
    "race/listed",
    "stepper/caches",
    "stepper/stage",
    "stepper/controls",
    "stepper/stepper",
)
"""In the order in which they are joined; the last one is the way in."""
STYLES = ("explorer/explorer", "stepper/stepper")
"""The explorer's colours and looks of tokens, then what is the stepper's own."""


def script() -> str:
    """All modules as one JavaScript module."""
    return joined(MODULES)


def style() -> str:
    """All styles as one."""
    return joined(STYLES, "css")
