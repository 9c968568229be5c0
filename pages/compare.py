"""Compare: where do two texts part, and what is that worth? Layout and wiring; the work is done elsewhere."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from mars_viz.analysis.differences import differences
from mars_viz.components.compare import compare
from mars_viz.errors import BadInput
from mars_viz.run import Run
from mars_viz.ui import compare_sheet, compare_view, compare_words, comparison, library, navigation, theme
from mars_viz.ui.compare_view import Across
from mars_viz.ui.comparison import Comparison, current_comparison, line_up
from mars_viz.ui.library import Shelf
from mars_viz.ui.session import Session, current_session

LABELS = {
    Across.SETTINGS: "Settings of one run",
    Across.RULES: "Rules on one prompt",
    Across.RUNS: "All runs",
}


def page() -> None:
    """The whole page: a run of guards, then the comparison."""
    navigation.through_app()
    session, memory = current_session(), current_comparison()
    memory.arrive(session, st.query_params.to_dict())
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
    for sentence in filter(None, [shelf.error, problem]):
        theme.note(sentence)
    if run is None:
        st.stop()
    look(session, memory, run, shelf)


def head(session: Session, memory: Comparison, labels: Mapping[str, str]) -> None:
    """The title, what the texts differ in, and the run that they come from."""
    st.session_state["run"] = session.view.run if labels else None
    st.session_state["across"] = memory.view.across
    left, right = st.columns([6.4, 5.3], vertical_alignment="center")
    with left:
        theme.title("Compare", "Where do two texts part, and what is that worth?")
        compare_sheet.style()

    right.selectbox(
        "Run",
        list(labels),
        key="run",
        format_func=lambda run_id: labels.get(run_id, run_id),
        disabled=not labels,
        on_change=lambda: session.open(st.session_state["run"]),
        placeholder="No run yet",
        label_visibility="collapsed",
    )


@st.fragment
def look(session: Session, memory: Comparison, run: Run, shelf: Shelf) -> None:
    """The texts side by side, and what follows from them."""
    controls(memory, run)
    try:
        shown = line_up(memory, session.view.run, run, shelf)
    except BadInput as error:
        theme.note(str(error))
        return
    for sentence in (*memory.notices, *shown.unread):
        theme.note(sentence)
    left, right = shown.left, shown.right
    memory.view = memory.pinned(left.choice, right.choice)
    link = compare_view.to_parameters(session.view.run, memory.view)
    if st.query_params.to_dict() != link:  # else every rerun would add a step to the browser's history
        st.query_params.from_dict(link)
    names = compare_words.named(left, right)
    compare_sheet.lead(compare_words.finding(left, right, memory.alignment(left, right), names))
    compare(
        comparison.payload(memory, shown),
        key="compare",
        on_ask=lambda asked: memory.answer(asked, left.choice, right.choice),
    )
    compare_sheet.table(differences(left.run, right.run, timed=left.recorded and right.recorded), names)
    st.caption(compare_words.footnote(left, right))


def controls(memory: Comparison, run: Run) -> None:
    """What the texts differ in, and the block length of the settings to leaf through."""
    left, right = st.columns([7, 4.7], vertical_alignment="bottom")

    def across() -> None:
        memory.look(across=st.session_state["across"], reference=None, shown=None)

    left.segmented_control(
        "Compare",
        list(LABELS),
        format_func=lambda each: LABELS[each],
        key="across",
        required=True,
        on_change=across,
        help="Settings: every text that the run's dial can make. Rules: all runs of the same prompt.",
    )
    made, own = run.dial_map, run.settings.gamma
    if memory.view.across is not Across.SETTINGS or made is None or len(made.span.gammas) < 2:
        return
    st.session_state["compare-gamma"] = memory.view.gamma or own

    def turn() -> None:
        chosen = st.session_state["compare-gamma"]
        memory.look(gamma=None if chosen == own else chosen, shown=None)

    right.segmented_control(
        "γ of the settings to leaf through",
        made.span.gammas,
        key="compare-gamma",
        required=True,
        on_change=turn,
        help="Tokens drafted per block. The reference keeps its own.",
    )


page()
