"""Rules: which rule keeps what, on one run? Layout and wiring; the work is done elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from weakref import ref

import numpy as np
import pandas as pd
import streamlit as st

from mars_viz.analysis.all_rules import AllRules
from mars_viz.analysis.branching import MOST_CHILDREN, why_not
from mars_viz.analysis.judgements import Ruling, own_dial
from mars_viz.analysis.metrics import Basis
from mars_viz.analysis.rulings import Agreement, Equivalent, Shifted, agreement, boundary
from mars_viz.escapes import markdown
from mars_viz.figures.agreement_matrix import agreement_matrix
from mars_viz.figures.branching import branch_acceptance
from mars_viz.figures.decision_plane import Upward, decision_plane
from mars_viz.report import file_name
from mars_viz.rules import Rule, rule_named
from mars_viz.ui import faults, library, links, navigation, share, tab_jobs, theme
from mars_viz.ui.classroom.server_class import class_view
from mars_viz.ui.rule_lab import every_rule, rule_tables, rule_words
from mars_viz.ui.rule_lab.page_state import RulesPageState, current_bench
from mars_viz.ui.session import Session, current_session
from mars_viz.ui.theme import chart
from mars_viz.ui.under_way import progress_bar

COMPARED = ("mars", "mars-margin", "tensorrt-llm", "vllm-thinking")  # whose boundaries are drawn at first
MOST = 5  # boundaries besides the chosen rule's
DEFAULT, MATCHED = "defaults", "matched"
DISPUTED, EVERY = "disputed", "all"


@faults.drawn
def page() -> None:
    """The whole page: a run of guards, then the run."""
    navigation.through_app()
    session, bench = current_session(), current_bench()
    tab_jobs.fill_in(session)
    every_rule.settle(bench)
    bench.arrive(session, st.query_params.to_dict())
    shelf, run, problem = library.in_view(session, bench.notices, bench.fit)
    head(session, bench, shelf.labels)
    library.second_line(shelf, session.view.run)
    for sentence in filter(None, [shelf.error, *bench.notices, problem]):
        theme.note(sentence)
    if run is None:
        st.stop()
    bench.begin_at(class_view(session.view.run), run)
    with st.spinner("Asking every rule about every drafted position"):
        panel = bench.panel_of(session.view.run, run)
    if not len(panel.drafted):
        theme.note("No token was drafted in this run, so there is nothing to judge. Choose another run.")
        st.stop()
    look(session, bench, panel)


def head(session: Session, bench: RulesPageState, labels: Mapping[str, str]) -> None:
    """The title and the picker of runs."""
    st.session_state["run"] = session.view.run or None
    left, right = st.columns([6.9, 4.8], vertical_alignment="center")
    with left:
        theme.title("Rules", "Which rule keeps what, on one run?")
        rule_tables.style()

    def open_run() -> None:
        bench.notices.clear()
        session.open(st.session_state["run"])

    library.picker(right, labels, open_run, disabled=False)


@faults.fragment
def look(session: Session, bench: RulesPageState, panel: AllRules) -> None:
    """All rules on the run; what follows the chosen rule's dial."""
    others = controls(bench, panel)
    rule, dial = bench.view.rule_on(panel.run), bench.view.dial_on(panel.run)
    navigation.write_link(links.to_parameters(bench.view, run=session.view.run))
    chosen = None if panel.opinions[rule.name].lacks else panel.ruling(rule.name, dial)
    matched = {} if chosen is None else panel.equivalents(rule.name, dial)
    dials = standing(panel, rule, dial, matched if others == MATCHED else {})
    listed = bench.view.listed(panel.rules, panel.run)
    finding(panel, rule, dial)
    rule_tables.card(rule)
    rulings = {name: panel.ruling(name, dials[name]) for name in panel.able}
    table(session, bench, panel, listed, dials)
    side_by_side = [rulings[name] for name in listed if name in rulings]
    matrix(session, panel, agreement(side_by_side, len(panel.drafted)), chosen)
    plane(session, panel, rulings, chosen)
    equivalents(panel, listed, rule, dials, matched)
    branches(panel)
    take_away(panel, dials, matched)


def take_away(panel: AllRules, dials: Mapping[str, float | None], matched: Mapping[str, Equivalent]) -> None:
    """The page's tables as files, of every rule, and what to cite of them."""
    name, c = file_name(panel.run), float(st.session_state["lab-shift"])

    def like() -> pd.DataFrame:
        return rule_tables.likeness_frame(dials, matched, shifts(panel, panel.able, dials, c))

    numbers = share.Table(
        "Every rule on this run", f"{name}-rules", lambda: rule_tables.rule_frame(panel, list(panel.rules), dials)
    )
    shown = [numbers, share.Table("Equivalent settings of every rule", f"{name}-likeness", like)]
    if not why_not(panel.run):
        found = panel.branching(st.session_state["lab-children"])
        words = "Where a branch would pay, modelled"
        shown.append(share.Table(words, f"{name}-branches", lambda: rule_tables.branch_frame(found)))
    share.tables(shown, panel.able, "lab")


def standing(
    panel: AllRules, rule: Rule, dial: float | None, matched: Mapping[str, Equivalent]
) -> dict[str, float | None]:
    """The dial of every rule that can judge: the chosen one's, and the others' own or as matched to it."""
    own = {name: own_dial(panel.run, panel.rules[name]) for name in panel.able}
    return {**own, **{name: found.dial for name, found in matched.items()}, rule.name: dial}


def controls(bench: RulesPageState, panel: AllRules) -> str:
    """The chosen rule, its dial, and where the other rules stand."""
    left, middle, right = st.columns([3.5, 4.9, 3.6], vertical_alignment="bottom", gap="medium")
    rule = bench.view.rule_on(panel.run)
    st.session_state["lab-rule"] = rule.name
    choices = {
        name: one.title + (" (cannot judge)" if panel.opinions[name].lacks else "") for name, one in panel.rules.items()
    }
    left.selectbox(
        "Rule",
        list(choices),
        key="lab-rule",
        format_func=choices.__getitem__,
        on_change=lambda: bench.choose(st.session_state["lab-rule"]),
    )
    rule = bench.view.rule_on(panel.run)
    if rule.dial is None:
        middle.slider("This rule has no dial", 0.0, 1.0, 0.0, disabled=True, key="lab-no-dial", format=" ")
    else:
        key = f"lab-dial-{rule.name}"
        st.session_state[key] = bench.view.dial_on(panel.run)
        middle.slider(
            markdown(f"{rule.dial.name.capitalize()} {rule.dial.symbol}"),
            rule.dial.low,
            rule.dial.high,
            step=rule.dial.step,
            key=key,
            format="%.0f" if rule.dial.step >= 1 else "%.3f",
            help=f"Strict at {rule.dial.strict:g}, default {rule.dial.default:g}",
            on_change=lambda: bench.turn(st.session_state[key]),
        )
    return str(
        right.segmented_control(
            "Other rules at",
            [DEFAULT, MATCHED],
            default=DEFAULT,
            required=True,
            key="lab-others",
            help="Defaults, or for each rule the dial value whose verdicts differ least from the chosen rule's",
        )
    )


def finding(panel: AllRules, rule: Rule, dial: float | None) -> None:
    """The sentence first."""
    if lacks := panel.opinions[rule.name].lacks:
        theme.note(lacks)
        return
    found = panel.against_strict(rule.name, dial)
    rows = {found.row.basis, found.strict.basis}
    rule_tables.lead(rule_words.lead(found), Basis.EXACT if rows == {Basis.EXACT} else Basis.BLOCK_LOCAL)


def table(
    session: Session, bench: RulesPageState, panel: AllRules, listed: Sequence[str], dials: Mapping[str, float | None]
) -> None:
    """Rules in numbers, how many of them, and the way to exact ones."""
    theme.section("Rules in numbers")
    said, every, decode = st.columns([4.4, 3.7, 3.9], vertical_alignment="center", gap="medium")
    st.session_state["lab-every"] = bench.view.every
    every.toggle(
        f"Show all {len(panel.rules)} rules",
        key="lab-every",
        on_change=lambda: bench.list_every(st.session_state["lab-every"]),
        help="In the tables and in the figure of verdicts",
    )
    waiting = bench.walking is not None and bench.walking.run_id == session.view.run
    if waiting:
        faults.fragment(walking, run_every=tab_jobs.pace())(bench)
    else:
        rows = [panel.row(name, dials[name]) for name in listed if name in panel.able]
        missing = any(row.basis is not Basis.EXACT for row in rows)
        reason = tab_jobs.why_not_again(session, panel.run) if missing else ""
        with said:
            rule_tables.sentence(" ".join(filter(None, [every_rule.what_is_exact(rows), reason])))
        if missing:
            decode.button(
                "Decode every rule on this prompt",
                key="lab-every-rule",
                disabled=bool(reason),
                width="stretch",
                on_click=partial(decode_every_rule, session, bench, ref(panel), dials),
                help="Each rule writes its own text after this prompt, with the same seed and settings; its row then "
                "counts that text",
            )
    chosen = bench.view.rule_on(panel.run).name
    rule_tables.table(rule_tables.rule_frame(panel, listed, dials), chosen, "Rules in numbers")


def decode_every_rule(
    session: Session, bench: RulesPageState, known: ref[AllRules], dials: Mapping[str, float | None]
) -> None:
    """What the button does, which does not keep the run: Streamlit never forgets a button that a tab has shown."""
    panel = known()
    if panel is not None:
        every_rule.start(bench, session, panel.run, panel.stands(dials))


def walking(bench: RulesPageState) -> None:
    """Walks under way: how far they are, and a way to stop them."""
    if bench.walking is None or bench.walking.job.progress.state.finished:
        st.rerun()
    job = bench.walking.job
    words = every_rule.what_goes_on(job.progress, tab_jobs.shared_worker().ahead(job), job.stopping)
    progress_bar(job, every_rule.share(job.progress), words, keeps="Keeps the rules that are done", key="lab-cancel")


def shifts(panel: AllRules, names: Iterable[str], dials: Mapping[str, float | None], c: float) -> dict[str, Shifted]:
    """What adding `c` to every logit does to each of the rules' verdicts."""
    return {name: panel.shifted(name, dials[name], c) for name in names}


def equivalents(
    panel: AllRules,
    listed: Sequence[str],
    rule: Rule,
    dials: Mapping[str, float | None],
    matched: Mapping[str, Equivalent],
) -> None:
    """Which settings are equivalent, and the shift test."""
    theme.section("Which settings are equivalent?")
    rule_tables.sentence(rule_words.nearest_settings(rule, dials.get(rule.name), matched))
    left, right = st.columns([3.2, 8.8], vertical_alignment="bottom", gap="medium")
    c = left.number_input("Shift test: add to every logit", -1000.0, 1000.0, 10.0, 1.0, key="lab-shift", format="%g")
    shifted = shifts(panel, panel.able, dials, float(c))
    with right:
        rule_tables.sentence(rule_words.shift_words(float(c), shifted.values()))
    folded = st.expander("Rule by rule", key="lab-likeness", on_change="rerun")
    if folded.open:
        shown = {name: shifted[name] for name in listed if name in shifted}
        with folded:
            rule_tables.table(rule_tables.likeness_frame(dials, matched, shown), rule.name, "Equivalent settings")
    st.caption("Block-local: verdicts on the drafted positions of the recorded text, each rule at the table's dial.")


def matrix(session: Session, panel: AllRules, agreed: Agreement, chosen: Ruling | None) -> None:
    """Who keeps what."""
    theme.section("Verdicts, token by token")
    rounds = int(panel.drafted.round_index.max()) + 1
    left, right = st.columns([3.2, 8.8], vertical_alignment="bottom", gap="medium")
    which = left.segmented_control(
        "Positions",
        [DISPUTED, EVERY],
        default=DISPUTED,
        required=True,
        key="lab-positions",
        help="Disputed: the rules disagree on it",
    )
    first, last = 1, rounds
    if rounds > 1:
        first, last = right.slider("Rounds", 1, rounds, (1, rounds), key=f"lab-rounds-{session.view.run}")
    inside = (panel.drafted.round_index >= first - 1) & (panel.drafted.round_index <= last - 1)
    shown = np.flatnonzero(inside & (agreed.disputed if which == DISPUTED else True))
    with st.container(key=theme.WIDE_FIGURE):
        chart(
            agreement_matrix(agreed, panel.drafted, panel.run.pieces, shown, theme.figure_theme(), chosen),
            "matrix",
            of=file_name(panel.run),
        )
    st.caption(
        "Block-local: every rule judges the same drafted tokens, after the recorded text before each block.",
        help=f"{markdown(rule_words.across_positions())} Drag over the figure to zoom, double-click to see it all.",
    )


def plane(session: Session, panel: AllRules, rulings: Mapping[str, Ruling], chosen: Ruling | None) -> None:
    """Where rules draw the line."""
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
        format_func=_title,  # of no panel: Streamlit never forgets a widget that it has shown, nor what that holds
        max_selections=MOST,
        placeholder="Choose rules",
    )
    upward = upward or Upward.SHARE
    wanted = ([] if chosen is None else [chosen]) + [rulings[name] for name in compared]
    lines = [boundary(ruling, panel.drafted.margin, upward.of(panel.drafted)) for ruling in wanted]
    figure = decision_plane(panel.drafted, chosen, [line for line in lines if line], upward, theme.figure_theme())
    chart(figure, "plane", of=file_name(panel.run))
    st.caption(
        f"Block-local: the recorded text's drafted tokens. {markdown(rule_words.undrawn(wanted, lines))}",
        help="A line is where a rule's verdicts divide best; “exceptions” counts those on its wrong side",
    )


def branches(panel: AllRules) -> None:
    """What more children than one would do at each depth."""
    theme.section("Where would a branch pay?")
    if reason := why_not(panel.run):
        rule_tables.sentence(reason)
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
    found = panel.branching(children)
    chart(branch_acceptance(found, theme.figure_theme()), "branches", of=file_name(panel.run))
    st.caption(markdown(rule_words.modelled_on(found)), help=rule_words.BRANCHES)


def _title(name: str) -> str:
    return rule_named(name).title


page()
