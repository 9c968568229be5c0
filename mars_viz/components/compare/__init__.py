"""Two elements for comparing texts: two runs side by side with a strip of alternatives, and two texts without rounds.

Runs are sent in the explorer's format, so that the browser shows them with the same code. Added to each token is
whether the other text has it too, and to each round the other text's round that starts at the same position. A lane is
a bar of run-length-encoded token kinds. The reader's requests return as `Asked`, and the page answers by sending
another payload.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from itertools import groupby
from typing import Any

from mars_viz.analysis.alignment import Alignment, Side, Unit, Written
from mars_viz.components.explorer.payload import identified, plain, run_payload
from mars_viz.components.mount import Element, mount
from mars_viz.records import Outcome
from mars_viz.run import Run

Payload = dict[str, Any]  # JSON-compatible
OUTCOMES = (Outcome.MATCHED, Outcome.RELAXED, Outcome.CORRECTED, Outcome.BONUS)  # in the order of codes in bars


Pane = tuple[str, str, str]  # key of a choice, name, summary in a line


def run_pane(run: Run) -> Payload:
    """Return a run in the explorer's format, without the verdicts of other rules."""
    return plain(run_payload(run, judges=()))


def pair_payload(panes: Sequence[Pane], found: Alignment, runs: tuple[Payload | None, Payload | None]) -> Payload:
    """Return both panes. `runs` are their `run_pane` payloads, or None if the browser has them already."""
    left_pane, right_pane = (
        {"key": key, "name": name, "detail": detail, "run": run, **_shared(side), "partners": side.partners}
        for (key, name, detail), side, run in zip(panes, (found.left, found.right), runs, strict=True)
    )
    positions = found.unit is Unit.TOKENS
    return {"unit": found.unit.value, "positions": positions, "left": left_pane, "right": right_pane}


def lane_payload(key: str, name: str, run: Run, common: Side, right: bool | None) -> Payload:
    """Return a lane's bar and the numbers next to it.

    `key` is that of its choice, `common` the parts that it shares with the reference, and `right` whether its answer is
    correct, None if unknown.
    """
    tau = run.tau if run.rounds else None
    codes = rows_of(OUTCOMES.index(outcome) for outcome in outcomes(run))
    lane = {"key": key, "name": name, "tau": tau, "tokens": len(run.token_ids), "right": right, "outcomes": codes}
    return lane | _shared(common)


def _shared(side: Side) -> Payload:
    return {"common": rows_of(map(bool, side.common)), "parts": side.parts}


def outcomes(run: Run) -> tuple[Outcome, ...]:
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
    chosen = {"reference": reference, "shown": shown, "colour": colour}
    return identified({"pair": pair, "lanes": list(lanes), "order": list(order), **chosen}) | {"token": token}


def rows_of(kinds: Iterable[int]) -> list[list[int]]:
    """Return [kind, length] of each stretch of equal kinds."""
    return [[int(kind), sum(1 for _ in members)] for kind, members in groupby(kinds)]


SHARED = (
    "elements", "tip", "run", "decisions", "breakpoint_index", "numbers", "aria_labels", "reading", "trajectories",
    "colours", "placeholders", "virtual_list", "parting", "tree", "unfolding", "round_elements", "looks", "reconcile",
    "slot_marks", "stream",
)  # fmt: skip
"""Scripts of the explorer that show a run and its tokens."""
OWN = ("compare/difference", "compare/side", "compare/linked", "compare/lanes", "compare/compare")
STYLES = ("explorer/explorer", "compare/compare")
ELEMENT = Element("mars_viz_compare", ("mount", *(f"explorer/{name}" for name in SHARED), *OWN), STYLES)


class Ask(Enum):
    SHOW = "show"  # compare a text with the reference
    PIN = "pin"  # make a text the reference
    TOKEN = "token"  # select a token
    COLOUR = "colour"  # colour the tokens by something else


def compare(payload: Payload, *, key: str, on_ask: Callable[[Ask, str], None]) -> None:
    """Show the texts. `on_ask` is called before the rerun that a request causes, with its value: the key of a text, a
    token, or the name of a colouring; not validated."""
    import streamlit as st  # imported here because sites read payloads without Streamlit

    def asked() -> None:
        state = st.session_state.get(key)
        request = state.get("asked") if isinstance(state, Mapping) else None
        if isinstance(request, Mapping) and request.get("what") in {each.value for each in Ask}:
            on_ask(Ask(request["what"]), str(request.get("value", "")))

    mount(ELEMENT, [payload], key=key, answers={"asked": asked})


TEXTS = Element("mars_viz_texts", ("mount", "explorer/elements", "compare/difference", "compare/texts"), STYLES)


def two_texts(payload: Payload, *, key: str) -> None:
    mount(TEXTS, [payload], key=key)


def text_pane(name: str, detail: str, text: Written, side: Side) -> Payload:
    """Return one of two texts to compare: its tokens, and the parts that both have in common. `detail` is a summary."""
    pieces = list(dict.fromkeys(text.pieces))
    place = {piece: index for index, piece in enumerate(pieces)}
    shown = [{"text": piece.text, "special": piece.special} for piece in pieces]
    tokens = [place[piece] for piece in text.pieces]
    return {"name": name, "detail": detail, "pieces": shown, "tokens": tokens, **_shared(side)}


def texts_payload(prompt: str, left: Payload, right: Payload, unit: Unit) -> Payload:
    """Return the payload of two `text_pane`s, with an `id` that is unique to its contents.

    Common tokens correspond one to one if the texts were aligned by tokens.
    """
    return identified({"prompt": prompt, "positions": unit is Unit.TOKENS, "left": left, "right": right})
