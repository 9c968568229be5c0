"""Compare page: where two texts diverge, and the effects. Only layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import streamlit as st

from mars_viz.analysis.alignment import differences
from mars_viz.components.compare import compare
from mars_viz.errors import BadInput
from mars_viz.escapes import markdown
from mars_viz.rules import RULES
from mars_viz.run import Run
from mars_viz.ui import decode_form, faults, library, navigation, share, tab_jobs, theme
from mars_viz.ui.classroom.rights import class_view
from mars_viz.ui.compare import page_state, saved_sweeps
from mars_viz.ui.compare.page_state import Across, Comparison, line_up
from mars_viz.ui.documents import draw, frame
from mars_viz.ui.library import RunCatalogue
from mars_viz.ui.session import Session, bound, current_session

LABELS = {
    Across.SETTINGS: "Settings of one run",
    Across.RULES: "Rules or models on one prompt",
    Across.RUNS: "All runs",
    Across.SWEEP: "Saved sweeps",
}


@faults.drawn
def _page() -> None:
    session, memory = current_session(), Comparison.of_tab()
    memory.arrive(session, st.query_params.to_dict())
    page_state.settle_decode(session, memory)
    catalog, run, problem = library.in_view(session, memory.notices)
    memory.follow(session.view.run)
    _head(session, memory, catalog.labels)
    if memory.view.across is Across.SWEEP:
        saved_sweeps.over_a_sweep(memory)
        st.stop()
    library.second_line(catalog, session.view.run)
    theme.note(catalog.error, problem)
    if session.job is not None:
        faults.fragment(tab_jobs.decoding, run_every=tab_jobs.pace())(session)
        st.stop()
    if run is None:
        st.stop()
    memory.begin_at(class_view(session.view.run), run)
    _look(session, memory, run, catalog)


def _head(session: Session, memory: Comparison, labels: Mapping[str, str]) -> None:
    left, right = st.columns([6.4, 5.3], vertical_alignment="center")
    with left:
        theme.title("Compare", "Where do two texts diverge, and what is that worth?")
    if memory.view.across is not Across.SWEEP:  # sweeps are independent of the run
        library.picker(right, labels, session.view.run, session.open, disabled=session.job is not None)

    def turn(across: Across) -> None:
        memory.look(across=across)
        memory.turned = True

    bound(
        st.segmented_control,
        "Compare",
        "across",
        memory.view.across,
        turn,
        options=list(LABELS),
        format_func=lambda each: LABELS[each],
        required=True,
        label_visibility="collapsed",
        help="Settings: every text on the run's dial map. Rules or models: all runs of the same prompt.",
    )


@faults.fragment
def _look(session: Session, memory: Comparison, run: Run, catalog: RunCatalogue) -> None:
    if session.job is not None:
        st.rerun()  # a decode was started; the whole page shows it
    _controls(session, memory, run)
    try:
        lineup = line_up(memory, session.view.run, run, catalog)
    except BadInput as error:
        theme.note(str(error))
        return
    theme.note(*memory.notices, *session.notices, *lineup.unread)
    left, right = lineup.left, lineup.right
    shown = None if right.choice == left.choice else right.choice  # a link names both texts, and a single one once
    memory.view = replace(memory.view, reference=left.choice, shown=shown)
    navigation.write_link(page_state.to_parameters(session.view.run, memory.view))
    names = page_state.named(left, right)
    sentence = page_state.finding(left, right, right.aligned(left), names, memory.view.across)
    if left.choice == right.choice:
        theme.note(sentence)
        return
    page_state.lead(sentence)
    # holds no run, because Streamlit keeps it forever
    answer = partial(memory.answer, reference=left.choice, shown=right.choice)
    compare(page_state.payload(memory.view, lineup), key="compare", on_ask=answer)
    rows = differences(left.run, right.run, timed=left.recorded and right.recorded)
    table = page_state.table(rows, names)
    draw([table])
    st.caption(markdown(page_state.footnote(left, right)))
    numbers = share.Table("Both texts in numbers", "compared", lambda: frame(table))
    share.tables([numbers], [left.rule.name, right.rule.name], "compare")


def _controls(session: Session, memory: Comparison, run: Run) -> None:
    dial_map, own_gamma = run.dial_map, run.settings.gamma
    if memory.view.across is Across.RULES:
        _another_rule(session, run)
    if memory.view.across is not Across.SETTINGS or dial_map is None or len(dial_map.span.gammas) < 2:
        return
    trees = run.settings.drafts_trees

    def turn(gamma: int) -> None:
        memory.look(gamma=None if gamma == own_gamma else gamma, shown=None)

    bound(
        st.segmented_control,
        "Nodes" if trees else "Draft length γ",
        "compare-gamma",
        memory.view.gamma or own_gamma,
        turn,
        options=dial_map.span.gammas,
        format_func=lambda gamma: f"{gamma:d}",
        required=True,
        help=f"Tokens drafted per round. The reference keeps its own {'tree' if trees else 'γ'}.",
    )


def _another_rule(session: Session, run: Run) -> None:
    reason = tab_jobs.why_not_again(session, run)
    request, settings = tab_jobs.again(session, run), run.settings  # the button must not hold the run
    left, middle, right = st.columns([3.6, 5.8, 2.6], vertical_alignment="bottom", gap="medium")
    titles = {name: rule.title for name, rule in RULES.items()}
    name = left.selectbox(
        "Another rule", list(RULES), key="compare-rule", format_func=titles.__getitem__, disabled=bool(reason)
    )
    rule = RULES[str(name)]
    with middle:
        dial = decode_form.dial_slider(rule, f"compare-dial-{rule.name}", disabled=bool(reason))
    if reason:
        theme.small(reason)
    right.button(
        "Decode with it",
        disabled=bool(reason),
        width="stretch",
        help=markdown(reason) or "The same prompt and settings otherwise",
        on_click=lambda: tab_jobs.start(
            session, replace(request, settings=lambda: replace(settings, rule=rule.name, dial=dial))
        ),
    )


_page()
