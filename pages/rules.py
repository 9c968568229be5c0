"""Rules page: the verdicts of every rule on one run. Only layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from weakref import ref

import numpy as np
import pandas as pd
import streamlit as st

from mars_viz.analysis.branching import MOST_CHILDREN, why_not
from mars_viz.analysis.metrics import Basis
from mars_viz.analysis.rulings import Agreement, AllRules, Equivalent, Ruling, Shifted, agreement, boundary, own_dial
from mars_viz.documents import Sentence
from mars_viz.escapes import markdown
from mars_viz.figures.rules import Upward, agreement_matrix, branch_acceptance, decision_plane
from mars_viz.report import file_name
from mars_viz.rules import Rule, rule_named
from mars_viz.ui import faults, library, links, navigation, share, tab_jobs, theme
from mars_viz.ui.classroom.server_class import class_view
from mars_viz.ui.documents import draw
from mars_viz.ui.rule_lab import rule_words
from mars_viz.ui.rule_lab.rule_words import (
    RulesPageState,
    settle_walks,
    start_walks,
    walks_going_on,
    what_is_exact,
)
from mars_viz.ui.session import Session, bound, current_session
from mars_viz.ui.theme import chart

COMPARED = ("mars", "mars-margin", "tensorrt-llm", "vllm-thinking")  # rules whose boundaries are drawn by default
MOST = 5  # maximum number of boundaries besides that of the chosen rule
DEFAULT, MATCHED = "defaults", "matched"
OTHERS_HELP = "Defaults, or for each rule the dial value whose verdicts differ least from the chosen rule's"
DISPUTED, EVERY = "disputed", "all"
DISPUTED_HELP = "Disputed: the rules disagree on it"


@faults.drawn
def _page() -> None:
    navigation.through_app()
    session, page_state = current_session(), RulesPageState.of_tab()
    tab_jobs.fill_in(session)
    settle_walks(page_state)
    page_state.arrive(session, st.query_params.to_dict())
    catalog, run, problem = library.in_view(session, page_state.notices, page_state.fit)
    _head(session, page_state, catalog.labels)
    library.second_line(catalog, session.view.run)
    theme.note(catalog.error, *page_state.notices, problem)
    if run is None:
        st.stop()
    page_state.begin_at(class_view(session.view.run), run)
    with st.spinner("Asking every rule about every drafted position"):
        panel = page_state.panel_of(session.view.run, run)
    if not len(panel.drafted):
        theme.note("No token was drafted in this run, so there is nothing to judge. Choose another run.")
        st.stop()
    _look(session, page_state, panel)


def _head(session: Session, page_state: RulesPageState, labels: Mapping[str, str]) -> None:
    left, right = st.columns([6.9, 4.8], vertical_alignment="center")
    with left:
        theme.title("Rules", "Which rule keeps what, on one run?")

    def open_run(run_id: str) -> None:
        page_state.notices.clear()
        session.open(run_id)

    library.picker(right, labels, session.view.run, open_run)


@faults.fragment
def _look(session: Session, page_state: RulesPageState, panel: AllRules) -> None:
    others = _controls(page_state, panel)
    rule, dial = page_state.view.rule_on(panel.run), page_state.view.dial_on(panel.run)
    navigation.write_link(links.to_parameters(page_state.view, run=session.view.run))
    chosen = None if panel.opinions[rule.name].lacks else panel.ruling(rule.name, dial)
    matched = {} if chosen is None else panel.equivalents(rule.name, dial)
    # the chosen rule's dial, and the others' own or matched values
    dials = {name: own_dial(panel.run, panel.rules[name]) for name in panel.able}
    dials |= {name: equivalent.dial for name, equivalent in matched.items() if others == MATCHED} | {rule.name: dial}
    listed = page_state.view.listed(panel.rules, panel.run)
    if lacks := panel.opinions[rule.name].lacks:
        theme.note(lacks)
    else:
        row, strict, walked = panel.against_strict(rule.name, dial)
        basis = Basis.EXACT if {row.basis, strict.basis} == {Basis.EXACT} else Basis.BLOCK_LOCAL
        theme.lead(rule_words.compared_with_strict(row, strict, walked), basis.value, basis.words)
    theme.sentence(f"{rule.title}: {rule.summary} It keeps a drafted token x where {rule.formula}.")
    with st.expander("About this rule", key="lab-about", on_change="rerun") as about:
        if about.open:
            draw(Sentence(f"{name}: {text}") for name, text in rule.facts)
    rulings = {name: panel.ruling(name, dials[name]) for name in panel.able}
    _table(session, page_state, panel, listed, dials)
    side_by_side = [rulings[name] for name in listed if name in rulings]
    _matrix(session, panel, agreement(side_by_side, len(panel.drafted)), chosen)
    _plane(session, panel, rulings, chosen)
    _equivalents(panel, listed, rule, dials, matched)
    _branches(panel)
    _take_away(panel, dials, matched)


def _take_away(panel: AllRules, dials: Mapping[str, float | None], matched: Mapping[str, Equivalent]) -> None:
    name, c = file_name(panel.run), float(st.session_state["lab-shift"])

    def rules() -> pd.DataFrame:
        return rule_words.rule_frame(panel, list(panel.rules), dials)

    def like() -> pd.DataFrame:
        return rule_words.likeness_frame(dials, matched, _shifts(panel, dials, c))

    shared_tables = [
        share.Table("Every rule on this run", f"{name}-rules", rules),
        share.Table("Equivalent settings of every rule", f"{name}-likeness", like),
    ]
    if not why_not(panel.run):
        branching = panel.branching(st.session_state["lab-children"])
        words = "Where a branch would pay, modelled"
        shared_tables.append(share.Table(words, f"{name}-branches", lambda: rule_words.branch_frame(branching)))
    share.tables(shared_tables, panel.able, "lab")


def _controls(page_state: RulesPageState, panel: AllRules) -> str:
    left, middle, right = st.columns([3.5, 4.9, 3.6], vertical_alignment="bottom", gap="medium")
    rule = page_state.view.rule_on(panel.run)
    choices = {
        name: one.title + (" (cannot judge)" if panel.opinions[name].lacks else "") for name, one in panel.rules.items()
    }
    names, words = list(choices), choices.__getitem__

    def choose(name: str) -> None:
        page_state.look(rule=name, dial=None)

    bound(left.selectbox, "Rule", "lab-rule", rule.name, choose, options=names, format_func=words)
    if rule.dial is None:
        middle.slider("This rule has no dial", 0.0, 1.0, 0.0, disabled=True, key="lab-no-dial", format=" ")
    else:
        dial, now = rule.dial, page_state.view.dial_on(panel.run)
        bound(
            middle.slider,
            markdown(f"{dial.name.capitalize()} {dial.symbol}"),
            f"lab-dial-{rule.name}",
            now,
            lambda value: page_state.look(dial=value),
            min_value=dial.low,
            max_value=dial.high,
            step=dial.step,
            format="%.0f" if dial.step >= 1 else "%.3f",
            help=f"Strict at {dial.strict:g}, default {dial.default:g}",
        )
    others = right.segmented_control(
        "Other rules at", [DEFAULT, MATCHED], default=DEFAULT, required=True, key="lab-others", help=OTHERS_HELP
    )
    return str(others)


def _table(
    session: Session,
    page_state: RulesPageState,
    panel: AllRules,
    listed: Sequence[str],
    dials: Mapping[str, float | None],
) -> None:
    theme.section("Rules in numbers")
    left, every, decode = st.columns([4.4, 3.7, 3.9], vertical_alignment="center", gap="medium")
    bound(
        every.toggle,
        f"Show all {len(panel.rules)} rules",
        "lab-every",
        page_state.view.every,
        lambda on: page_state.change(every=on),
        help="In the tables and in the figure of verdicts",
    )
    if page_state.walking is not None and page_state.walking[0] == session.view.run:
        job = page_state.walking[1]
        faults.fragment(tab_jobs.watch, run_every=tab_jobs.pace())(
            job,
            lambda: walks_going_on(job.progress),
            "Cancel",
            keeps="Keeps the rules that are done",
            key="lab-cancel",
            stopping="Stopping after this pass …",
        )
    else:
        rows = [panel.row(name, dials[name]) for name in listed if name in panel.able]
        missing = any(row.basis is not Basis.EXACT for row in rows)
        reason = tab_jobs.why_not_again(session, panel.run) if missing else ""
        with left:
            theme.sentence(" ".join(filter(None, [what_is_exact(rows), reason])))
        panel_ref = ref(panel)  # weak, because Streamlit never forgets a button's callback

        def decode_every_rule() -> None:
            if (run_panel := panel_ref()) is not None:
                start_walks(page_state, session, run_panel.run, run_panel.stands(dials))

        if missing:
            decode.button(
                "Decode every rule on this prompt",
                key="lab-every-rule",
                disabled=bool(reason),
                width="stretch",
                on_click=decode_every_rule,
                help="Each rule writes its own text after this prompt, with the same seed and settings; its row then "
                "counts that text",
            )
    chosen = page_state.view.rule_on(panel.run).name
    rule_words.table(rule_words.rule_frame(panel, listed, dials), chosen, "Rules in numbers")


def _shifts(panel: AllRules, dials: Mapping[str, float | None], c: float) -> dict[str, Shifted]:
    return {name: panel.shifted(name, dials[name], c) for name in panel.able}


def _equivalents(
    panel: AllRules,
    listed: Sequence[str],
    rule: Rule,
    dials: Mapping[str, float | None],
    matched: Mapping[str, Equivalent],
) -> None:
    theme.section("Which settings are equivalent?")
    theme.sentence(rule_words.nearest_settings(rule, dials.get(rule.name), matched))
    left, right = st.columns([3.2, 8.8], vertical_alignment="bottom", gap="medium")
    c = left.number_input("Shift test: add to every logit", -1000.0, 1000.0, 10.0, 1.0, key="lab-shift", format="%g")
    shifted = _shifts(panel, dials, float(c))
    with right:
        theme.sentence(rule_words.shift_words(float(c), shifted.values()))
    folded = st.expander("Rule by rule", key="lab-likeness", on_change="rerun")
    if folded.open:
        rows = {name: shifted[name] for name in listed if name in shifted}
        with folded:
            rule_words.table(rule_words.likeness_frame(dials, matched, rows), rule.name, "Equivalent settings")
    st.caption("Block-local: verdicts on the drafted positions of the recorded text, each rule at the table's dial.")


def _matrix(session: Session, panel: AllRules, agreed: Agreement, chosen: Ruling | None) -> None:
    theme.section("Verdicts, token by token")
    rounds = int(panel.drafted.round_index.max()) + 1
    left, right = st.columns([3.2, 8.8], vertical_alignment="bottom", gap="medium")
    which = left.segmented_control(
        "Positions", [DISPUTED, EVERY], default=DISPUTED, required=True, key="lab-positions", help=DISPUTED_HELP
    )
    first, last = 1, rounds
    if rounds > 1:
        first, last = right.slider("Rounds", 1, rounds, (1, rounds), key=f"lab-rounds-{session.view.run}")
    inside = (panel.drafted.round_index >= first - 1) & (panel.drafted.round_index <= last - 1)
    position_indices = np.flatnonzero(inside & (agreed.disputed if which == DISPUTED else True))
    with st.container(key=theme.WIDE_FIGURE):
        pieces, colours = panel.run.pieces, theme.figure_theme()
        figure = agreement_matrix(agreed, panel.drafted, pieces, position_indices, colours, chosen)
        chart(figure, "matrix", of=file_name(panel.run))
    st.caption(
        "Block-local: every rule judges the same drafted tokens, after the recorded text before each block.",
        help=f"{markdown(rule_words.across_positions())} Drag over the figure to zoom, double-click to see it all.",
    )


def _plane(session: Session, panel: AllRules, rulings: Mapping[str, Ruling], chosen: Ruling | None) -> None:
    theme.section("Decision boundaries")
    others = [name for name in rulings if panel.rules[name].dial is not None and rulings[name] is not chosen]
    left, right = st.columns([3.2, 8.8], vertical_alignment="bottom", gap="medium")
    upward = left.segmented_control(
        "Vertical axis",
        list(Upward),
        default=Upward.SHARE,
        required=True,
        key="lab-upward",
        format_func=lambda upward: markdown(upward.value),
    )
    compared = right.multiselect(
        "Boundaries to compare with",
        others,
        [name for name in COMPARED if name in others],
        key=f"lab-compared-{session.view.run}",
        format_func=_title,  # a module's function, because Streamlit never forgets a widget and its callbacks
        max_selections=MOST,
        placeholder="Choose rules",
    )
    upward = upward or Upward.SHARE
    compared_rulings = ([] if chosen is None else [chosen]) + [rulings[name] for name in compared]
    lines = [boundary(ruling, panel.drafted.margin, upward.of(panel.drafted)) for ruling in compared_rulings]
    figure = decision_plane(panel.drafted, chosen, [line for line in lines if line], upward, theme.figure_theme())
    chart(figure, "plane", of=file_name(panel.run))
    st.caption(
        f"Block-local: the recorded text's drafted tokens. {markdown(rule_words.undrawn(compared_rulings, lines))}",
        help="A line is where a rule's verdicts divide best; “exceptions” counts those on its wrong side",
    )


def _branches(panel: AllRules) -> None:
    theme.section("Where would a branch pay?")
    if reason := why_not(panel.run):
        theme.sentence(reason)
        return
    children = st.segmented_control(
        "Children of a node",
        range(2, MOST_CHILDREN + 1),
        default=2,
        required=True,
        key="lab-children",
        format_func=lambda children: f"{children:d}",
        help="Drafted after the same prefix: i.i.d. ones may be equal, distinct ones are drawn without replacement",
    )
    branching = panel.branching(children)
    chart(branch_acceptance(branching, theme.figure_theme()), "branches", of=file_name(panel.run))
    st.caption(markdown(rule_words.modelled_on(branching)), help=rule_words.BRANCHES)


def _title(name: str) -> str:
    return rule_named(name).title


_page()
