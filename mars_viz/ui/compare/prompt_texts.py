"""The two texts of one prompt of a sweep, or of two sweeps."""

from __future__ import annotations

import math
from dataclasses import replace

import streamlit as st

from mars_viz.analysis.alignment import Side, Unit, Written
from mars_viz.components.compare import TextPane, texts_payload
from mars_viz.components.compare import two_texts as show
from mars_viz.errors import BadInput
from mars_viz.escapes import visible
from mars_viz.run import Piece
from mars_viz.sweep import two_texts
from mars_viz.sweep.columns import RIGHT, UNGRADED
from mars_viz.sweep.pairing import Pairing
from mars_viz.sweep.two_texts import Change, KeptTexts, PromptEntry, TwoTexts
from mars_viz.ui import navigation, theme
from mars_viz.ui.compare import compare_tables, compare_view, compare_words, sweep_pair
from mars_viz.ui.compare.compare_words import Names
from mars_viz.ui.compare.page_state import Comparison
from mars_viz.words import counted, number

LABEL_LENGTH = 60  # maximum number of characters of a prompt in the list
_LOOKED_AT = 8 * LABEL_LENGTH  # may include blanks


def read(memory: Comparison, both: Pairing, names: Names, state: str) -> None:
    """Draw the choice of a prompt and its two texts. `state` identifies the sweeps and their versions."""
    theme.section("Both texts of one prompt")
    state = sweep_pair.settings_key(both, state)
    entries = _entries(both, state)
    theme.small(summary(entries))
    entry = _chosen(memory, both, entries)
    try:
        texts = _kept(both, state, entry.place)
    except BadInput as error:
        theme.note(str(error))
        return
    if texts.both is None:
        theme.note(missing(both, texts))
        return
    compare_tables.lead(finding(texts.both, names, _grades(both, entry.place)))
    details, alignment = _details(both, entry.place), texts.both.found
    left = TextPane(names.left, details[0], texts.both.left, alignment.left)
    right = TextPane(names.right, details[1], texts.both.right, alignment.right)
    show(texts_payload(both.texts[entry.place], left, right, alignment.unit), key="compare-texts")


@st.cache_resource(max_entries=32, show_spinner=False)
def _entries(_both: Pairing, state: str) -> tuple[PromptEntry, ...]:
    return two_texts.entries(_both)


@st.cache_resource(max_entries=32, show_spinner="Aligning both texts")
def _kept(_both: Pairing, state: str, place: int) -> KeptTexts:
    return two_texts.kept(_both, place)


_COUNTED = {
    Change.WORSE: ("becomes wrong", "become wrong"),
    Change.BETTER: ("becomes right", "become right"),
    Change.DIFFERS: ("differs", "differ"),
    Change.PERHAPS: ("may differ", "may differ"),
    Change.SAME: ("is identical", "are identical"),
}
"""Verbs for each kind of change, singular and plural."""


def summary(entries: tuple[PromptEntry, ...]) -> str:
    """Return a sentence with the number of prompts of each kind."""
    counts = {kind: sum(entry.change is kind for entry in entries) for kind in Change}
    parts = [f"{number(count)} {_COUNTED[kind][count > 1]}" for kind, count in counts.items() if count]
    return f"Of {counted(len(entries), 'prompt')}, changed ones first: {', '.join(parts)}."


def _chosen(memory: Comparison, both: Pairing, entries: tuple[PromptEntry, ...]) -> PromptEntry:
    by_id = {entry.id: entry for entry in entries}
    requested = memory.view.prompt
    if requested and requested not in by_id:
        theme.note(f"The prompt “{clipped(requested)}” is not among those compared; another one is shown instead.")
        memory.view = replace(memory.view, prompt="")
        navigation.write_link(compare_view.to_parameters("", memory.view))
    chosen = requested if requested in by_id else entries[0].id
    st.session_state["compare-prompt"] = chosen

    labels = {name: _label(entry, both.texts[entry.place]) for name, entry in by_id.items()}  # outlive the page
    st.selectbox(
        "Prompt",
        list(by_id),
        key="compare-prompt",
        format_func=labels.__getitem__,
        on_change=lambda: memory.look(prompt=st.session_state["compare-prompt"]),
        help="Those whose answer changes come first; type to search",
    )
    return by_id[chosen]


def _label(entry: PromptEntry, text: str) -> str:
    return visible(f"{entry.id} · {entry.change.value} · {clipped(text)}".removesuffix(" · "))


def clipped(text: str) -> str:
    """Return the end of a prompt, which usually contains the question, on one line."""
    end = text.rstrip()[-_LOOKED_AT:]  # prompts may be long, and there may be thousands
    line = " ".join(end.split())
    is_complete = len(line) <= LABEL_LENGTH and len(end) < _LOOKED_AT
    return line if is_complete else f"…{line[-LABEL_LENGTH + 1 :]}"


def finding(both: TwoTexts, names: Names, grades: tuple[bool | None, bool | None]) -> str:
    """Return a sentence about the first difference and the grades."""
    sentence = compare_words.parting(
        both.found, names, _next(both.left, both.found.left), _next(both.right, both.found.right)
    )
    if both.found.unit is Unit.CHARACTERS:
        sentence += " Their tokenizers differ, so they are compared by characters."
    return " ".join([sentence, *compare_words.graded(*grades, names)])


def _next(text: Written, side: Side) -> Piece | None:
    return None if side.parts is None else text.pieces[side.parts]


def _grades(both: Pairing, place: int) -> tuple[bool | None, bool | None]:
    left, right = (int(grades[place]) for grades in both.at("right"))
    return _grade(left), _grade(right)


def _grade(value: int) -> bool | None:
    return None if value == UNGRADED else value == RIGHT


def _details(both: Pairing, place: int) -> list[str]:
    lengths, passes, grades = both.at("tokens"), both.at("rounds"), _grades(both, place)
    return [_detail(int(lengths[side][place]), int(passes[side][place]), grades[side]) for side in (0, 1)]


def _detail(tokens: int, rounds: int, right: bool | None) -> str:
    tau = number(tokens / rounds if rounds else math.nan)
    return f"τ {tau}, {counted(tokens, 'token')}, {counted(rounds, 'round')}{compare_words.answer(right)}"


def missing(both: Pairing, kept: KeptTexts) -> str:
    """Return which sweep has no text of a prompt, and the remedy."""
    if both.one_sweep:
        whose = "This sweep"
    elif kept.left is None:
        whose = "Neither sweep" if kept.right is None else "The reference sweep"
    else:
        whose = "The compared sweep"
    verb = "holds a" if whose == "Neither sweep" else "holds no"
    return (
        f"{whose} {verb} text of this prompt (older sweeps kept none). Sweep again into a new folder to read both, or "
        "decode the prompt under Rules or models on one prompt. The figures above need no texts."
    )
