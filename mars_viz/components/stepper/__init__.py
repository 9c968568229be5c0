"""The stepper: a run played frame by frame with both caches, as one browser element.

`frames` defines the frames. The browser owns the current frame and reports it when the pointer rests; Python sends
another one only if the page asks for a frame that was not reported. The payload is sent once. Tokens are indices into
`pieces`, and JavaScript draws a frame from that frame and the one before.
"""

from __future__ import annotations

import json
from typing import Any

from mars_viz.components.explorer.packing import identified
from mars_viz.components.mount import Element, mount
from mars_viz.components.session_cache import PositionSync, begun, recalled
from mars_viz.components.stepper.frames import Frame, Jump, Playback, playback
from mars_viz.components.stepper.narration import Quoted, Words
from mars_viz.components.tokens import Pieces, ratios
from mars_viz.records import Outcome, Round
from mars_viz.run import Run

Payload = dict[str, Any]  # JSON-compatible; `id` is a digest of the rest
PROMPT = 1200  # characters shown from the end of the prompt


def playback_payload(played: Playback) -> Payload:
    """Return the stepper's data. Equal playbacks have equal payloads."""
    run, rounds = played.run, played.run.rounds[: played.rounds]
    pieces = _Tokens(run)
    payload: Payload = {
        "prompt": run.prompt if len(run.prompt) <= PROMPT else "…" + run.prompt[-PROMPT:],
        "prompt_tokens": len(run.prompt_ids),
        "rounds": [_round(round_, pieces) for round_ in rounds],
        "frames": [_frame(frame, pieces) for frame in played.frames],
        "jumps": {jump.value: played.places(jump) for jump in Jump},
    }
    payload["pieces"] = pieces.texts
    payload = json.loads(json.dumps(payload))  # turn tuples into lists, as JSON will
    return identified(payload)


class _Tokens(Pieces):
    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run

    def index(self, token: int) -> int:
        return self.place(self._run.pieces[int(token)].text)


def _round(round_: Round, pieces: _Tokens) -> Payload:
    kept, decided = round_.decision.kept[: round_.kept], ratios(round_)
    outcomes = [round_.outcomes[node].value for node in kept]
    decided_at = [decided.nodes[node] for node in kept]
    if round_.emission is not None:
        outcomes.append(round_.emission.value)
        decided_at.append(decided.emission)
    return {
        "parents": round_.speculation.parents.tolist() if round_.speculation.is_tree else None,
        "drafted": [pieces.index(token) for token in round_.speculation.tokens],
        "text": [pieces.index(token) for token in round_.token_ids],
        "outcomes": outcomes,
        "ratios": decided_at,
    }


def _frame(frame: Frame, pieces: _Tokens) -> Payload:
    return {
        "stage": frame.stage.value,
        "round": frame.round,
        "words": _words(frame.words, pieces),
        "certain": frame.certain,
        "written": frame.written,
        "target": frame.target_cache,
        "drafter": frame.drafter_cache,
        "marks": "".join(str(int(mark)) for mark in frame.marks),
        "judged": frame.judged,
        "emission": None if frame.emission is None else Outcome(frame.emission).value,
    }


def _words(words: Words, pieces: _Tokens) -> list[str | Payload]:
    return [{"token": pieces.index(part.token)} if isinstance(part, Quoted) else part for part in words]


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
