"""Rules: which rule keeps what, on one run? Layout and wiring; the work is done elsewhere."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import streamlit as st
from plotly.graph_objects import Figure

from mars_viz import figures
from mars_viz.analysis.agreement import Agreement, agreement
from mars_viz.analysis.boundaries import boundary
from mars_viz.analysis.equivalents import Equivalent
from mars_viz.analysis.metrics import Basis
from mars_viz.analysis.opinions import Ruling, own_dial
from mars_viz.analysis.panel import Panel
from mars_viz.errors import BadInput
from mars_viz.figures.agreement_matrix import agreement_matrix
from mars_viz.figures.decision_plane import Upward, decision_plane
from mars_viz.rules import RULES, Rule
from mars_viz.ui import library, navigation, rule_sheet, rule_view, rule_words, theme
from mars_viz.ui.bench import Bench, current_bench
from mars_viz.ui.session import Session, current_session

COMPARED = ("mars", "mars-margin", "tensorrt-llm", "vllm-thinking")  # whose boundaries are drawn at first
MOST = 5  # boundaries besides the chosen rule's
BLOCK_LOCAL = "Block-local: every rule is judged round by round on the recorded text before it."
DEFAULT, ALIKE = "defaults", "alike"
DISPUTED, EVERY = "disputed", "all"


def page() -> None:
    """The whole page: a run of guards, then the run."""
    navigation.through_app()
    session, bench = current_session(), current_bench()
    bench.arrive(session, st.query_params.to_dict())
    shelf = library.shelf(session)
    session.view, lost = shelf.landed(session.view)
    bench.notices.extend(filter(None, [lost]))
    run, problem = None, ""
    try:
        run = shelf.opened(session.view.run)
        bench.fit(run)
    except BadInput as error:
        problem = str(error) if shelf.labels else "There is no run here yet. Decode a prompt on Explore first."
    head(session, bench, shelf.labels)
    for sentence in filter(None, [shelf.error, *bench.notices, problem]):
        theme.note(sentence)
    if run is None:
        st.stop()
    with st.spinner("Asking every rule about every drafted position"):
        panel = bench.panel_of(run)
    if not len(panel.drafted):
        theme.note("No token was drafted in this run, so there is nothing to judge. Choose another run.")
        st.stop()
    look(session, bench, panel)


def head(session: Session, bench: Bench, labels: Mapping[str, str]) -> None:
    """The title and the picker of runs."""
    st.session_state["run"] = session.view.run if labels else None
    left, right = st.columns([6.9, 4.8], vertical_alignment="center")
    with left:
        theme.title("Rules", "Which rule keeps what, on one run?")
        rule_sheet.style()

    def open_run() -> None:
        bench.notices.clear()
        session.open(st.session_state["run"])

    right.selectbox(
        "Run",
        list(labels),
        key="run",
        format_func=lambda run_id: labels.get(run_id, run_id),
        disabled=not labels,
        on_change=open_run,
        placeholder="No run yet",
        label_visibility="collapsed",
    )


@st.fragment
def look(session: Session, bench: Bench, panel: Panel) -> None:
    """All rules on the run; what follows the chosen rule's dial."""
    others = controls(bench, panel)
    rule, dial = bench.view.rule_on(panel.run), bench.view.dial_on(panel.run)
    link = rule_view.to_parameters(session.view.run, bench.view)
    if st.query_params.to_dict() != link:  # else every rerun would add a step to the browser's history
        st.query_params.from_dict(link)
    chosen = None if panel.opinions[rule.name].lacks else panel.ruling(rule.name, dial)
    alike = {} if chosen is None else panel.equivalents(rule.name, dial)
    dials = standing(panel, rule, dial, alike if others == ALIKE else {})
    finding(panel, rule, dial, alike)
    rule_sheet.card(rule)
    rulings = {name: panel.ruling(name, dials[name]) for name in panel.able}
    table(panel, rule, dials, alike)
    matrix(session, panel, agreement(list(rulings.values()), len(panel.drafted)), chosen)
    plane(session, panel, rulings, chosen)


def standing(panel: Panel, rule: Rule, dial: float | None, alike: Mapping[str, Equivalent]) -> dict[str, float | None]:
    """Where every rule that can judge stands: the chosen one at its dial, the others alike to it or by themselves."""
    own = {name: own_dial(panel.run, RULES[name]) for name in panel.able}
    return {**own, **{name: found.dial for name, found in alike.items()}, rule.name: dial}


def controls(bench: Bench, panel: Panel) -> str:
    """The chosen rule, its dial, and where the other rules stand."""
    left, middle, right = st.columns([3.6, 5.8, 2.6], vertical_alignment="bottom", gap="medium")
    rule = bench.view.rule_on(panel.run)
    st.session_state["lab-rule"] = rule.name
    left.selectbox(
        "Rule",
        list(RULES),
        key="lab-rule",
        format_func=lambda name: RULES[name].title + (" (cannot judge)" if panel.opinions[name].lacks else ""),
        on_change=lambda: bench.choose(st.session_state["lab-rule"]),
    )
    rule = bench.view.rule_on(panel.run)
    if rule.dial is None:
        middle.slider("This rule has no dial", 0.0, 1.0, 0.0, disabled=True, key="lab-no-dial", format=" ")
    else:
        key = f"lab-dial-{rule.name}"
        st.session_state[key] = bench.view.dial_on(panel.run)
        middle.slider(
            f"{rule.dial.name.capitalize()} {rule.dial.symbol}",
            rule.dial.low,
            rule.dial.high,
            step=rule.dial.step,
            key=key,
            format="%.0f" if rule.dial.step >= 1 else "%.3f",
            help=f"{rule.dial.strict:g} is strict, {rule.dial.default:g} the default",
            on_change=lambda: bench.turn(st.session_state[key]),
        )
    return str(
        right.segmented_control(
            "Other rules at",
            [DEFAULT, ALIKE],
            default=DEFAULT,
            required=True,
            key="lab-others",
            help="Their defaults, or for each the dial value whose verdicts come nearest to the chosen rule's",
        )
    )


def finding(panel: Panel, rule: Rule, dial: float | None, alike: Mapping[str, Equivalent]) -> None:
    """The sentence first."""
    if lacks := panel.opinions[rule.name].lacks:
        theme.note(lacks)
        return
    row = panel.row(rule.name, dial)
    strict = row if rule.dial is None else panel.row(rule.name, rule.dial.strict)
    basis = row.basis if rule.dial is None else Basis.BLOCK_LOCAL  # a comparison with another setting
    rule_sheet.lead(rule_words.lead(row, strict), basis, rule_words.alike(rule, dial, alike))


def table(panel: Panel, rule: Rule, dials: Mapping[str, float | None], alike: Mapping[str, Equivalent]) -> None:
    """All rules in numbers, and the shift test."""
    left, right = st.columns([2.2, 9.8], vertical_alignment="bottom", gap="medium")
    c = left.number_input("Shift test: add to every logit", -1000.0, 1000.0, 10.0, 1.0, key="lab-shift", format="%g")
    shifted = {name: panel.shifted(name, dials[name], float(c)) for name in panel.able}
    with right:
        rule_sheet.sentence(rule_words.shift_words(float(c), shifted.values()))
    rule_sheet.table(rule_sheet.rule_frame(panel, dials, alike, shifted), rule.name, theme.figure_theme())
    st.caption(BLOCK_LOCAL + " A row that says exact changes no recorded decision: the rule would have written this.")


def matrix(session: Session, panel: Panel, agreed: Agreement, chosen: Ruling | None) -> None:
    """Who keeps what."""
    rounds = int(panel.drafted.round_index.max()) + 1
    left, right = st.columns([3.2, 8.8], vertical_alignment="bottom", gap="medium")
    which = left.segmented_control(
        "Positions",
        [DISPUTED, EVERY],
        default=DISPUTED,
        required=True,
        key="lab-positions",
        help="Disputed: rules disagree on it",
    )
    first, last = 1, rounds
    if rounds > 1:
        first, last = right.slider("Rounds", 1, rounds, (1, rounds), key=f"lab-rounds-{session.view.run}")
    inside = (panel.drafted.round_index >= first - 1) & (panel.drafted.round_index <= last - 1)
    shown = np.flatnonzero(inside & (agreed.disputed if which == DISPUTED else True))
    chart(agreement_matrix(agreed, panel.drafted, panel.run.pieces, shown, theme.figure_theme(), chosen), "matrix")
    st.caption("Block-local, as above. Drag over the figure to look closer, double-click to see it all.")


def plane(session: Session, panel: Panel, rulings: Mapping[str, Ruling], chosen: Ruling | None) -> None:
    """Where rules draw the line."""
    dialled = [name for name in rulings if RULES[name].dial is not None]
    left, right = st.columns([3.2, 8.8], vertical_alignment="bottom", gap="medium")
    upward = left.segmented_control(
        "Upwards", list(Upward), default=Upward.SHARE, required=True, key="lab-upward", format_func=lambda u: u.value
    )
    compared = right.multiselect(
        "Boundaries to compare with",
        dialled,
        [name for name in COMPARED if name in dialled],
        key=f"lab-compared-{session.view.run}",
        format_func=lambda name: RULES[name].title,
        max_selections=MOST,
        placeholder="Choose rules",
    )
    upward = upward or Upward.SHARE
    wanted = ([] if chosen is None else [chosen]) + [rulings[name] for name in compared if rulings[name] is not chosen]
    lines = [boundary(ruling, panel.drafted.margin, upward.of(panel.drafted)) for ruling in wanted]
    figure = decision_plane(panel.drafted, chosen, [line for line in lines if line], upward, theme.figure_theme())
    chart(figure, "plane")
    st.caption("Block-local, as above. " + rule_words.undrawn(wanted, lines))


def chart(figure: Figure, key: str) -> None:
    """A figure in the page's theme."""
    st.plotly_chart(figure, theme=None, key=key, config={"displayModeBar": False}, alt=figures.spoken_title(figure))


page()
