"""What the browser needs to play a run: one JSON-able dict, sent once. Knows frames; knows no Streamlit and no HTML.

Tokens are indices into `pieces`; what JavaScript draws of a frame is all in the frame and in the one before it.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from mars_viz.components.ratios import ratios
from mars_viz.components.stepper.frames import Frame, Jump, Playback
from mars_viz.components.stepper.narration import Quoted, Words
from mars_viz.records import Outcome, Round

Payload = dict[str, Any]
"""JSON-able; `id` is a digest of all the rest."""
PROMPT = 1200
"""Characters of the prompt's end that are shown."""


def playback_payload(played: Playback) -> Payload:
    """Everything that the stepper shows. Two playbacks with equal contents have equal payloads."""
    run, rounds = played.run, played.run.rounds[: played.rounds]
    pieces = _Pieces()
    payload: Payload = {
        "prompt": run.prompt if len(run.prompt) <= PROMPT else "…" + run.prompt[-PROMPT:],
        "prompt_tokens": len(run.prompt_ids),
        "rounds": [_round(round_, pieces) for round_ in rounds],
        "frames": [_frame(frame, pieces) for frame in played.frames],
        "jumps": {jump.value: played.places(jump) for jump in Jump},
    }
    payload["pieces"] = [run.pieces[token].text for token in pieces.ids]
    payload = json.loads(json.dumps(payload))  # tuples become lists, as they will on the way
    digest = hashlib.blake2b(json.dumps(payload, sort_keys=True).encode(), digest_size=12).hexdigest()
    return {"id": digest, **payload}


class _Pieces:
    """Token ids in the order in which they were first mentioned."""

    def __init__(self) -> None:
        self.ids: dict[int, int] = {}

    def index(self, token: int) -> int:
        return self.ids.setdefault(int(token), len(self.ids))


def _round(round_: Round, pieces: _Pieces) -> Payload:
    """The drafted tokens, and what reached the text with its outcome and the ratio at which that was decided."""
    kept, known = round_.decision.kept[: round_.kept], ratios(round_)
    outcomes = [round_.outcomes[node].value for node in kept]
    decided_at = [known.nodes[node] for node in kept]
    if round_.emission is not None:
        outcomes.append(round_.emission.value)
        decided_at.append(known.emission)
    return {
        "drafted": [pieces.index(token) for token in round_.speculation.tokens],
        "text": [pieces.index(token) for token in round_.token_ids],
        "outcomes": outcomes,
        "ratios": decided_at,
    }


def _frame(frame: Frame, pieces: _Pieces) -> Payload:
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


def _words(words: Words, pieces: _Pieces) -> list[str | Payload]:
    return [{"token": pieces.index(part.token)} if isinstance(part, Quoted) else part for part in words]
