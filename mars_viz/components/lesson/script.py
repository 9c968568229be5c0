"""The lessons' script and style: the explorer's small pieces, a chart, knobs, and one file a lesson.

Knows the files and their order, and the colours that marks have in figures; knows nothing of what is in the files.
"""

from __future__ import annotations

from mars_viz.components.scripts import joined
from mars_viz.figures.style import DARK, LIGHT, Theme

SHARED = ("elements", "numbers", "shades", "strip")
"""Of the explorer: making elements, writing numbers, telling dark from light, the segments of a dial map."""
MODULES = ("chart", "knobs", "drafting", "rollback", "lossless", "shift", "choosing", "setting", "lesson")
"""In the order in which they are joined; the last one is the way in."""
STYLES = ("explorer/explorer", "lesson/lesson")
"""The explorer's colours and fonts, then what is the lessons' own."""


def script() -> str:
    """All modules as one JavaScript module."""
    return joined([*(f"explorer/{name}" for name in SHARED), "marks", *(f"lesson/{name}" for name in MODULES)])


def style() -> str:
    """All styles as one."""
    return f".lesson {{ {_marks(LIGHT)} }}\n.lesson[data-theme=dark] {{ {_marks(DARK)} }}\n{joined(STYLES, 'css')}"


def _marks(theme: Theme) -> str:
    """The colours of figures' marks, so that a lesson's figure looks like any other."""
    return " ".join(f"--m-{name}: {getattr(theme, name)};" for name in ("dial", "relaxed", "rejected", "quiet"))
