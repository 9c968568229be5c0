"""A lesson's knobs and figure, as one element that the browser updates.

The data for every position is sent once. The browser owns the knobs' positions and reports them when the pointer rests.
Python sends new ones only if the page asks for values that were not reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from mars_viz.components.explorer.payload import identified
from mars_viz.components.mount import Element, mount
from mars_viz.components.session_cache import begun, recalled
from mars_viz.figures.style import DARK, LIGHT

__all__ = ["Kind", "Knob", "lesson_figure"]

KIND = "lesson"  # kind of element, for the session's cache
MOST = 64  # elements to remember per tab; each stores only a position


SHARED = ("mount", *(f"explorer/{name}" for name in ("elements", "numbers", "colours", "strip")), "marks")
OWN = ("chart", "knobs", "drafting", "rollback", "lossless", "shift", "choosing", "branching", "setting", "lesson")
MARKS = [
    " ".join(f"--m-{name}: {getattr(theme, name)};" for name in ("dial", "relaxed", "rejected", "quiet"))
    for theme in (LIGHT, DARK)
]
"""CSS variables of mark colours, so that lessons match the other figures."""
RULES = f".lesson {{ {MARKS[0]} }}\n.lesson[data-theme=dark] {{ {MARKS[1]} }}\n"
SCRIPTS = (*SHARED, *(f"lesson/{name}" for name in OWN))
ELEMENT = Element("mars_viz_lesson", SCRIPTS, ("explorer/explorer", "lesson/lesson"), RULES)


class Kind(Enum):
    """The figure to draw; each kind is a JavaScript file of that name, which documents its data."""

    DRAFTING = "drafting"  # speed-up over α: knobs `alpha`, `block`, `cost`
    ROLLBACK = "rollback"  # accepted and rolled-back drafts: knob `drafted`
    LOSSLESS = "lossless"  # two distributions and samples of them: knob `draws`
    SHIFT = "shift"  # ratios under an added constant: knob `shift`
    CHOOSING = "choosing"  # speed-up and text at a dial value: knob `dial`
    BRANCHING = "branching"  # speed-up of trees and chains by number of nodes: knobs `alpha`, `second`, `wider`
    SETTING = "setting"  # key figures of a sweep at a setting, marked in a figure of the page: knob `dial`


@dataclass(frozen=True, slots=True)
class Knob:
    """A control of a lesson."""

    name: str  # name in the figure's script and in the page's address
    label: str
    start: float  # initial value; a double click restores it
    low: float = 0.0  # left end; ignored if there are stops
    high: float = 1.0  # right end; ignored if there are stops
    step: float = 1.0  # smallest move; ignored if there are stops
    digits: int = 0  # number of displayed decimals
    stops: tuple[float, ...] | None = None  # the only possible values, ascending; None for the whole range
    help: str = ""  # tooltip
    exact: bool = False  # True to keep requested values between two steps; the pointer still moves by steps

    def settled(self, value: float | None) -> float:
        """Return a valid value: rounded to the step inside the range, or the start if outside or not a stop.

        The start and both ends are never rounded.
        """
        if value is None:
            return self.start
        value = float(value)
        if self.stops is not None:
            return value if value in self.stops else self.start
        if not self.low <= value <= self.high:
            return self.start
        if self.exact or value in (self.start, self.low, self.high):
            return value
        return min(max(round(round(value / self.step) * self.step, 10), self.low), self.high)


def lesson_figure(
    kind: Kind,
    knobs: Sequence[Knob],
    figure: Mapping[str, Any],
    position: Mapping[str, float],
    *,
    key: str,
    label: str,
    large: bool = False,
) -> dict[str, float]:
    """Show the knobs and the figure; return the knobs' values by name.

    `position` sets the values at first, and again whenever it changes between calls. Pass the returned values back, or
    leave the argument unchanged. `figure` is JSON-compatible without NaN. `large` is large type for projection.
    """
    sent = {"kind": kind.value, "knobs": [asdict(knob) for knob in knobs], "figure": figure}
    digest = str(identified(sent)["id"])

    def settled(values: Mapping[str, Any]) -> dict[str, float]:
        return {knob.name: knob.settled(values.get(knob.name)) for knob in knobs}

    requested, memory = settled(position), recalled(KIND, key)
    if memory is None:
        memory = begun(KIND, key, digest, None, requested, most=MOST)
    answer = memory.reported(key)
    reported = None if answer is None else settled(answer)
    if memory.id == digest:
        memory.settle(requested, reported)
    else:
        memory = begun(KIND, key, digest, None, requested, settled(memory.renew(requested, reported)), most=MOST)
    state = {"id": digest, "key": key, "revision": memory.revision, "position": memory.sent}
    mount(ELEMENT, [{**state, **sent, "label": label, "large": large}], key=key, answers=("position",))
    return memory.stands
