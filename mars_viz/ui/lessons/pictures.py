"""Figures of a lesson: the main figure with its controls, and an additional one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from plotly.graph_objects import Figure

from mars_viz.components.lesson import Kind, Knob

BUILT_IN_PAIR = "The built-in pair"
"""Name of the models for measurements and grades that are included with the product, at the beginning of a sentence."""


@dataclass(frozen=True, slots=True)
class LessonPicture:
    """A lesson's interactive figure."""

    kind: Kind
    knobs: tuple[Knob, ...]
    figure: Mapping[str, Any]  # JSON data for all positions of the controls
    label: str  # accessible name


@dataclass(frozen=True, slots=True)
class LessonAside:
    """Static figure next to the lesson's main figure."""

    figure: Figure  # its title is the result
    words: str  # basis of the figure, in a sentence
