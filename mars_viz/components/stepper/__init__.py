"""The stepper: a run played frame by frame, with both caches, as one element in the browser.

Knows runs and Streamlit's components; `frames` says what happens, `payload` what is sent, and the JavaScript that
`script` joins draws it. Which frame is shown is the browser's to know: it reports it when the hand rests, and Python
sends another only where the page asks for something else than was reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import streamlit as st

from mars_viz.components.stepper.frames import Playback, playback
from mars_viz.components.stepper.payload import Payload, playback_payload
from mars_viz.components.stepper.script import script, style
from mars_viz.run import Run

__all__ = ["playback", "stepper"]


@dataclass(slots=True)
class _Memory:
    """What one element was last sent, and where it last stood."""

    run: Run
    played: Playback
    payload: Payload
    asked: int
    """What the page last asked for."""
    sent: int
    """What the browser was last told."""
    stands: int
    """Where the browser stands, as far as it has reported."""
    turn: int = 0
    """Counts the times that the browser was told; a report from an earlier turn is out of date."""

    @property
    def revision(self) -> str:
        return f"{self.payload['id']}-{self.turn}"

    def tell(self, frame: int) -> None:
        self.sent = self.stands = frame
        self.turn += 1


def stepper(run: Run, *, frame: int, key: str, large: bool = False) -> int:
    """Play the run, and return the index of the frame that is shown; `large` is type for the back row.

    `frame` is where to begin, and again whenever it changes from one call to the next; one that the run does not have
    becomes the nearest. Feed the returned index back, or leave the argument as it is.
    """
    memory = _remembered(run, frame, key)
    frame = min(max(0, frame), len(memory.played.frames) - 1)
    reported = _reported(st.session_state.get(key), memory.revision)
    if frame not in (memory.asked, memory.stands, reported):  # the page may be one report behind
        memory.tell(frame)
    elif reported is not None:
        memory.stands = reported
    elif memory.stands != memory.sent:
        memory.tell(memory.stands)  # the element was away: it starts again from what it is sent
    memory.asked = frame
    _component()(
        key=key,
        data={
            "key": key,
            "revision": memory.revision,
            "frame": memory.sent,
            "large": large,
            "payload": memory.payload,
        },
        on_position_change=_nothing,
    )
    return memory.stands


def _remembered(run: Run, frame: int, key: str) -> _Memory:
    name = f"{key}.memory"
    memory: _Memory | None = st.session_state.get(name)
    if memory is None or memory.run is not run:
        played = playback(run)
        payload = playback_payload(played)
        frame = min(max(0, frame), len(played.frames) - 1)
        if memory is not None and memory.payload["id"] == payload["id"]:
            memory.run = run
        else:
            turn = 0 if memory is None else memory.turn + 1
            memory = _Memory(run, played, payload, frame, frame, frame, turn)
        st.session_state[name] = memory
    return memory


def _reported(state: Any, revision: str) -> int | None:
    """Where the browser says it stands, if it speaks of what it was last sent."""
    position = state.get("position") if isinstance(state, Mapping) else None
    if not isinstance(position, Mapping) or position.get("revision") != revision:
        return None
    return int(position["frame"])


@cache
def _component() -> Any:
    return st.components.v2.component("mars_viz_stepper", js=script(), css=style())


def _nothing() -> None:
    """Named so that the element's values exist before the first report."""
