"""Comparison of saved sweeps on the Compare page: two settings of one sweep, or two sweeps paired by prompt, and the
two texts of one prompt."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mars_viz import default_folders
from mars_viz.analysis.alignment import Side, Unit, Written
from mars_viz.components.compare import text_pane, texts_payload
from mars_viz.components.compare import two_texts as show
from mars_viz.errors import BadInput
from mars_viz.escapes import markdown, visible
from mars_viz.run import Piece
from mars_viz.sweep import SweepResult, pairing
from mars_viz.sweep.columns import RIGHT, UNGRADED
from mars_viz.sweep.pairing import Change, KeptTexts, Pairing, PromptEntry, SweepSetting, TwoTexts, divergence
from mars_viz.ui import faults, navigation, share, theme
from mars_viz.ui.compare import compare_tables, compare_view, compare_words, sweep_pair
from mars_viz.ui.compare.compare_words import Names
from mars_viz.ui.compare.page_state import Comparison
from mars_viz.ui.tune.catalogue import shelf
from mars_viz.words import counted, exactly, number

LABEL_LENGTH = 60  # maximum number of characters of a prompt in the list
_LOOKED_AT = 8 * LABEL_LENGTH  # may include blanks


def both_texts(memory: Comparison, both: Pairing, names: Names, state: str) -> None:
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
    left = text_pane(names.left, details[0], texts.both.left, alignment.left)
    right = text_pane(names.right, details[1], texts.both.right, alignment.right)
    show(texts_payload(both.texts[entry.place], left, right, alignment.unit), key="compare-texts")


@st.cache_resource(max_entries=32, show_spinner=False)
def _entries(_both: Pairing, state: str) -> tuple[PromptEntry, ...]:
    return pairing.entries(_both)


@st.cache_resource(max_entries=32, show_spinner="Aligning both texts")
def _kept(_both: Pairing, state: str, place: int) -> KeptTexts:
    return pairing.kept(_both, place)


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

    # the labels outlive the page
    parts = {name: (name, each.change.value, clipped(both.texts[each.place])) for name, each in by_id.items()}
    labels = {name: visible(" · ".join(each).removesuffix(" · ")) for name, each in parts.items()}
    st.selectbox(
        "Prompt",
        list(by_id),
        key="compare-prompt",
        format_func=labels.__getitem__,
        on_change=lambda: memory.look(prompt=st.session_state["compare-prompt"]),
        help="Those whose answer changes come first; type to search",
    )
    return by_id[chosen]


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
    left, right = (None if at[place] == UNGRADED else bool(at[place] == RIGHT) for at in both.at("right"))
    return left, right


def _details(both: Pairing, place: int) -> list[str]:
    details = []
    for lengths, passes, right in zip(both.at("tokens"), both.at("rounds"), _grades(both, place), strict=True):
        tokens, rounds = int(lengths[place]), int(passes[place])
        tau = number(tokens / rounds if rounds else math.nan)
        parts = f"τ {tau}, {counted(tokens, 'token')}, {counted(rounds, 'round')}{compare_words.answer(right)}"
        details.append(parts)
    return details


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


_HUNDREDTHS = st.column_config.NumberColumn(format="%.2f")


@faults.fragment
def over_a_sweep(memory: Comparison) -> None:
    """Draw the comparison of two settings over many prompts."""
    catalog = shelf(default_folders.sweeps())
    paths = {name: entry.path for name, entry in catalog.entries.items()}
    for sentence in filter(None, [catalog.error, *memory.notices]):
        theme.note(sentence)
    if catalog.error:
        return
    if not paths:
        theme.note(
            "There is no saved sweep here yet. Make one on Tune, or with mars-viz sweep --out FOLDER; the variable "
            f"{default_folders.SWEEPS} names the folder that holds it."
        )
        return
    try:
        left, right = st.columns(2, gap="medium")
        one = chosen_sweep(memory, left, paths, catalog.labels)
        other = chosen_beside(memory, right, paths, catalog.labels, sweep_pair.id_of(one[0]))
        over_sweeps(memory, one, other)
    except BadInput as error:
        theme.note(str(error))


def over_sweeps(memory: Comparison, one: tuple[Path, SweepResult], other: tuple[Path, SweepResult] | None) -> None:
    """Draw the comparison of two dial values of one sweep, or of two sweeps, each with its own dial."""
    sweeps, sides = (one, other or one), (compare_words.SIDES.left, compare_words.SIDES.right)
    columns, settings = st.columns(2, gap="medium"), []
    for column, name, words, (_, result) in zip(columns, ("from_dial", "to_dial"), sides, sweeps, strict=True):
        default = result.plan.strict if other is None and name == "from_dial" else result.plan.axis.dial.default
        label = words if other is None else f"{words}: {result.plan.title}"
        settings.append(SweepSetting(result, dial_input(memory, column, result, name, default, label)))
    left, right = settings
    sweep, beside = sweep_pair.id_of(one[0]), "" if other is None else sweep_pair.id_of(other[0])
    memory.view = replace(memory.view, sweep=sweep, beside=beside, from_dial=left.dial, to_dial=right.dial)
    state = "&".join(sweep_pair.place(*each) for each in sweeps[: 1 if other is None else 2])
    over_both(memory, left, right, state)


def over_both(memory: Comparison, left: SweepSetting, right: SweepSetting, state: str) -> None:
    """Draw the figures of both settings and the texts of one prompt; for two sweeps also a table of prompts. `state`
    identifies the sweeps and their versions."""
    navigation.write_link(compare_view.to_parameters("", memory.view))
    both = sweep_pair.paired(left, right, state)
    with st.spinner("Computing the intervals"):
        rows = sweep_pair.rows(both, sweep_pair.settings_key(both, state))
    names, turned = sweep_pair.names(both), sweep_pair.turned(both)
    compare_tables.lead(sweep_pair.finding(both, rows, turned, names))
    for sentence in filter(None, [sweep_pair.stands(both), "" if both.one_sweep else both.coverage]):
        theme.small(sentence)
    compare_tables.sweep_table(rows, names)
    confidence, turns, costs = rows[0].change.confidence, both.units is not None, sweep_pair.costs(both)
    st.caption(
        markdown(compare_words.sweep_footnote(confidence, turned.worse, turned.better, turns=turns, costs=costs))
    )
    both_texts(memory, both, names, state)
    figures = partial(sweep_pair.figures, rows, names)
    if both.one_sweep:
        numbers = share.Table("Both settings in numbers", "settings-compared", figures)
        share.tables([numbers], [left.result.plan.rule.name], "compare-sweep")
        return
    prompts = prompt_by_prompt(both)
    shared_tables = [
        share.Table("Both sweeps in numbers", "sweeps-compared", figures),
        share.Table("Prompt by prompt", "sweeps-by-prompt", lambda: prompts),
    ]
    share.tables(shared_tables, [side.result.plan.rule.name for side in (left, right)], "compare-sweeps")


def prompt_by_prompt(both: Pairing) -> pd.DataFrame:
    """Draw and return the table of shared prompts."""
    parted = divergence(both)
    prompts = sweep_pair.prompts(both, parted)
    theme.section("Prompt by prompt")
    theme.small(sweep_pair.parting(both, parted))
    st.dataframe(
        prompts,
        hide_index=True,
        key="compare-prompts",
        column_config={name: _HUNDREDTHS for name in prompts.columns if name.startswith("τ")},
        height=min(420, 38 + 35 * len(prompts)),
        alt="The answers of each sweep to each prompt that both hold",
    )
    return prompts


def chosen_sweep(
    memory: Comparison, column: DeltaGenerator, paths: Mapping[str, Path], labels: Mapping[str, str]
) -> tuple[Path, SweepResult]:
    """Draw the picker of sweeps and return the chosen one. Raises BadInput if it cannot be read."""
    if memory.view.sweep and memory.view.sweep not in paths:
        theme.note("There is no sweep of the link's name here; the newest is shown.")
    name = memory.view.sweep if memory.view.sweep in paths else next(iter(paths))
    st.session_state["compare-sweep"] = name

    def choose() -> None:
        memory.look(sweep=st.session_state["compare-sweep"], beside="", from_dial=None, to_dial=None, prompt="")

    column.selectbox("Sweep", list(paths), key="compare-sweep", format_func=labels.__getitem__, on_change=choose)
    return paths[name], sweep_pair.opened(paths[name])


def chosen_beside(
    memory: Comparison, column: DeltaGenerator, paths: Mapping[str, Path], labels: Mapping[str, str], sweep_id: str
) -> tuple[Path, SweepResult] | None:
    """Draw the picker of the other sweep and return it; None for the same sweep, or with an error message if it cannot
    be read."""
    others = [name for name in paths if name != sweep_id]
    if memory.view.beside and memory.view.beside not in others:
        theme.note("There is no other sweep of the link's second name here; two settings of one are shown instead.")
    chosen = memory.view.beside if memory.view.beside in others else ""
    st.session_state["compare-beside"] = chosen

    def choose() -> None:
        memory.look(beside=st.session_state["compare-beside"], from_dial=None, to_dial=None)

    column.selectbox(
        "Compare with",
        ["", *others],
        key="compare-beside",
        format_func=lambda name: labels[name] if name else "the same sweep at another setting",
        on_change=choose,
        disabled=not others,
        help="Another rule, controller, drafter or target over the same prompts, paired prompt by prompt",
    )
    try:
        return (paths[chosen], sweep_pair.opened(paths[chosen])) if chosen else None
    except BadInput as error:
        theme.note(f"{error} Two settings of one sweep are shown instead.")
        return None


def dial_input(
    memory: Comparison, column: DeltaGenerator, result: SweepResult, name: str, default: float, words: str
) -> float:
    """Draw the input for a dial value within the sweep's range; `name` is the view's field."""
    plan, value = result.plan, getattr(memory.view, name)
    dial = plan.axis.dial
    key = f"compare-{name}"
    if value is not None and not plan.low <= value <= plan.high:
        theme.note(
            f"{dial.symbol} = {exactly(value)} is not among what this sweep covers, {exactly(plan.low)} to "
            f"{exactly(plan.high)}; the nearest value is shown instead."
        )
    st.session_state[key] = min(max(default if value is None else value, plan.low), plan.high)
    return float(
        column.number_input(
            markdown(f"{dial.symbol}, {words}"),
            plan.low,
            plan.high,
            step=dial.step,
            key=key,
            format="%g",
            on_change=lambda: memory.look(**{name: st.session_state[key]}),
        )
    )
