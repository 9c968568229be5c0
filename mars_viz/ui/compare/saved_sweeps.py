"""Comparison of saved sweeps on the Compare page: two settings of one sweep, or two sweeps paired by prompt."""

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
        path, result = chosen_sweep(memory, left, paths, catalog.labels)
        other_sweep = chosen_beside(memory, right, paths, catalog.labels, sweep_pair.id_of(path))
        if other_sweep is None:
            over_one_sweep(memory, path, result)
        else:
            over_two_sweeps(memory, (path, result), other_sweep)
    except BadInput as error:
        theme.note(str(error))


def over_one_sweep(memory: Comparison, path: Path, result: SweepResult) -> None:
    """Draw the comparison of two dial values of one sweep."""
    left, right = st.columns(2, gap="medium")
    reference = dial_input(memory, left, result, "from_dial", result.plan.strict, compare_words.SIDES.left)
    dial = dial_input(memory, right, result, "to_dial", result.plan.dial.default, compare_words.SIDES.right)
    memory.view = replace(memory.view, sweep=sweep_pair.id_of(path), beside="", from_dial=reference, to_dial=dial)
    over_both(memory, SweepSetting(result, reference), SweepSetting(result, dial), sweep_pair.place(path, result))


def over_two_sweeps(memory: Comparison, one: tuple[Path, SweepResult], other: tuple[Path, SweepResult]) -> None:
    """Draw the comparison of two sweeps, each with its own dial."""
    columns, chosen_settings = st.columns(2, gap="medium"), []
    sides = compare_words.SIDES.left, compare_words.SIDES.right
    for column, name, words, (_, result) in zip(columns, ("from_dial", "to_dial"), sides, (one, other), strict=True):
        at = dial_input(memory, column, result, name, result.plan.dial.default, f"{words}: {result.plan.title}")
        chosen_settings.append(SweepSetting(result, at))
    left, right = chosen_settings
    sweep_id, other_id = (sweep_pair.id_of(path) for path, _ in (one, other))
    memory.view = replace(memory.view, sweep=sweep_id, beside=other_id, from_dial=left.dial, to_dial=right.dial)
    over_both(memory, left, right, "&".join(sweep_pair.place(*each) for each in (one, other)))


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
    prompt_texts.read(memory, both, names, state)
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
        alt="What each sweep makes of each prompt that both hold",
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
