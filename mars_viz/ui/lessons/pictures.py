"""What a lesson draws of a run: its own figure with the knobs that move it, and one beside it. Knows no page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from plotly.graph_objects import Figure

from mars_viz.components.lesson import Kind, Knob

BUILT_IN_PAIR = "The built-in pair"
"""Whose passes and graded exercises come with the product, in words that begin a sentence."""


@dataclass(frozen=True, slots=True)
class LessonPicture:
    """A lesson's figure and its knobs, as the browser draws them."""

    kind: Kind
    """Which figure."""
    knobs: tuple[Knob, ...]
    """What there is to move."""
    figure: Mapping[str, Any]
    """All that is drawn wherever they stand; JSON."""
    label: str
    """What a screen reader calls it."""


@dataclass(frozen=True, slots=True)
class LessonAside:
    """A figure beside a lesson's own that nothing moves."""

    figure: Figure
    """The figure; its title says the finding."""
    words: str
    """What it stands on, in a sentence."""
