"""What the teaching page looks at, as query parameters, so that a link opens it again. Knows no Streamlit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from mars_viz.figures.words import exactly
from mars_viz.rules import rule_named
from mars_viz.run import Run
from mars_viz.ui.links import clipped, number_in


@dataclass(frozen=True, slots=True)
class LessonView:
    """What is shown, besides the run."""

    lesson: int = 0
    """Number of the lesson; 0 is the stepper alone."""
    frame: int | None = None
    """Frame of the stepper; None where nobody has moved it."""
    dial: float | None = None
    """Value of the run's dial; None for where the lesson or the run puts it."""
    teach: bool = False
    """True for large type without the page's controls."""
    knobs: Mapping[str, float] = field(default_factory=dict)
    """Where the lesson's knobs stand that were moved, by their names in KNOBS; whether they can stand there is the
    lesson's to say."""


@dataclass(frozen=True, slots=True)
class OpenedLesson:
    """A link, read."""

    view: LessonView
    """What of it can be shown."""
    complaints: tuple[str, ...] = ()
    """A sentence for each part that cannot."""


KNOBS = ("alpha", "block", "cost", "drafted", "draws", "shift")
"""What there is to move in a lesson, besides a run's dial."""
OWN = ("run", "lesson", "frame", "dial", "teach", *KNOBS)
"""The parameters that the page writes itself."""


def to_parameters(run_id: str, view: LessonView) -> dict[str, str]:
    """The query parameters of a view of a run; what is at its default is left out."""
    written = {
        "run": run_id,
        "lesson": str(view.lesson) if view.lesson else "",
        "frame": "" if view.frame is None else str(view.frame),
        "dial": "" if view.dial is None else exactly(view.dial),
        "teach": "1" if view.teach else "",
    } | {name: f"{value:.10g}" for name, value in view.knobs.items()}
    return {name: text for name, text in written.items() if text}


def from_parameters(parameters: Mapping[str, str], lessons: int) -> OpenedLesson:
    """The view that a link asks for, of so many lessons; parts that cannot be read take their default, with a
    complaint."""
    complaints: list[str] = []
    lesson, frame, dial = (parameters.get(name, "") for name in ("lesson", "frame", "dial"))
    if lesson and not (_whole(lesson) and int(lesson) <= lessons):
        complaints.append(f"There is no lesson “{clipped(lesson)}”; they go from 1 to {lessons}. The stepper is shown.")
        lesson = ""
    if frame and not _whole(frame):
        complaints.append(f"The link's step “{clipped(frame)}” is no whole number, so the run begins at its start.")
        frame = ""
    value = number_in(dial)
    if dial and value is None:
        complaints.append(f"The link's dial “{clipped(dial)}” is no number, so it stands where the run was made.")
    teach = parameters.get("teach", "") == "1"
    said = {name: number_in(parameters.get(name, "")) for name in KNOBS}
    knobs = {name: at for name, at in said.items() if at is not None}
    view = LessonView(int(lesson or 0), int(frame) if frame else None, value, teach, knobs)
    return OpenedLesson(view, tuple(complaints))


def fitted(view: LessonView, run: Run) -> OpenedLesson:
    """The view with a dial value that the run's rule does not have set back, and a complaint about it."""
    rule, value = rule_named(run.settings.rule), view.dial
    if value is None:
        return OpenedLesson(view)
    without = replace(view, dial=None)
    if rule.dial is None:
        return OpenedLesson(without, (f"The link sets a dial, but the rule of this run, {rule.title}, has none.",))
    if not rule.dial.low <= value <= rule.dial.high:
        said = f"The link's {rule.dial.symbol} = {value:g} lies outside {rule.dial.low:g} to {rule.dial.high:g}, "
        return OpenedLesson(without, (said + "so the dial stands where the run was made.",))
    return OpenedLesson(view)


def _whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 8
