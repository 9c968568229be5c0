"""Saved sweeps side by side, as the Compare page shows them: two settings of one sweep, or two sweeps in pairs.

Knows Streamlit and the tab's memory; the numbers and words are `sweep_pair`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mars_viz import default_folders
from mars_viz.errors import BadInput
from mars_viz.escapes import markdown
from mars_viz.sweep import SweepResult
from mars_viz.sweep.pairing import Pairing, SweepSetting, divergence
from mars_viz.ui import faults, navigation, share, theme
from mars_viz.ui.compare import compare_tables, compare_view, compare_words, prompt_texts, sweep_pair
from mars_viz.ui.compare.page_state import Comparison
from mars_viz.ui.tune.catalogue import shelf
from mars_viz.words import exactly

_HUNDREDTHS = st.column_config.NumberColumn(format="%.2f")


@faults.fragment
def over_a_sweep(memory: Comparison) -> None:
    """Two settings over many prompts."""
    listed = shelf(default_folders.sweeps())
    found = {name: entry.path for name, entry in listed.entries.items()}
    for sentence in filter(None, [listed.error, *memory.notices]):
        theme.note(sentence)
    if listed.error:
        return
    if not found:
        theme.note(
            "There is no saved sweep here yet. Make one on Tune, or with mars-viz sweep --out FOLDER; the variable "
            f"{default_folders.SWEEPS} names the folder that holds it."
        )
        return
    try:
        left, right = st.columns(2, gap="medium")
        path, result = chosen_sweep(memory, left, found, listed.labels)
        beside = chosen_beside(memory, right, found, listed.labels, sweep_pair.id_of(path))
        if beside is None:
            over_one_sweep(memory, path, result)
        else:
            over_two_sweeps(memory, (path, result), beside)
    except BadInput as error:
        theme.note(str(error))


def over_one_sweep(memory: Comparison, path: Path, result: SweepResult) -> None:
    """Two dial values of one sweep."""
    left, right = st.columns(2, gap="medium")
    reference = dial_input(memory, left, result, "from_dial", result.plan.strict, compare_words.SIDES.left)
    dial = dial_input(memory, right, result, "to_dial", result.plan.dial.default, compare_words.SIDES.right)
    memory.view = replace(memory.view, sweep=sweep_pair.id_of(path), beside="", from_dial=reference, to_dial=dial)
    over_both(memory, SweepSetting(result, reference), SweepSetting(result, dial), sweep_pair.place(path, result))


def over_two_sweeps(memory: Comparison, one: tuple[Path, SweepResult], other: tuple[Path, SweepResult]) -> None:
    """Two sweeps in pairs, each at its own dial."""
    columns, found = st.columns(2, gap="medium"), []
    sides = compare_words.SIDES.left, compare_words.SIDES.right
    for column, name, words, (_, result) in zip(columns, ("from_dial", "to_dial"), sides, (one, other), strict=True):
        at = dial_input(memory, column, result, name, result.plan.dial.default, f"{words}: {result.plan.title}")
        found.append(SweepSetting(result, at))
    left, right = found
    ours, theirs = (sweep_pair.id_of(path) for path, _ in (one, other))
    memory.view = replace(memory.view, sweep=ours, beside=theirs, from_dial=left.dial, to_dial=right.dial)
    over_both(memory, left, right, "&".join(sweep_pair.place(*each) for each in (one, other)))


def over_both(memory: Comparison, left: SweepSetting, right: SweepSetting, state: str) -> None:
    """Both settings in figures and after one prompt; of two sweeps prompt by prompt too. `state` tells sweeps and their
    states apart."""
    navigation.write_link(compare_view.to_parameters("", memory.view))
    both = sweep_pair.paired(left, right, state)
    with st.spinner("Computing the intervals"):
        rows = sweep_pair.rows(both, sweep_pair.settings_key(both, state))
    names, turned = sweep_pair.names(both), sweep_pair.turned(both)
    compare_tables.lead(sweep_pair.finding(both, rows, turned, names))
    for said in filter(None, [sweep_pair.stands(both), "" if both.one_sweep else both.coverage]):
        theme.small(said)
    compare_tables.sweep_table(rows, names)
    confidence, turns, costs = rows[0].change.confidence, both.units is not None, sweep_pair.costs(both)
    st.caption(
        markdown(compare_words.sweep_footnote(confidence, turned.worse, turned.better, turns=turns, costs=costs))
    )
    prompt_texts.read(memory, both, names, state)
    figures = partial(sweep_pair.figures, rows, names)
    if both.one_sweep:
        numbers = share.Table("Both settings in numbers", "settings-compared", figures)
        share.tables([numbers], [left.result.plan.rule.name], "compare-sweep")
        return
    prompts = prompt_by_prompt(both)
    shown = [
        share.Table("Both sweeps in numbers", "sweeps-compared", figures),
        share.Table("Prompt by prompt", "sweeps-by-prompt", lambda: prompts),
    ]
    share.tables(shown, [side.result.plan.rule.name for side in (left, right)], "compare-sweeps")


def prompt_by_prompt(both: Pairing) -> pd.DataFrame:
    """Shows the table of the shared prompts, and hands it out."""
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
        alt="What each sweep makes of each prompt that both hold",
    )
    return prompts


def chosen_sweep(
    memory: Comparison, column: DeltaGenerator, found: Mapping[str, Path], labels: Mapping[str, str]
) -> tuple[Path, SweepResult]:
    """The picker of sweeps, and the one that it stands on. Raises BadInput where it cannot be read."""
    if memory.view.sweep and memory.view.sweep not in found:
        theme.note("There is no sweep of the link's name here; the newest is shown.")
    name = memory.view.sweep if memory.view.sweep in found else next(iter(found))
    st.session_state["compare-sweep"] = name

    def choose() -> None:
        memory.look(sweep=st.session_state["compare-sweep"], beside="", from_dial=None, to_dial=None, prompt="")

    column.selectbox("Sweep", list(found), key="compare-sweep", format_func=labels.__getitem__, on_change=choose)
    return found[name], sweep_pair.opened(found[name])


def chosen_beside(
    memory: Comparison, column: DeltaGenerator, found: Mapping[str, Path], labels: Mapping[str, str], own: str
) -> tuple[Path, SweepResult] | None:
    """The sweep to compare it with; None for itself at another dial value, and with a sentence where the other cannot
    be read."""
    others = [name for name in found if name != own]
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
        return (found[chosen], sweep_pair.opened(found[chosen])) if chosen else None
    except BadInput as error:
        theme.note(f"{error} Two settings of one sweep are shown instead.")
        return None


def dial_input(
    memory: Comparison, column: DeltaGenerator, result: SweepResult, name: str, default: float, words: str
) -> float:
    """A dial value, within what was swept; `name` is the view's."""
    plan, value = result.plan, getattr(memory.view, name)
    dial = plan.dial
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
