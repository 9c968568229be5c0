"""A lesson's knobs and its figure, which follows them in the browser, as one element.

What is drawn at every position was sent once. Where the knobs stand is the browser's to know: it reports it when the
hand rests, and Python sends another position only where the page asks for something else than was reported.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from mars_viz.components.mount import Element, mount
from mars_viz.components.session_cache import Memory, PositionSync, begun, recalled
from mars_viz.figures.style import DARK, LIGHT, Theme

__all__ = ["Kind", "Knob", "lesson_figure"]

KIND = "lesson"
"""Of element, among those that a tab remembers."""
MOST = 64
"""Elements that a tab remembers: no more than where they stood."""


def _marks(theme: Theme) -> str:
    """The colours of figures' marks, so that a lesson's figure looks like any other."""
    return " ".join(f"--m-{name}: {getattr(theme, name)};" for name in ("dial", "relaxed", "rejected", "quiet"))


SHARED = ("mount", *(f"explorer/{name}" for name in ("elements", "numbers", "colours", "strip")), "marks")
OWN = ("chart", "knobs", "drafting", "rollback", "lossless", "shift", "choosing", "branching", "setting", "lesson")
ELEMENT = Element(
    "mars_viz_lesson",
    (*SHARED, *(f"lesson/{name}" for name in OWN)),
    ("explorer/explorer", "lesson/lesson"),
    f".lesson {{ {_marks(LIGHT)} }}\n.lesson[data-theme=dark] {{ {_marks(DARK)} }}\n",
)


class Kind(Enum):
    """Which figure; each is a JavaScript file of that name, which says what data it takes."""

    DRAFTING = "drafting"
    """Speed-up over α: knobs `alpha`, `block`, `cost`."""
    ROLLBACK = "rollback"
    """Kept and rolled back drafts: a knob `drafted`."""
    LOSSLESS = "lossless"
    """Two laws and trials on them: a knob `draws`."""
    SHIFT = "shift"
    """Ratios under a constant: a knob `shift`."""
    CHOOSING = "choosing"
    """What a dial yields and writes: a knob `dial`."""
    BRANCHING = "branching"
    """Speed-up of trees and chains over their nodes: knobs `alpha`, `second`, `wider`."""
    SETTING = "setting"
    """A sweep's key figures at a setting, and the mark of it on a figure of the page: a knob `dial`."""


@dataclass(frozen=True, slots=True)
class Knob:
    """One thing to move."""

    name: str
    """In the figure's script and in the page's address."""
    label: str
    """In words."""
    start: float
    """Where it stands at first, and goes back to on a double click."""
    low: float = 0.0
    """Its left end; without meaning where it has stops."""
    high: float = 1.0
    """Its right end; likewise."""
    step: float = 1.0
    """The smallest move; likewise."""
    digits: int = 0
    """Decimals that are shown."""
    stops: tuple[float, ...] | None = None
    """The only values there are, ascending; None for all of a range."""
    help: str = ""
    """A line on hover."""
    exact: bool = False
    """True if a value between two steps stays as it was asked for; the hand moves by steps all the same."""

    def settled(self, value: float | None) -> float:
        """The value that the knob can take: the start or an end as it is, the nearest multiple of the step inside, and
        the start in place of what lies outside or is no stop."""
        if value is None:
            return self.start
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
    """Show the knobs and the figure, and return where the knobs stand, by name.

    `position` is where they stand at first, and again whenever it changes from one call to the next; feed the returned
    position back, or leave the argument as it is. `figure` is plain JSON without NaN; `large` is type for the back row.
    """
    sent = {"kind": kind.value, "knobs": [asdict(knob) for knob in knobs], "figure": figure}
    digest = hashlib.blake2b(json.dumps(sent, sort_keys=True, allow_nan=False).encode(), digest_size=12).hexdigest()
    asked = {knob.name: knob.settled(position.get(knob.name)) for knob in knobs}
    memory: Memory[None, dict[str, float]] | None = recalled(KIND, key)
    if memory is None:
        memory = begun(KIND, key, digest, None, PositionSync.begin(asked), most=MOST)
    said = memory.reported(key)
    reported = None if said is None else {knob.name: knob.settled(float(said[knob.name])) for knob in knobs}
    if memory.id == digest:
        memory.where.settle(asked, reported)
    else:
        where = memory.where.renewed(asked, reported)
        where.sent = where.stands = {knob.name: knob.settled(where.stands.get(knob.name)) for knob in knobs}
        memory = begun(KIND, key, digest, None, where, most=MOST)
    own = {"id": digest, "key": key, "revision": memory.revision, "position": memory.where.sent}
    mount(ELEMENT, [{**own, **sent, "label": label, "large": large}], key=key, answers=("position",))
    return memory.where.stands
