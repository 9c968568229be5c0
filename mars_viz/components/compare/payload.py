"""What the browser needs of two texts side by side, and of those to leaf through: one JSON-able dict.

Knows runs and alignments; knows no Streamlit and no HTML. A run is sent as the explorer sends it, so that the browser
shows it with the same code; what is added says of every token whether the other text has it too, and of every round
which of the other text starts at the same place. A lane is a text as a bar: lengths of tokens in a row of one kind.
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

Payload = dict[str, Any]
"""JSON-able."""
OUTCOMES = (Outcome.MATCHED, Outcome.RELAXED, Outcome.CORRECTED, Outcome.BONUS)
"""What a token of a text can be, as the bars number it."""


@dataclass(frozen=True, slots=True)
class Pane:
    """One of the two texts."""

    key: str
    """Of its choice."""
    name: str
    """What it is called beside the other."""
    detail: str
    """What it came to, in a line."""
    run: Run
    """Of its setting, without a dial map."""


@dataclass(frozen=True, slots=True)
class StripLane:
    """One of the texts to leaf through."""

    key: str
    """Of its choice."""
    name: str
    """What it is called beside the reference."""
    run: Run
    """Of its setting."""
    common: Side
    """What of it the reference has too."""
    right: bool | None
    """Whether its answer is right; None where that is not known."""


def run_pane(run: Run) -> Payload:
    """A run for a pane: as the explorer has it, but without the other rules' verdicts."""
    return plain(run_payload(run, judges=()))


def pair_payload(left: Pane, right: Pane, found: Alignment, runs: tuple[Payload | None, Payload | None]) -> Payload:
    """Both panes; `runs` are their `run_pane`, which the page remembers, or None where the browser has them already."""
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
    """A bar, and the numbers beside it."""
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
    """What each token of the text is, in order."""
    found: list[Outcome] = []
    for round_ in run.rounds:
        marks = round_.outcomes
        found += [marks[node] for node in round_.decision.kept[: round_.kept]]
        if round_.emission is not None:
            found.append(round_.emission)
    return tuple(found)


def whole_payload(
    pair: Payload, lanes: Sequence[Payload], order: Sequence[str], reference: str, shown: str, colour: str, token: str
) -> Payload:
    """All that is sent: the pair, the lanes in view, and the keys of everything that can be leafed through.

    `token` is the one selected at first; where it is later is the browser's to know, so it is no part of `id`.
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
    """Kind and length of every stretch of one kind."""
    return [[int(kind), sum(1 for _ in members)] for kind, members in groupby(kinds)]
