"""Rules: which rule keeps what, on one run? Layout and wiring; the work is done elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from weakref import ref

import numpy as np
import pandas as pd
import streamlit as st

from mars_viz.analysis.agreement import Agreement, agreement
from mars_viz.analysis.boundaries import boundary
from mars_viz.analysis.equivalents import Equivalent
from mars_viz.analysis.metrics import Basis
from mars_viz.analysis.opinions import Ruling, own_dial
from mars_viz.analysis.panel import Panel
from mars_viz.errors import BadInput
from mars_viz.figures.agreement_matrix import agreement_matrix
from mars_viz.figures.decision_plane import Upward, decision_plane
from mars_viz.report import file_name
from mars_viz.rules import Rule, rule_named
from mars_viz.ui import library, live, navigation, share, theme
from mars_viz.ui.bench import Bench, current_bench
from mars_viz.ui.charts import chart
from mars_viz.ui.rule_lab import every_rule, rule_sheet, rule_view, rule_words
from mars_viz.ui.session import Session, current_session
from mars_viz.ui.stop_button import stop_button

COMPARED = ("mars", "mars-margin", "tensorrt-llm", "vllm-thinking")  # whose boundaries are drawn at first
MOST = 5  # boundaries besides the chosen rule's
DEFAULT, ALIKE = "defaults", "alike"
DISPUTED, EVERY = "disputed", "all"


def page() -> None:
    """The whole page: a run of guards, then the run."""
    navigation.through_app()
    session, bench = current_session(), current_bench()
    live.fill_in(session)
    every_rule.settle(bench)
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
        panel = bench.panel_of(session.view.run, run)
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

    library.picker(right, labels, open_run, disabled=False)


@st.fragment
def look(session: Session, bench: Bench, panel: Panel) -> None:
    """All rules on the run; what follows the chosen rule's dial."""
    others = controls(bench, panel)
    rule, dial = bench.view.rule_on(panel.run), bench.view.dial_on(panel.run)
    navigation.write_link(rule_view.to_parameters(session.view.run, bench.view))
    chosen = None if panel.opinions[rule.name].lacks else panel.ruling(rule.name, dial)
    alike = {} if chosen is None else panel.equivalents(rule.name, dial)
    dials = standing(panel, rule, dial, alike if others == ALIKE else {})
    finding(panel, rule, dial, alike)
    rule_sheet.card(rule)
    rulings = {name: panel.ruling(name, dials[name]) for name in panel.able}
    table(session, bench, panel, rule, dials)
    matrix(session, panel, agreement(list(rulings.values()), len(panel.drafted)), chosen)
    plane(session, panel, rulings, chosen)
    likeness(panel, rule, dials, alike)
    take_away(panel, dials, alike)


def take_away(panel: Panel, dials: Mapping[str, float | None], alike: Mapping[str, Equivalent]) -> None:
    """The page's tables as files, and what to cite of the rules in them."""
    name, c = file_name(panel.run), float(st.session_state["lab-shift"])

    def like() -> pd.DataFrame:
        shifted = {each: panel.shifted(each, dials[each], c) for each in panel.able}
        return rule_sheet.likeness_frame(dials, alike, shifted)

    every = share.Table("Every rule on this run", f"{name}-rules", lambda: rule_sheet.rule_frame(panel, dials))
    shown = [every, share.Table("Which settings come to the same", f"{name}-likeness", like)]
    share.tables(shown, panel.able, "lab")


def standing(panel: Panel, rule: Rule, dial: float | None, alike: Mapping[str, Equivalent]) -> dict[str, float | None]:
    """Where every rule that can judge stands: the chosen one at its dial, the others alike to it or by themselves."""
    own = {name: own_dial(panel.run, panel.rules[name]) for name in panel.able}
    return {**own, **{name: found.dial for name, found in alike.items()}, rule.name: dial}


def controls(bench: Bench, panel: Panel) -> str:
    """The chosen rule, its dial, and where the other rules stand."""
    left, middle, right = st.columns([3.6, 5.8, 2.6], vertical_alignment="bottom", gap="medium")
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
    found = panel.against_strict(rule.name, dial)
    rows = {found.row.basis, found.strict.basis}
    basis = Basis.EXACT if rows == {Basis.EXACT} else Basis.BLOCK_LOCAL
    rule_sheet.lead(rule_words.lead(found), basis, rule_words.alike(rule, dial, alike))


def table(session: Session, bench: Bench, panel: Panel, rule: Rule, dials: Mapping[str, float | None]) -> None:
    """All rules in numbers, and the way to exact ones."""
    theme.section("What each rule writes, and what it lets through")
    waiting = bench.walking is not None and bench.walking.run_id == session.view.run
    if waiting:
        st.fragment(walking, run_every=live.pace())(bench)
    else:
        rows = [panel.row(name, dials[name]) for name in panel.able]
        missing = any(row.basis is not Basis.EXACT for row in rows)
        reason = live.why_not_again(panel.run) if missing else ""
        widths = [7.0, 5.0] if missing else [11.9, 0.1]
        said, button = st.columns(widths, vertical_alignment="center", gap="medium")
        with said:
            rule_sheet.sentence(" ".join(filter(None, [every_rule.what_is_exact(rows), reason])))
        if missing:
            button.button(
                "Decode every rule on this prompt",
                key="lab-every-rule",
                disabled=bool(reason),
                width="stretch",
                on_click=partial(decode_every_rule, session, bench, ref(panel), dials),
                help="Each rule writes its own text after this prompt, with the same seed and settings, which its row "
                "then counts",
            )
    spoken = "Every rule: acceptance length, rolled back, relaxed, and what it let through"
    rule_sheet.table(rule_sheet.rule_frame(panel, dials), rule.name, theme.figure_theme(), "rules", spoken)


def decode_every_rule(session: Session, bench: Bench, known: ref[Panel], dials: Mapping[str, float | None]) -> None:
    """What the button does, which does not keep the run: Streamlit never forgets a button that a tab has shown."""
    panel = known()
    if panel is not None:
        every_rule.start(bench, session, panel.run, panel.stands(dials))


def walking(bench: Bench) -> None:
    """Walks under way: how far they are, and a way to stop them."""
    if bench.walking is None or bench.walking.job.progress.state.finished:
        st.rerun()
    job = bench.walking.job
    words = every_rule.what_goes_on(job.progress, live.shared_worker().ahead(job), job.stopping)
    bar, button = st.columns([6, 1], vertical_alignment="center")
    bar.progress(every_rule.share(job.progress), words)
    stop_button(button, "Cancel", job, keeps="Keeps the rules that are done", key="lab-cancel")


def likeness(panel: Panel, rule: Rule, dials: Mapping[str, float | None], alike: Mapping[str, Equivalent]) -> None:
    """Which settings come to the same, and the shift test."""
    theme.section("Which settings come to the same?")
    left, right = st.columns([3.2, 8.8], vertical_alignment="bottom", gap="medium")
    c = left.number_input("Shift test: add to every logit", -1000.0, 1000.0, 10.0, 1.0, key="lab-shift", format="%g")
    shifted = {name: panel.shifted(name, dials[name], float(c)) for name in panel.able}
    with right:
        rule_sheet.sentence(rule_words.shift_words(float(c), shifted.values()))
    folded = st.expander("Rule by rule", key="lab-likeness", on_change="rerun")
    if folded.open:
        frame, spoken = rule_sheet.likeness_frame(dials, alike, shifted), "Which settings of the rules come to the same"
        with folded:
            rule_sheet.table(frame, rule.name, theme.figure_theme(), "likeness", spoken)
    st.caption("Block-local: verdicts on the positions of the recorded text, each rule where it stands in the tables.")


def matrix(session: Session, panel: Panel, agreed: Agreement, chosen: Ruling | None) -> None:
    """Who keeps what."""
    theme.section("Who keeps what?")
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
    with st.container(key=theme.WIDE_FIGURE):
        chart(
            agreement_matrix(agreed, panel.drafted, panel.run.pieces, shown, theme.figure_theme(), chosen),
            "matrix",
            of=file_name(panel.run),
        )
    st.caption(
        "Block-local: every rule is judged on the recorded text before each block, so that all are asked about the "
        f"same tokens. {rule_words.in_the_light_of_others()} "
        "Drag over the figure to look closer, double-click to see it all."
    )


def plane(session: Session, panel: Panel, rulings: Mapping[str, Ruling], chosen: Ruling | None) -> None:
    """Where rules draw the line."""
    theme.section("Where does each draw its line?")
    dialled = [name for name in rulings if panel.rules[name].dial is not None]
    left, right = st.columns([3.2, 8.8], vertical_alignment="bottom", gap="medium")
    upward = left.segmented_control(
        "Upwards", list(Upward), default=Upward.SHARE, required=True, key="lab-upward", format_func=lambda u: u.value
    )
    compared = right.multiselect(
        "Boundaries to compare with",
        dialled,
        [name for name in COMPARED if name in dialled],
        key=f"lab-compared-{session.view.run}",
        format_func=_title,  # of no panel: Streamlit never forgets a widget that it has shown, nor what that holds
        max_selections=MOST,
        placeholder="Choose rules",
    )
    upward = upward or Upward.SHARE
    wanted = ([] if chosen is None else [chosen]) + [rulings[name] for name in compared if rulings[name] is not chosen]
    lines = [boundary(ruling, panel.drafted.margin, upward.of(panel.drafted)) for ruling in wanted]
    figure = decision_plane(panel.drafted, chosen, [line for line in lines if line], upward, theme.figure_theme())
    chart(figure, "plane", of=file_name(panel.run))
    st.caption("Block-local: the drafted tokens of the recorded text. " + rule_words.undrawn(wanted, lines))


def _title(name: str) -> str:
    return rule_named(name).title


page()
