"""The JSON payload to replay a race or to show a growing decode.

A round has the times in recorded seconds at which it was drafted and verified, its drafted tokens and the emitted
token. A token is an index into `pieces`, an index into `looks` (outcome names as in the explorer's style), and the
ratio at which it was decided, or None.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mars_viz.components.explorer.packing import identified
from mars_viz.components.tokens import Pieces, ratios
from mars_viz.costs import Factor
from mars_viz.escapes import visible
from mars_viz.race.making import RaceTexts
from mars_viz.race.records import Race, RaceLane, round_clock
from mars_viz.records import Outcome, Round
from mars_viz.rules import rule_named
from mars_viz.run import Run, Settings
from mars_viz.words import number, setting, short_device

Payload = dict[str, Any]

LOOKS = tuple(outcome.value for outcome in Outcome)
_AT = {outcome: place for place, outcome in enumerate(Outcome)}


def race_payload(race: Race) -> Payload:
    """Return three lanes and the results table. Equal races have equal payloads."""
    pieces = Pieces()
    written = [race.strict.pieces[token].text for token in race.alone.token_ids]
    lanes = _lanes(
        _alone(written, race.alone.clock, pieces),
        _rounds(race.strict, pieces),
        _rounds(race.relaxed, pieces),
        race.relaxed.settings,
    )
    payload = _payload(lanes, pieces, race.strict.prompt, race.strict, live=False) | {"board": board(race)}
    return identified(payload)


def live_payload(run: Run | None, prompt: str, job: str) -> Payload:
    """Return one growing lane; `job` identifies the decode."""
    pieces = Pieces()
    lane = {"title": "The text so far", "note": "", "judged": True, "rounds": _rounds(run, pieces)}
    return {"id": job, **_payload([lane], pieces, prompt, run, live=True)}


def racing_payload(texts: RaceTexts, prompt: str, settings: Settings, job: str) -> Payload:
    """Return the lanes of a running race; `settings` are those of the third lane, and `job` identifies the race."""
    pieces = Pieces()
    lanes = _lanes(
        _alone(texts.alone, range(len(texts.alone)), pieces),
        _rounds(texts.strict, pieces),
        _rounds(texts.relaxed, pieces),
        settings,
    )
    return {"id": job, **_payload(lanes, pieces, prompt, texts.strict, live=True)}


def _payload(lanes: list[Payload], pieces: Pieces, prompt: str, run: Run | None, *, live: bool) -> Payload:
    payload = {"live": live, "lanes": lanes, "pieces": pieces.texts, "looks": LOOKS, "prompt": prompt, "board": None}
    return payload | {"chat": run is not None and run.provenance.chat is True}


def _lanes(alone: list[Payload], strict: list[Payload], relaxed: list[Payload], settings: Settings) -> list[Payload]:
    rule, draft = settings_words(settings), settings.draft
    return [
        {"title": "Autoregressive", "note": "The target alone, one token per pass", "judged": False, "rounds": alone},
        {"title": "Strict", "note": f"Speculative, lossless, {draft}", "judged": True, "rounds": strict},
        {"title": rule, "note": f"Speculative, relaxed, {draft}", "judged": True, "rounds": relaxed},
    ]


def _alone(written: Sequence[str], clock: Sequence[float], pieces: Pieces) -> list[Payload]:
    return [
        {"drafted": at, "settled": at, "tokens": [], "emission": [pieces.place(text), _quiet(), None]}
        for text, at in zip(written, clock, strict=True)
    ]


def rule_words(run: Run) -> str:
    """Return rule and dial value, such as 'MARS, θ = 0.90'."""
    return settings_words(run.settings)


def settings_words(settings: Settings) -> str:
    """Return rule and dial value of settings; without a dial value, the rule's default."""
    rule = rule_named(settings.rule)
    dial = rule.checked_dial(settings.dial)
    return rule.title if rule.dial is None or dial is None else f"{rule.title}, {setting(rule.dial.symbol, dial)}"


def board(race: Race) -> Payload:
    """Return the results table as text."""
    texts = race.token_ids
    names = {RaceLane.ALONE: "Autoregressive", RaceLane.STRICT: "Strict", RaceLane.RELAXED: rule_words(race.relaxed)}
    rows = [
        [
            names[lane],
            f"{figures.seconds:.2f} s{_range(figures.least, figures.most)}",
            number(figures.pace),
            _over_alone(race, lane, figures.over_alone),
            number(figures.tokens),
            number(figures.passes),
            f"{figures.tau:.2f}",
            number(figures.rolled_back),
            "–" if lane is RaceLane.ALONE else _same(texts[RaceLane.ALONE], texts[lane]),
        ]
        for lane, figures in race.figures.items()
    ]
    return {"sentence": _sentence(race), "columns": COLUMNS, "rows": rows}


def _over_alone(race: Race, lane: RaceLane, found: Factor) -> str:
    if lane is RaceLane.ALONE:
        return "1.00 ×"
    return "disturbed" if race.objection else f"{found.estimate:.2f} ×{_range(found.low, found.high)}"


def _range(low: float, high: float) -> str:
    """Return ' (1.90 to 2.40)'; empty for a single turn."""
    return "" if np.isnan([low, high]).any() or np.isclose(low, high) else f" ({low:.2f} to {high:.2f})"


COLUMNS = [
    {"name": "Lane", "help": "How the prompt was decoded"},
    {
        "name": "Time, measured",
        "help": "Wall clock of the middle turn and range of all turns; without the prompt's pass",
    },
    {"name": "Tokens/s, measured", "help": "Tokens over the middle turn's time"},
    {
        "name": "Over autoregressive, measured",
        "help": "Its tokens per second over those of the target alone in the same turn: median and range of the turns",
    },
    {"name": "Tokens", "help": "Emitted tokens; exact"},
    {"name": "Target passes", "help": "The prompt's own pass excluded; exact"},
    {"name": "τ", "help": "Tokens per target pass; exact"},
    {"name": "Rolled back", "help": "Drafted tokens that were thrown away; exact"},
    {"name": "Same text", "help": "Whether it is, token for token, what the target writes by itself"},
]


def _sentence(race: Race) -> str:
    if race.objection:
        return race.objection
    turns = len(race.taken[RaceLane.ALONE])
    alone, strict = (_times(race.over(RaceLane.RELAXED, other)) for other in (RaceLane.ALONE, RaceLane.STRICT))
    basis = "measured once, so without an interval," if turns == 1 else f"measured over {turns} turns"
    device = visible(short_device(race.strict.provenance.device) or "an unnamed device")
    return (
        f"{rule_words(race.relaxed)} was {alone} times as fast as the target alone and {strict} times as fast as "
        f"strict, {basis} on {device}."
    )


def _times(found: Factor) -> str:
    return f"{found.estimate:.2f}{_range(found.low, found.high)}"


def _same(alone: tuple[int, ...], other: tuple[int, ...]) -> str:
    if alone == other:
        return "yes"
    pairs = zip(alone, other, strict=False)
    first = next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(alone), len(other)))
    return f"to token {first}"


def _rounds(run: Run | None, pieces: Pieces) -> list[Payload]:
    if run is None:
        return []
    clock = round_clock(run).tolist()
    return [
        _round(run, round_, began, ended, pieces)
        for round_, began, ended in zip(run.rounds, [0.0, *clock], clock, strict=False)
    ]


def _round(run: Run, round_: Round, began: float, ended: float, pieces: Pieces) -> Payload:
    decided, emission = ratios(round_), round_.emission
    drafted = zip(round_.speculation.tokens.tolist(), round_.outcomes, decided.nodes, strict=True)
    return {
        "drafted": min(began + round_.timing.draft, ended),
        "settled": ended,
        "tokens": [[_piece(run, token, pieces), _AT[outcome], ratio] for token, outcome, ratio in drafted],
        "emission": None
        if emission is None
        else [_piece(run, round_.token_ids[-1], pieces), _AT[emission], decided.emission],
    }


def _piece(run: Run, token: int, pieces: Pieces) -> int:
    return pieces.place(run.pieces[token].text)


def _quiet() -> int:
    return _AT[Outcome.MATCHED]
