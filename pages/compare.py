"""Compare: where do two texts part, and what is that worth? Layout and wiring; the work is done elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mars_viz.analysis.differences import differences
from mars_viz.components.compare import compare
from mars_viz.errors import BadInput
from mars_viz.rules import RULES, Dial
from mars_viz.run import Run
from mars_viz.sweep import SweepResult
from mars_viz.sweep.pairing import Setting, pair
from mars_viz.ui import decode_form, library, live, navigation, share, theme, under_way
from mars_viz.ui.compare import compare_sheet, compare_view, compare_words, comparison, sweep_pair, two_sweeps
from mars_viz.ui.compare.compare_view import Across
from mars_viz.ui.compare.comparison import Comparison, current_comparison, line_up
from mars_viz.ui.library import Shelf
from mars_viz.ui.session import Session, current_session
from mars_viz.ui.tune.shelf import FOLDER_VARIABLE

LABELS = {
    Across.SETTINGS: "Settings of one run",
    Across.RULES: "Rules on one prompt",
    Across.RUNS: "All runs",
    Across.SWEEP: "Saved sweeps",
}


def page() -> None:
    """The whole page: a run of guards, then the comparison."""
    navigation.through_app()
    session, memory = current_session(), current_comparison()
    memory.arrive(session, st.query_params.to_dict())
    comparison.settle_decode(session, memory)
    shelf = library.shelf(session)
    session.view, lost = shelf.landed(session.view)
    memory.notices.extend(filter(None, [lost]))
    memory.follow(session.view.run)
    run, problem = None, ""
    try:
        run = shelf.opened(session.view.run)
    except BadInput as error:
        problem = str(error) if shelf.labels else "There is no run here yet. Decode a prompt on Explore first."
    head(session, memory, shelf.labels)
    if memory.view.across is Across.SWEEP:
        over_a_sweep(memory)
        st.stop()
    for sentence in filter(None, [shelf.error, problem]):
        theme.note(sentence)
    if session.job is not None:
        under_way.decoding(session)
        st.stop()
    if run is None:
        st.stop()
    look(session, memory, run, shelf)


def head(session: Session, memory: Comparison, labels: Mapping[str, str]) -> None:
    """The title, the run that the texts come from, and what they differ in."""
    st.session_state["run"] = session.view.run if labels else None
    left, right = st.columns([6.4, 5.3], vertical_alignment="center")
    with left:
        theme.title("Compare", "Where do two texts part, and what is that worth?")
        compare_sheet.style()

    library.picker(
        right,
        labels,
        lambda: session.open(st.session_state["run"]),
        disabled=session.job is not None or memory.view.across is Across.SWEEP,
    )
    st.session_state["across"] = memory.view.across

    def across() -> None:
        memory.look(across=st.session_state["across"], reference=None, shown=None)

    st.segmented_control(
        "Compare",
        list(LABELS),
        format_func=lambda each: LABELS[each],
        key="across",
        required=True,
        on_change=across,
        label_visibility="collapsed",
        help="Settings: every text that the run's dial can make. Rules: all runs of the same prompt.",
    )


@st.fragment
def look(session: Session, memory: Comparison, run: Run, shelf: Shelf) -> None:
    """The texts side by side, and what follows from them."""
    if session.job is not None:
        st.rerun()  # a decode was asked for: the whole page waits for it
    controls(session, memory, run)
    try:
        shown = line_up(memory, session.view.run, run, shelf)
    except BadInput as error:
        theme.note(str(error))
        return
    for sentence in (*memory.notices, *session.notices, *shown.unread):
        theme.note(sentence)
    left, right = shown.left, shown.right
    memory.view = memory.pinned(left.choice, right.choice)
    navigation.write_link(compare_view.to_parameters(session.view.run, memory.view))
    names = compare_words.named(left, right)
    compare_sheet.lead(compare_words.finding(left, right, memory.alignment(left, right), names))
    compare(
        comparison.payload(memory, shown),
        key="compare",
        on_ask=lambda asked: memory.answer(asked, left.choice, right.choice),
    )
    rows = differences(left.run, right.run, timed=left.recorded and right.recorded)
    compare_sheet.table(rows, names)
    st.caption(compare_words.footnote(left, right))
    numbers = share.Table("Both texts in numbers", "compared", partial(compare_sheet.frame, rows, names))
    share.tables([numbers], [left.rule.name, right.rule.name], "compare")


def controls(session: Session, memory: Comparison, run: Run) -> None:
    """The block length of the settings to leaf through; another rule for the same prompt."""
    made, own = run.dial_map, run.settings.gamma
    if memory.view.across is Across.RULES:
        another_rule(session, run)
    if memory.view.across is not Across.SETTINGS or made is None or len(made.span.gammas) < 2:
        return
    st.session_state["compare-gamma"] = memory.view.gamma or own

    def turn() -> None:
        chosen = st.session_state["compare-gamma"]
        memory.look(gamma=None if chosen == own else chosen, shown=None)

    st.segmented_control(
        "γ of the settings to leaf through",
        made.span.gammas,
        key="compare-gamma",
        required=True,
        on_change=turn,
        help="Tokens drafted per block. The reference keeps its own.",
    )


def another_rule(session: Session, run: Run) -> None:
    """Decode the prompt with a rule of which there is no run yet."""
    reason = live.why_not_again(run)
    left, middle, right = st.columns([3.6, 5.8, 2.6], vertical_alignment="bottom", gap="medium")
    rule = RULES[
        str(
            left.selectbox(
                "Another rule",
                list(RULES),
                key="compare-rule",
                format_func=lambda name: RULES[name].title,
                disabled=bool(reason),
            )
        )
    ]
    with middle:
        dial = decode_form.dial_slider(rule, f"compare-dial-{rule.name}", disabled=bool(reason))
    right.button(
        "Decode with it",
        disabled=bool(reason),
        width="stretch",
        help=reason or "The same prompt and settings otherwise",
        on_click=lambda: live.start(session, run.prompt, lambda: replace(run.settings, rule=rule.name, dial=dial)),
    )


@st.fragment
def over_a_sweep(memory: Comparison) -> None:
    """Two settings over many prompts."""
    found = sweep_pair.sweeps()
    for sentence in memory.notices:
        theme.note(sentence)
    if not found:
        theme.note(
            "There is no saved sweep here yet. Make one on Tune, or with `mars-viz sweep --out FOLDER`; the variable "
            f"{FOLDER_VARIABLE} names the folder that holds it."
        )
        return
    try:
        left, right = st.columns(2, gap="medium")
        path, result = chosen_sweep(memory, left, found)
        beside = chosen_beside(memory, right, found, path.name)
        if beside is None:
            over_one_sweep(memory, path, result)
        else:
            over_two_sweeps(memory, (path, result), (beside, sweep_pair.opened(beside)))
    except BadInput as error:
        theme.note(str(error))


def over_one_sweep(memory: Comparison, path: Path, result: SweepResult) -> None:
    """Two dial values of one sweep."""
    left, right = st.columns(2, gap="medium")
    reference = dial_input(memory, left, result, "from_dial", result.plan.strict, "reference")
    dial = dial_input(memory, right, result, "to_dial", own_dial(result).default, "beside it")
    memory.view = replace(memory.view, sweep=path.name, beside="", from_dial=reference, to_dial=dial)
    navigation.write_link(compare_view.to_parameters("", memory.view))
    with st.spinner("Drawing prompts again and again for the intervals"):
        rows = sweep_pair.rows(result, sweep_pair.place(path, result), reference, dial)
    turned = sweep_pair.turned(result, reference, dial)
    compare_sheet.lead(sweep_pair.finding(result, rows, turned, reference, dial))
    names = compare_words.Names(sweep_pair.name_of(result, reference), sweep_pair.name_of(result, dial))
    compare_sheet.sweep_table(rows, names)
    st.caption(compare_words.sweep_footnote(rows[0].change.confidence, turned.worse, turned.better))
    numbers = share.Table("Both settings in numbers", "settings-compared", partial(two_sweeps.figures, rows, names))
    share.tables([numbers], [result.plan.rule.name], "compare-sweep")


def over_two_sweeps(memory: Comparison, one: tuple[Path, SweepResult], other: tuple[Path, SweepResult]) -> None:
    """Two sweeps in pairs, each at its own dial."""
    columns, found = st.columns(2, gap="medium"), []
    for column, name, words, (_, result) in zip(columns, ("from_dial", "to_dial"), SIDES, (one, other), strict=True):
        at = dial_input(memory, column, result, name, own_dial(result).default, f"{words}: {result.plan.rule.title}")
        found.append(Setting(result, at))
    left, right = found
    memory.view = replace(memory.view, sweep=one[0].name, beside=other[0].name, from_dial=left.dial, to_dial=right.dial)
    navigation.write_link(compare_view.to_parameters("", memory.view))
    both = pair(left, right)
    state = "&".join(f"{sweep_pair.place(*each)}={side.dial!r}" for each, side in zip((one, other), found, strict=True))
    with st.spinner("Drawing prompts again and again for the intervals"):
        rows = two_sweeps.rows(both, state)
    names, turned = two_sweeps.names(both), two_sweeps.turned(both)
    compare_sheet.lead(two_sweeps.finding(both, rows, turned, names))
    theme.small(both.coverage)
    compare_sheet.sweep_table(rows, names)
    st.caption(compare_words.sweep_footnote(rows[0].change.confidence, turned.worse, turned.better))
    prompts = two_sweeps.prompts(both)
    theme.section("Prompt by prompt")
    theme.small(two_sweeps.parting(both))
    st.dataframe(prompts, hide_index=True, key="compare-prompts", height=min(420, 38 + 35 * len(prompts)))
    shown = [
        share.Table("Both sweeps in numbers", "sweeps-compared", partial(two_sweeps.figures, rows, names)),
        share.Table("Prompt by prompt", "sweeps-by-prompt", lambda: prompts),
    ]
    share.tables(shown, [side.result.plan.rule.name for side in found], "compare-sweeps")


SIDES = ("reference", "beside it")


def chosen_sweep(memory: Comparison, column: DeltaGenerator, found: Mapping[str, Path]) -> tuple[Path, SweepResult]:
    """The picker of sweeps, and the one that it stands on. Raises BadInput where it cannot be read."""
    if memory.view.sweep and memory.view.sweep not in found:
        theme.note("There is no sweep of the link's name here; another one is shown instead.")
    name = memory.view.sweep if memory.view.sweep in found else next(iter(found))
    st.session_state["compare-sweep"] = name

    def choose() -> None:
        memory.look(sweep=st.session_state["compare-sweep"], beside="", from_dial=None, to_dial=None)

    column.selectbox("Sweep", list(found), key="compare-sweep", on_change=choose)
    return found[name], sweep_pair.opened(found[name])


def chosen_beside(memory: Comparison, column: DeltaGenerator, found: Mapping[str, Path], own: str) -> Path | None:
    """The sweep to compare it with; None for itself at another dial value."""
    others = [name for name in found if name != own]
    if memory.view.beside and memory.view.beside not in others:
        theme.note("There is no other sweep of the link's second name here; two settings of one are shown instead.")
    chosen = memory.view.beside if memory.view.beside in others else ""
    st.session_state["compare-beside"] = chosen

    def choose() -> None:
        memory.look(beside=st.session_state["compare-beside"], from_dial=None, to_dial=None)

    column.selectbox(
        "Beside it",
        ["", *others],
        key="compare-beside",
        format_func=lambda name: name or "the same sweep at another setting",
        on_change=choose,
        disabled=not others,
        help="Another rule, drafter or target over the same prompts, paired prompt by prompt",
    )
    return found[chosen] if chosen else None


def own_dial(result: SweepResult) -> Dial:
    """The dial that was swept."""
    dial = result.plan.rule.dial
    assert dial is not None  # a sweep is a sweep of a dial
    return dial


def dial_input(
    memory: Comparison, column: DeltaGenerator, result: SweepResult, name: str, default: float, words: str
) -> float:
    """A dial value, within what was swept; `name` is the view's."""
    dial, plan, value = own_dial(result), result.plan, getattr(memory.view, name)
    key = f"compare-{name}"
    st.session_state[key] = min(max(default if value is None else value, plan.low), plan.high)
    return float(
        column.number_input(
            f"{dial.symbol}, {words}",
            plan.low,
            plan.high,
            step=dial.step,
            key=key,
            format="%g",
            on_change=lambda: memory.look(**{name: st.session_state[key]}),
        )
    )


page()
