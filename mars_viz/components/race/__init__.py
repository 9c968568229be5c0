"""Lanes of tokens in the browser: a replay of a recorded race, and a growing decode.

A round has the times in recorded seconds at which it was drafted and verified, its drafted tokens and the emitted
token. A token is an index into `pieces`, an index into `looks` (outcome names as in the explorer's style), and the
ratio at which it was decided, or None. The browser reports nothing back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mars_viz.components.explorer.payload import identified
from mars_viz.components.mount import Element, mount
from mars_viz.escapes import visible
from mars_viz.race import Race, RaceLane, RaceTexts, round_clock
from mars_viz.records import Outcome, Round, first_difference
from mars_viz.rules import rule_named
from mars_viz.run import Run, Settings
from mars_viz.words import number, short_device

Payload = dict[str, Any]

SCRIPTS = ("listed", "clock", "track", "controls", "race")
SHARED = ("mount", "explorer/elements", "explorer/numbers", *(f"race/{name}" for name in SCRIPTS))
ELEMENT = Element("mars_viz_race", SHARED, ("explorer/explorer", "race/race"))
LOOKS = tuple(outcome.value for outcome in Outcome)
DIGITS = 6  # significant digits of a ratio in a payload; three are displayed


def show(payload: Payload, *, key: str, play: bool = False) -> None:
    """Show a finished race with play, speed and stop controls, or the rounds so far; call again if there are more.

    With `play` a race plays once automatically, unless the browser asks for reduced motion.
    """
    mount(ELEMENT, [payload | {"play": play}], key=key)


class Pieces(dict[str, int]):
    """Indices of distinct texts, in order of first use; a new text is added when it is looked up."""

    def __missing__(self, text: str) -> int:
        self[text] = len(self)
        return self[text]


def ratios(round_: Round) -> tuple[list[float | None], float | None]:
    """Return z2 / z1 at the judging row of each drafted token, and at the last row of the walk; None if z1 is 0."""
    rows = [float(f"{ratio:.{DIGITS}g}") if np.isfinite(ratio) else None for ratio in round_.speculation.ratio.tolist()]
    return [rows[row] for row in round_.speculation.judging_rows.tolist()], rows[round_.decision.row]


def race_payload(race: Race) -> Payload:
    """Return three lanes and the results table. Equal races have equal payloads."""
    written = [race.strict.pieces[token].text for token in race.alone.token_ids]
    payload = _three_lanes(written, race.alone.clock, race.strict, race.relaxed, race.relaxed.settings)
    return identified(payload | {"live": False, "prompt": race.strict.prompt, "board": _board(race)})


def live_payload(run: Run | None, prompt: str, job: str) -> Payload:
    """Return one growing lane; `job` identifies the decode."""
    pieces = Pieces()
    lane = {"title": "The text so far", "note": "", "judged": True, "rounds": _rounds(run, pieces)}
    return {"id": job, **_payload([lane], pieces, run), "prompt": prompt}


def racing_payload(texts: RaceTexts, prompt: str, settings: Settings, job: str) -> Payload:
    """Return the lanes of a running race; `settings` are those of the third lane, and `job` identifies the race."""
    payload = _three_lanes(texts.alone, range(len(texts.alone)), texts.strict, texts.relaxed, settings)
    return {"id": job, **payload, "prompt": prompt}


def _payload(lanes: list[Payload], pieces: Pieces, run: Run | None) -> Payload:
    chat = run is not None and run.provenance.chat is True
    return {"live": True, "lanes": lanes, "pieces": list(pieces), "looks": LOOKS, "board": None, "chat": chat}


def _three_lanes(
    written: Sequence[str], clock: Sequence[float], strict: Run | None, relaxed: Run | None, settings: Settings
) -> Payload:
    """Return the lanes of a race: texts that the target wrote alone by `clock`, strict, and `settings`' rule."""
    pieces, quiet = Pieces(), LOOKS.index(Outcome.MATCHED.value)
    alone = [
        {"drafted": at, "settled": at, "tokens": [], "emission": [pieces[text], quiet, None]}
        for text, at in zip(written, clock, strict=True)
    ]
    lanes = [
        ("Autoregressive", "The target alone, one token per pass", False, alone),
        ("Strict", f"Speculative, lossless, {settings.draft}", True, _rounds(strict, pieces)),
        (_rule_words(settings), f"Speculative, relaxed, {settings.draft}", True, _rounds(relaxed, pieces)),
    ]
    return _payload(
        [dict(zip(("title", "note", "judged", "rounds"), lane, strict=True)) for lane in lanes], pieces, strict
    )


def _rounds(run: Run | None, pieces: Pieces) -> list[Payload]:
    rounds: list[Payload] = []
    if run is None:
        return rounds
    began = 0.0
    for round_, ended in zip(run.rounds, round_clock(run).tolist(), strict=False):
        (node_ratios, last_ratio), emission = ratios(round_), round_.emission
        drafted = zip(round_.speculation.tokens.tolist(), round_.outcomes, node_ratios, strict=True)
        tokens = [[pieces[run.pieces[token].text], LOOKS.index(out.value), ratio] for token, out, ratio in drafted]
        last = None
        if emission is not None:
            last = [pieces[run.pieces[round_.token_ids[-1]].text], LOOKS.index(emission.value), last_ratio]
        at = min(began + round_.timing.draft, ended)
        rounds.append({"drafted": at, "settled": ended, "tokens": tokens, "emission": last})
        began = ended
    return rounds


def _rule_words(settings: Settings) -> str:
    """Return rule and dial value of settings; without a dial value, the rule's default."""
    rule = rule_named(settings.rule)
    return rule.titled(rule.checked_dial(settings.dial))


def _board(race: Race) -> Payload:
    rule, texts, rows = _rule_words(race.relaxed.settings), race.token_ids, []
    names = {RaceLane.ALONE: "Autoregressive", RaceLane.STRICT: "Strict", RaceLane.RELAXED: rule}
    for lane, row in zip(RaceLane, race.rows, strict=True):
        over, same = "1.00 ×", "–"
        if lane is not RaceLane.ALONE:
            ratio, first = race.over(lane, RaceLane.ALONE), first_difference(texts[RaceLane.ALONE], texts[lane])
            over = "disturbed" if race.objection else f"{ratio.estimate:.2f} ×{_range(ratio.low, ratio.high)}"
            same = "yes" if first is None else f"to token {first}"
        seconds = f"{row['seconds_measured']:.2f} s{_range(row['seconds_least'], row['seconds_most'])}"
        tokens, passes, rolled_back = (number(row[name]) for name in ("tokens", "target_passes", "rolled_back"))
        pace = number(row["tokens_per_second_measured"])
        rows.append([names[lane], seconds, pace, over, tokens, passes, f"{row['tau']:.2f}", rolled_back, same])
    if not (sentence := race.objection):
        turns, speeds = len(race.taken[RaceLane.ALONE]), []
        for other in (RaceLane.ALONE, RaceLane.STRICT):
            ratio = race.over(RaceLane.RELAXED, other)
            speeds.append(f"{ratio.estimate:.2f}{_range(ratio.low, ratio.high)}")
        basis = "measured once, so without an interval," if turns == 1 else f"measured over {turns} turns"
        device = visible(short_device(race.strict.provenance.device) or "an unnamed device")
        sentence = f"{rule} was {speeds[0]} times as fast as the target alone and {speeds[1]} times as fast as strict, "
        sentence += f"{basis} on {device}."
    columns = {
        "Lane": "How the prompt was decoded",
        "Time, measured": "Wall clock of the middle turn and range of all turns; without the prompt's pass",
        "Tokens/s, measured": "Tokens over the middle turn's time",
        "Over autoregressive, measured": "Tokens/s over the target's alone in the same turn: median and range of turns",
        "Tokens": "Emitted tokens; exact",
        "Target passes": "The prompt's own pass excluded; exact",
        "τ": "Tokens per target pass; exact",
        "Rolled back": "Drafted tokens that were thrown away; exact",
        "Same text": "Whether it is, token for token, what the target writes by itself",
    }
    heads = [{"name": name, "help": help} for name, help in columns.items()]
    return {"sentence": sentence, "columns": heads, "rows": rows}


def _range(low: float, high: float) -> str:
    """Return ' (1.90 to 2.40)'; empty for a single turn."""
    return "" if np.isnan([low, high]).any() or np.isclose(low, high) else f" ({low:.2f} to {high:.2f})"
