"""The JSON payload for comparing two runs side by side, with a strip of alternative texts.

Runs are sent in the explorer's format, so that the browser shows them with the same code. Added to each token is
whether the other text has it too, and to each round the other text's round that starts at the same position. A lane is
a bar of run-length-encoded token kinds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from mars_viz.analysis.alignment import Alignment, Side, Unit
from mars_viz.components.explorer.packing import identified, plain
from mars_viz.components.explorer.payload import run_payload
from mars_viz.records import Outcome
from mars_viz.run import Run

Payload = dict[str, Any]  # JSON-compatible
OUTCOMES = (Outcome.MATCHED, Outcome.RELAXED, Outcome.CORRECTED, Outcome.BONUS)
"""Outcomes of a token, in the order of the codes in bars."""


@dataclass(frozen=True, slots=True)
class Pane:
    """One of the two runs to compare."""

    key: str  # the key of its choice
    name: str
    detail: str  # a one-line summary
    run: Run  # the run at its setting, without a dial map


@dataclass(frozen=True, slots=True)
class StripLane:
    """A text of the strip."""

    key: str  # the key of its choice
    name: str
    run: Run
    common: Side  # the parts that it shares with the reference
    right: bool | None  # whether its answer is correct; None if unknown


def run_pane(run: Run) -> Payload:
    """Return a run in the explorer's format, without the verdicts of other rules."""
    return plain(run_payload(run, judges=()))


def pair_payload(left: Pane, right: Pane, found: Alignment, runs: tuple[Payload | None, Payload | None]) -> Payload:
    """Return both panes. `runs` are their `run_pane` payloads, or None if the browser has them already."""
    partners = {pair.left: pair.right for pair in found.rounds if pair.left is not None}
    others = {pair.right: pair.left for pair in found.rounds if pair.right is not None}
    return {
        "unit": found.unit.value,
        "positions": found.unit is Unit.TOKENS,
        "left": _pane(left, found.left, runs[0], [partners[r] for r in range(len(left.run.rounds))]),
        "right": _pane(right, found.right, runs[1], [others[r] for r in range(len(right.run.rounds))]),
    }


def _pane(pane: Pane, side: Side, run: Payload | None, partners: Sequence[int | None]) -> Payload:
    return {
        "key": pane.key,
        "name": pane.name,
        "detail": pane.detail,
        "run": run,
        "common": rows_of(map(bool, side.common)),
        "parts": side.parts,
        "partners": list(partners),
    }


def lane_payload(lane: StripLane) -> Payload:
    """Return a lane's bar and the numbers next to it."""
    run = lane.run
    return {
        "key": lane.key,
        "name": lane.name,
        "tau": run.tau if run.rounds else None,
        "tokens": len(run.token_ids),
        "right": lane.right,
        "outcomes": rows_of(OUTCOMES.index(outcome) for outcome in outcomes(run)),
        "common": rows_of(map(bool, lane.common.common)),
        "parts": lane.common.parts,
    }


def outcomes(run: Run) -> tuple[Outcome, ...]:
    """Return the outcome of each token of the text, in order."""
    kinds: list[Outcome] = []
    for round_ in run.rounds:
        marks = round_.outcomes
        kinds += [marks[node] for node in round_.decision.kept[: round_.kept]]
        if round_.emission is not None:
            kinds.append(round_.emission)
    return tuple(kinds)


def whole_payload(
    pair: Payload, lanes: Sequence[Payload], order: Sequence[str], reference: str, shown: str, colour: str, token: str
) -> Payload:
    """Return the complete payload: the pair, the visible lanes, and the keys of all texts of the strip.

    `token` is the initially selected token. The browser keeps track of later selections, so it is not part of `id`.
    """
    payload = {
        "pair": pair,
        "lanes": list(lanes),
        "order": list(order),
        "reference": reference,
        "shown": shown,
        "colour": colour,
    }
    return identified(payload) | {"token": token}


def rows_of(kinds: Iterable[int]) -> list[list[int]]:
    """Return [kind, length] of each stretch of equal kinds."""
    return [[int(kind), sum(1 for _ in members)] for kind, members in groupby(kinds)]
