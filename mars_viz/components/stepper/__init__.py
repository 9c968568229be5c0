"""The stepper: a run played frame by frame, with both caches, as one element in the browser.

Knows runs; `frames` says what happens, `payload` what is sent. Which frame is shown is the browser's to know: it
reports it when the hand rests, and Python sends another only where the page asks for something else than was reported.
"""

from __future__ import annotations

from mars_viz.components.mount import Element, mount
from mars_viz.components.position_sync import PositionSync
from mars_viz.components.session_cache import begun, recalled
from mars_viz.components.stepper.frames import Playback, playback
from mars_viz.components.stepper.payload import playback_payload
from mars_viz.run import Run

__all__ = ["playback", "stepper"]

KIND = "stepper"
"""Of element, among those that a tab remembers."""
SHARED = ("mount", "explorer/elements", "explorer/numbers", "race/listed")
OWN = ("stepper/stage", "stepper/controls", "stepper/stepper")
ELEMENT = Element("mars_viz_stepper", (*SHARED, *OWN), ("explorer/explorer", "stepper/stepper"))


def stepper(run: Run, *, frame: int, key: str, large: bool = False) -> int:
    """Play the run, and return the index of the frame that is shown; `large` is type for the back row.

    `frame` is where to begin, and again whenever it changes from one call to the next; one that the run does not have
    becomes the nearest. Feed the returned index back, or leave the argument as it is.
    """
    memory = recalled(KIND, key)
    if memory is None or memory.contents[0].run is not run:
        played = playback(run)
        payload = playback_payload(played)
        if memory is not None and memory.id == payload["id"]:
            memory.contents = played, payload
        else:
            where = PositionSync.begin(_within(played, frame))
            memory = begun(KIND, key, payload["id"], (played, payload), where)
    played, payload = memory.contents
    reported = memory.reported(key)
    memory.where.settle(_within(played, frame), None if reported is None else int(reported["frame"]))
    position = {"revision": memory.revision, "frame": memory.where.sent}
    mount(ELEMENT, [{"key": key, "large": large, "payload": payload, **position}], key=key, answers=("position",))
    shown: int = memory.where.stands
    return shown


def _within(played: Playback, frame: int) -> int:
    return min(max(0, frame), len(played.frames) - 1)
