"""The stepper: a run played frame by frame, with both caches, as one element in the browser.

Knows runs; `frames` says what happens, `payload` what is sent. Which frame is shown is the browser's to know: it
reports it when the hand rests, and Python sends another only where the page asks for something else than was reported.

What is sent is one JSON-able dict, sent once: tokens are indices into `pieces`, and what JavaScript draws of a frame is
all in the frame and in the one before it."""

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

Payload = dict[str, Any]
"""JSON-able; `id` is a digest of all the rest."""
PROMPT = 1200
"""Characters of the prompt's end that are shown."""


def playback_payload(played: Playback) -> Payload:
    """Everything that the stepper shows. Two playbacks with equal contents have equal payloads."""
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
    payload = json.loads(json.dumps(payload))  # tuples become lists, as they will on the way
    return identified(payload)


class _Tokens(Pieces):
    """Of a run, by their ids."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run

    def index(self, token: int) -> int:
        return self.place(self._run.pieces[int(token)].text)


def _round(round_: Round, pieces: _Tokens) -> Payload:
    """The drafted tokens, and what reached the text with its outcome and the ratio at which that was decided."""
    kept, known = round_.decision.kept[: round_.kept], ratios(round_)
    outcomes = [round_.outcomes[node].value for node in kept]
    decided_at = [known.nodes[node] for node in kept]
    if round_.emission is not None:
        outcomes.append(round_.emission.value)
        decided_at.append(known.emission)
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
