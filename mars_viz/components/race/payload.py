"""What the browser needs to replay a race, or to show a decode as it grows: one JSON-able dict.

Knows records, races and words; knows no Streamlit and no HTML. A round is when its block was drafted and when it was
settled, in recorded seconds, its drafted tokens and the emitted one; a token is an index into `pieces`, one into
`looks`, the names of outcomes as the explorer's style has them, and the ratio at which it was decided, or None.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from mars_viz.components.ratios import ratios
from mars_viz.devices import short_device
from mars_viz.figures.words import number, setting
from mars_viz.race.records import Lane, Race, round_clock
from mars_viz.records import Outcome, Round
from mars_viz.rules import rule_named
from mars_viz.run import Run

Payload = dict[str, Any]

LOOKS = tuple(outcome.value for outcome in Outcome)
_AT = {outcome: place for place, outcome in enumerate(Outcome)}


class Pieces:
    """Texts of tokens, each once."""

    def __init__(self) -> None:
        """None yet."""
        self.texts: list[str] = []
        self._places: dict[str, int] = {}

    def place(self, text: str) -> int:
        """The index of this text."""
        if text not in self._places:
            self._places[text] = len(self.texts)
            self.texts.append(text)
        return self._places[text]


def race_payload(race: Race) -> Payload:
    """Three lanes and the end board. Two races with equal contents have equal payloads."""
    pieces = Pieces()
    alone = [
        {"drafted": at, "settled": at, "tokens": [], "emission": [_piece(race.strict, token, pieces), _quiet(), None]}
        for token, at in zip(race.alone.token_ids, race.alone.clock, strict=True)
    ]
    lanes = [
        {"title": "Autoregressive", "note": "The target alone, one token a pass", "judged": False, "rounds": alone},
        {"title": "Strict", "note": "Speculative, lossless", "judged": True, "rounds": _rounds(race.strict, pieces)},
        {
            "title": rule_words(race.relaxed),
            "note": "Speculative, relaxed",
            "judged": True,
            "rounds": _rounds(race.relaxed, pieces),
        },
    ]
    payload: Payload = {
        "live": False,
        "lanes": lanes,
        "pieces": pieces.texts,
        "looks": LOOKS,
        "prompt": race.strict.prompt,
        "board": board(race),
    }
    digest = hashlib.blake2b(json.dumps(payload, sort_keys=True).encode(), digest_size=12).hexdigest()
    return {"id": digest, **payload}


def live_payload(run: Run | None, prompt: str, job: str) -> Payload:
    """One lane that grows; `job` tells one decode from the next."""
    pieces = Pieces()
    rounds = [] if run is None else _rounds(run, pieces)
    lane = {"title": "The text so far", "note": "", "judged": True, "rounds": rounds}
    return {
        "id": job,
        "live": True,
        "lanes": [lane],
        "pieces": pieces.texts,
        "looks": LOOKS,
        "prompt": prompt,
        "board": None,
    }


def rule_words(run: Run) -> str:
    """'MARS, θ = 0.90'."""
    rule = rule_named(run.settings.rule)
    return rule.title if rule.dial is None else f"{rule.title}, {setting(rule.dial.symbol, run.settings.dial or 0.0)}"


def board(race: Race) -> Payload:
    """The end board in words."""
    texts = race.token_ids
    names = {Lane.ALONE: "Autoregressive", Lane.STRICT: "Strict", Lane.RELAXED: rule_words(race.relaxed)}
    rows = [
        [
            names[lane],
            f"{found.seconds:.2f} s",
            number(found.pace),
            f"{found.over_alone:.2f} ×",
            number(found.tokens),
            number(found.passes),
            f"{found.tau:.2f}",
            number(found.rolled_back),
            "–" if lane is Lane.ALONE else _same(texts[Lane.ALONE], texts[lane]),
        ]
        for lane, found in race.figures.items()
    ]
    return {"sentence": _sentence(race, race.pace), "columns": COLUMNS, "rows": rows}


COLUMNS = [
    {"name": "Lane", "help": "How the prompt was decoded"},
    {"name": "Time, measured", "help": "Wall clock on this device, once, the prompt's own pass excluded"},
    {"name": "Tokens/s, measured", "help": "Tokens over that time"},
    {"name": "Over autoregressive, measured", "help": "Its tokens per second over those of the target alone"},
    {"name": "Tokens", "help": "Emitted tokens; exact"},
    {"name": "Target passes", "help": "The prompt's own pass excluded; exact"},
    {"name": "τ", "help": "Tokens a pass of the target; exact"},
    {"name": "Rolled back", "help": "Drafted tokens that were thrown away; exact"},
    {"name": "Same text", "help": "Whether it is, token for token, what the target writes by itself"},
]


def _sentence(race: Race, pace: dict[Lane, float]) -> str:
    over_alone, over_strict = (pace[Lane.RELAXED] / pace[other] for other in (Lane.ALONE, Lane.STRICT))
    return (
        f"{rule_words(race.relaxed)} wrote {_times(over_alone)} as the target alone and {_times(over_strict)} as "
        f"strict, measured once on {short_device(race.strict.provenance.device) or 'an unnamed device'}."
    )


def _times(ratio: float) -> str:
    return f"{ratio:.2f} times as fast"


def _same(alone: tuple[int, ...], other: tuple[int, ...]) -> str:
    if alone == other:
        return "yes"
    pairs = zip(alone, other, strict=False)
    first = next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(alone), len(other)))
    return f"to token {first}"


def _rounds(run: Run, pieces: Pieces) -> list[Payload]:
    clock = round_clock(run).tolist()
    return [
        _round(run, round_, began, ended, pieces)
        for round_, began, ended in zip(run.rounds, [0.0, *clock], clock, strict=False)
    ]


def _round(run: Run, round_: Round, began: float, ended: float, pieces: Pieces) -> Payload:
    known, emission = ratios(round_), round_.emission
    drafted = zip(round_.speculation.tokens.tolist(), round_.outcomes, known.nodes, strict=True)
    return {
        "drafted": min(began + round_.timing.draft, ended),
        "settled": ended,
        "tokens": [[_piece(run, token, pieces), _AT[outcome], ratio] for token, outcome, ratio in drafted],
        "emission": None
        if emission is None
        else [_piece(run, round_.token_ids[-1], pieces), _AT[emission], known.emission],
    }


def _piece(run: Run, token: int, pieces: Pieces) -> int:
    return pieces.place(run.pieces[token].text)


def _quiet() -> int:
    return _AT[Outcome.MATCHED]
