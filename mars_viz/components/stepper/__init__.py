"""The stepper: a run played frame by frame, with both caches, as one element in the browser.

Knows runs and Streamlit's components; `frames` says what happens, `payload` what is sent, and the JavaScript that
`script` joins draws it. Which frame is shown is the browser's to know: it reports it when the hand rests, and Python
sends another only where the page asks for something else than was reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import streamlit as st

from mars_viz.components.lately import keep, memories, newest
from mars_viz.components.stepper.frames import Playback, playback
from mars_viz.components.stepper.payload import Payload, playback_payload
from mars_viz.components.stepper.script import script, style
from mars_viz.components.whereabouts import Whereabouts, position_of
from mars_viz.run import Run

__all__ = ["playback", "stepper"]

KIND = "stepper"
"""Of element, among those that a tab remembers."""


@dataclass(slots=True)
class _Memory:
    """What one element was last sent."""

    run: Run
    played: Playback
    payload: Payload
    where: Whereabouts[int]
    """The frame at which it stands."""

    @property
    def revision(self) -> str:
        return f"{self.payload['id']}-{self.where.turn}"


def stepper(run: Run, *, frame: int, key: str, large: bool = False) -> int:
    """Play the run, and return the index of the frame that is shown; `large` is type for the back row.

    `frame` is where to begin, and again whenever it changes from one call to the next; one that the run does not have
    becomes the nearest. Feed the returned index back, or leave the argument as it is.
    """
    memory = _remembered(run, frame, key)
    frame = min(max(0, frame), len(memory.played.frames) - 1)
    memory.where.settle(frame, _reported(st.session_state.get(key), memory.revision))
    _component()(
        key=key,
        data={
            "key": key,
            "revision": memory.revision,
            "frame": memory.where.sent,
            "large": large,
            "payload": memory.payload,
        },
        on_position_change=_nothing,
    )
    return memory.where.stands


def _remembered(run: Run, frame: int, key: str) -> _Memory:
    memory: _Memory | None = memories(KIND).get(key)
    if memory is None or memory.run is not run:
        played = playback(run)
        payload = playback_payload(played)
        frame = min(max(0, frame), len(played.frames) - 1)
        if memory is not None and memory.payload["id"] == payload["id"]:
            memory.run = run
        else:
            before = memory or newest(KIND)  # so that no revision comes twice
            memory = _Memory(run, played, payload, Whereabouts.begin(frame, before.where if before else None))
    keep(KIND, key, memory)
    return memory


def _reported(state: Any, revision: str) -> int | None:
    """Where the browser says it stands, if it speaks of what it was last sent."""
    position = position_of(state, revision)
    return None if position is None else int(position["frame"])


@cache
def _component() -> Any:
    return st.components.v2.component("mars_viz_stepper", js=script(), css=style())


def _nothing() -> None:
    """Named so that the element's values exist before the first report."""
