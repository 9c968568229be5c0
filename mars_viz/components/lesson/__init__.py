"""A lesson's knobs and its figure, which follows them in the browser, as one element.

Knows Streamlit's components; what is drawn at every position was sent once, and the JavaScript that `script` joins
draws it. Where the knobs stand is the browser's to know: it reports it when the hand rests, and Python sends another
position only where the page asks for something else than was reported.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from functools import cache
from typing import Any

import streamlit as st

from mars_viz.components.lesson.script import script, style
from mars_viz.components.whereabouts import Whereabouts, position_of

__all__ = ["Kind", "Knob", "lesson_figure"]


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


@dataclass(slots=True)
class _Memory:
    """What one element was last sent."""

    digest: str
    where: Whereabouts[dict[str, float]]

    @property
    def revision(self) -> str:
        return f"{self.digest}-{self.where.turn}"


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
    name = f"memory-of-{key}"  # in front: a key may end with anything, such as the name of a sweep
    memory: _Memory | None = st.session_state.get(name)
    if memory is None:
        memory = _Memory(digest, Whereabouts.begin(asked))
    reported = _reported(st.session_state.get(key), memory.revision, knobs)
    if memory.digest == digest:
        memory.where.settle(asked, reported)
    else:
        where = memory.where.renewed(asked, reported)
        where.sent = where.stands = {knob.name: knob.settled(where.stands.get(knob.name)) for knob in knobs}
        memory = _Memory(digest, where)
    st.session_state[name] = memory
    own = {"id": digest, "key": key, "revision": memory.revision, "position": memory.where.sent}
    _component()(key=key, data=[{**own, **sent, "label": label, "large": large}], on_position_change=_nothing)
    return memory.where.stands


def _reported(state: Any, revision: str, knobs: Sequence[Knob]) -> dict[str, float] | None:
    """Where the browser says the knobs stand, if it speaks of what it was last sent."""
    position = position_of(state, revision)
    return None if position is None else {knob.name: knob.settled(float(position[knob.name])) for knob in knobs}


@cache
def _component() -> Any:
    return st.components.v2.component("mars_viz_lesson", js=script(), css=style())


def _nothing() -> None:
    """Named so that the element's values exist before the first report."""
