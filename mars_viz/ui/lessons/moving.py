"""A lesson's figure and its knobs, where the tab's memory and the address meet what the hand does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mars_viz.components.lesson import Kind, Knob, lesson_figure
from mars_viz.ui.lessons.base import LessonContext
from mars_viz.ui.lessons.page_state import write_address


def moving(
    room: LessonContext, kind: Kind, knobs: Sequence[Knob], figure: Mapping[str, Any], label: str
) -> dict[str, float]:
    """Show the figure, and return where its knobs rest; what was moved becomes part of the address."""
    known = room.desk.view.knobs
    key = f"lesson-{kind.value}-{room.run_id}"
    stands = lesson_figure(kind, knobs, figure, known, key=key, label=label, large=room.large)
    moved = {knob.name: stands[knob.name] for knob in knobs if stands[knob.name] != knob.start}
    if moved != known:
        room.desk.change(knobs=moved)
    write_address(room.desk)
    return stands
