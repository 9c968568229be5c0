"""The stepper: a run played frame by frame with both caches, as one browser element.

`frames` defines the frames. The browser owns the current frame and reports it when the pointer rests; Python sends
another one only if the page asks for a frame that was not reported. The payload is sent once. Tokens are indices into
`pieces`, and JavaScript draws a frame from that frame and the one before.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from mars_viz.components.explorer.payload import identified
from mars_viz.components.mount import Element, mount
from mars_viz.components.race import Pieces, ratios
from mars_viz.components.session_cache import PositionSync, begun, recalled
from mars_viz.components.stepper.frames import Jump, Playback, playback
from mars_viz.components.stepper.narration import Quoted
from mars_viz.records import Round
from mars_viz.run import Run

Payload = dict[str, Any]  # JSON-compatible; `id` is a digest of the rest
PROMPT = 1200  # characters shown from the end of the prompt


def playback_payload(played: Playback) -> Payload:
    """Return the stepper's data. Equal playbacks have equal payloads."""
    run, pieces = played.run, Pieces()

    def index(token: int) -> int:
        return pieces[run.pieces[int(token)].text]

    payload: Payload = {
        "prompt": run.prompt if len(run.prompt) <= PROMPT else "…" + run.prompt[-PROMPT:],
        "prompt_tokens": len(run.prompt_ids),
        "rounds": [_round(round_, index) for round_ in run.rounds[: played.rounds]],
        "frames": [
            {
                "stage": frame.stage.value,
                "round": frame.round,
                "words": [{"token": index(part.token)} if isinstance(part, Quoted) else part for part in frame.words],
                "certain": frame.certain,
                "written": frame.written,
                "target": frame.target_cache,
                "drafter": frame.drafter_cache,
                "marks": "".join(str(int(mark)) for mark in frame.marks),
                "judged": frame.judged,
                "emission": None if frame.emission is None else frame.emission.value,
            }
            for frame in played.frames
        ],
        "jumps": {jump.value: played.places(jump) for jump in Jump},
    }
    payload["pieces"] = list(pieces)
    return identified(json.loads(json.dumps(payload)))  # tuples become lists, as JSON will make them


def _round(round_: Round, index: Callable[[int], int]) -> Payload:
    kept, outcomes = round_.decision.kept[: round_.kept], round_.outcomes
    node_ratios, last_ratio = ratios(round_)
    decided = [(outcomes[node].value, node_ratios[node]) for node in kept]
    if round_.emission is not None:
        decided.append((round_.emission.value, last_ratio))
    return {
        "parents": round_.speculation.parents.tolist() if round_.speculation.is_tree else None,
        "drafted": [index(token) for token in round_.speculation.tokens],
        "text": [index(token) for token in round_.token_ids],
        "outcomes": [outcome for outcome, _ in decided],
        "ratios": [ratio for _, ratio in decided],
    }


__all__ = ["playback", "stepper"]

KIND = "stepper"  # kind of element, for the session's cache
SHARED = ("mount", "explorer/elements", "explorer/numbers", "race/listed")
OWN = ("stepper/stage", "stepper/controls", "stepper/stepper")
ELEMENT = Element("mars_viz_stepper", (*SHARED, *OWN), ("explorer/explorer", "stepper/stepper"))


def stepper(run: Run, *, frame: int, key: str, large: bool = False) -> int:
    """Play the run and return the index of the current frame; `large` is large type for projection.

    `frame` sets the frame at first, and again whenever it changes between calls; an index out of range is clipped. Pass
    the returned index back, or leave the argument unchanged.
    """
    memory = recalled(KIND, key)
    if memory is None or memory.contents[0] is not run:
        payload = playback_payload(playback(run))
        if memory is not None and memory.id == payload["id"]:
            memory.contents = run, payload
        else:
            first = min(max(0, frame), len(payload["frames"]) - 1)
            memory = begun(KIND, key, payload["id"], (run, payload), PositionSync.begin(first))
    payload, reported = memory.contents[1], memory.reported(key)
    asked = min(max(0, frame), len(payload["frames"]) - 1)
    memory.where.settle(asked, None if reported is None else int(reported["frame"]))
    position = {"revision": memory.revision, "frame": memory.where.sent}
    mount(ELEMENT, [{"key": key, "large": large, "payload": payload, **position}], key=key, answers=("position",))
    shown: int = memory.where.stands
    return shown
