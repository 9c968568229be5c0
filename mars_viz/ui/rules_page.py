"""The Rules page: the verdicts of every rule on one run, in words, tables and figures, and the walks that decode its
prompt by every rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Real

import numpy as np
import pandas as pd
import streamlit as st

from mars_viz.analysis.metrics import Basis
from mars_viz.analysis.rulings import Agreement, AllRules, Equivalent, RuleRow, Ruling, agreement, boundary, own_dial
from mars_viz.backend_choice import BUILT_IN
from mars_viz.components.session_cache import put_last
from mars_viz.documents import Sentence, Table
from mars_viz.errors import BadInput
from mars_viz.escapes import markdown
from mars_viz.figures.rules import Upward, agreement_matrix, decision_plane
from mars_viz.recording import Walking
from mars_viz.report import file_name
from mars_viz.rules import RULES, Rule, rule_named, rules_and
from mars_viz.run import Provenance, Run
from mars_viz.ui import faults, library, links, navigation, share, tab_jobs, theme
from mars_viz.ui.classroom.rights import class_view
from mars_viz.ui.documents import draw, lead, sentence
from mars_viz.ui.jobs.models import LEFT, Job, JobState
from mars_viz.ui.jobs.tasks import Walked, walk_job
from mars_viz.ui.links import Opened, View
from mars_viz.ui.session import PageState, Session, bound, current_session
from mars_viz.ui.theme import chart
from mars_viz.walk import Answer, Prefix
from mars_viz.words import clipped, counted, number, setting

Dials = Mapping[str, float | None]  # values by rule
NEAREST = 3  # maximum number of equivalents in a sentence


def compared_with_strict(row: RuleRow, strict: RuleRow, walked: bool) -> str:
    """Compare a rule with its strict end, like 'MARS at θ = 0.90: 28 rounds (strict 37), τ = 4.57 (strict 3.46),
    …'. The figures are from the texts of both if these were decoded, otherwise from the recorded text."""
    parts = [f"τ = {number(row.tau)}{_versus(row.tau, strict.tau)}"]
    back = f"{counted(row.rolled_back, 'drafted token')} rolled back"
    parts.append(back + _versus(row.rolled_back, strict.rolled_back))
    if not walked:
        return f"{row.rule.at(row.dial)} on the recorded text: {', '.join(parts)}."
    parts.insert(0, counted(row.rounds, "round") + _versus(row.rounds, strict.rounds))
    if row.dial != strict.dial:
        place, same = row.first_difference, "the same text as strict"
        parts.append(same if place is None else f"first difference from strict at token {number(place + 1)}")
    return f"{row.rule.at(row.dial)}: {', '.join(parts)}."


def _versus(value: float, strict: float) -> str:
    return "" if number(value) == number(strict) else f" (strict {number(strict)})"


def nearest_settings(chosen: str, equivalents: Mapping[str, Equivalent], positions: int) -> str:
    """Return the settings of other rules with the verdicts most similar to those of the chosen rule, which is in words,
    the closest first."""
    dialled = [(name, one) for name, one in equivalents.items() if one[0] is not None]
    parts = []
    for name, (dial, differing) in sorted(dialled, key=lambda each: each[1][1])[:NEAREST]:
        differ = f"{number(differing)} of {counted(positions, 'verdict')} differ"
        parts.append(f"{rule_named(name).at(dial)} ({differ if differing else 'the same verdicts'})")
    return f"Closest to {chosen}: {_listed(parts)}." if parts else ""


def shift_words(c: float, counts: Mapping[str, int]) -> str:
    """Return the effect of adding `c` to every logit: `counts` has the number of changed verdicts by rule in words."""
    changed = sorted(((rule, count) for rule, count in counts.items() if count), key=lambda each: -each[1])
    amount = f"{number(abs(c))} {'to' if c >= 0 else 'from'}"
    begin = f"{'Adding' if c >= 0 else 'Subtracting'} {amount} every logit changes no probability"
    if not changed:
        return begin + " and, here, no verdict."
    parts = [f"{counted(count, 'verdict')} of {rule}" for rule, count in changed]
    return begin + f", but {_listed(parts)}."


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def rule_frame(panel: AllRules, names: Sequence[str], dials: Dials) -> pd.DataFrame:
    lines: list[dict[str, object]] = []
    for name in names:
        rule = panel.rules[name]
        if lacks := panel.opinions[name].lacks:
            lines.append({"rule": rule.title, "dial": "cannot judge", "reason": lacks})
            continue
        row, line = panel.row(name, dials[name]), dict[str, object](rule=rule.title)
        line |= {"dial": _setting(rule, row.dial), "basis": row.basis.value, "reason": ""}
        line |= {"τ": row.tau, "rolled back": row.rolled_back, "relaxed": row.relaxed}
        line["first difference"] = None if row.first_difference is None else row.first_difference + 1
        lines.append(line | {"worst rank kept": row.lowest_rank, "least p(x)/p1 kept": row.lowest_share})
    table = pd.DataFrame(lines, index=list(names))
    return table if table["reason"].any() else table.drop(columns="reason")


def likeness_frame(dials: Dials, matched: Mapping[str, Equivalent], shifted: Mapping[str, int]) -> pd.DataFrame:
    lines = []
    for name, changed in shifted.items():
        rule, (dial, differing) = rule_named(name), matched.get(name, (None, None))
        line = {"rule": rule.title, "dial": _setting(rule, dials[name]), "matched at": _setting(rule, dial)}
        lines.append(line | {"still differ": differing, "shift changes": changed})
    return pd.DataFrame(lines, index=list(shifted))


def table(frame: pd.DataFrame, chosen: str, title: str) -> None:
    """Draw a table with the chosen rule marked, and why other rules cannot judge the run."""
    columns = {
        "dial": "The chosen rule at the dial above, the run's own rule at its value, the others as chosen above",
        "basis": "Exact: counted on the text that the rule itself writes after this prompt. Block-local: each "
        "round of the recorded text judged by the rule",
        "τ": "Acceptance length: tokens emitted per round, correction or bonus included",
        "rolled back": "Drafted tokens that are not kept",
        "relaxed": "Kept tokens that the rule's strict end rejects",
        "first difference": "Exact: the first token, from 1, that is not that of the text at the rule's strict end. "
        "Block-local: the first that the strict end, after the same recorded prefix, would write otherwise",
        "worst rank kept": "The target's rank of the least likely drafted token that was kept; 1 is its best",
        "least p(x)/p1 kept": "The smallest probability of a kept token, relative to the target's best",
        "matched at": "The dial value whose verdicts differ least from those of the chosen rule",
        "still differ": "Verdicts that differ from the chosen rule's even there",
        "shift changes": "Verdicts that change when the constant above is added to every logit",
    }
    heads = [name for name in frame if name != "reason"]
    records = frame.to_dict("index")
    rows = [
        ["▸ " * (rule == chosen and name == "rule") + _cell(row[name]) for name in heads]
        for rule, row in records.items()
    ]
    lacking = (f"{row['rule']} cannot judge: {row['reason']}" for row in records.values() if row.get("reason"))
    draw([Table(heads, rows, title, title, columns), *(Sentence(words, small=True) for words in lacking)])


def _cell(value: object) -> str:
    return value if isinstance(value, str) else number(float(value)) if isinstance(value, Real) else "–"


def _setting(rule: Rule, dial: float | None) -> str:
    return "" if rule.dial is None or dial is None else setting(rule.dial.symbol, dial)


FIRST = ("strict", "rejection-sampling", "mars", "lenience", "typical", "sglang-acc", "tensorrt-llm", "vllm-fly")
MOST = 4  # number of runs per tab whose answers are kept; these include all distributions


def _rule(name: str) -> str | None:
    if name.partition(":")[0] not in RULES:
        return None
    with suppress(BadInput):  # `fitted` refuses it
        return rule_named(name).name  # in canonical spelling
    return name


@dataclass(frozen=True, slots=True)
class RuleView:
    rule: str = links.parameter("rule", _rule, str, "", "is not in the list")  # empty for the run's own
    dial: float | None = links.number("dial")
    """Value of its dial; None for the run's own value if the rule is the run's, otherwise for the default."""
    every: bool = links.flag("rules", "all")

    def rule_on(self, run: Run) -> Rule:
        return rule_named(self.rule or run.settings.rule)

    def dial_on(self, run: Run) -> float | None:
        """Return the value of its dial; None if the rule has no dial."""
        return own_dial(run, self.rule_on(run)) if self.dial is None else self.dial

    def listed(self, rules: Iterable[str], run: Run) -> tuple[str, ...]:
        first = {*FIRST, run.settings.rule, self.rule_on(run).name}
        return tuple(name for name in rules if self.every or name in first)


def fitted(view: RuleView, run: Run) -> Opened[RuleView]:
    if view.rule and view.rule not in rules_and(rule_named(run.settings.rule)):
        complaint = f"The link's rule “{clipped(view.rule)}” is not in the list, and the run was made with another; "
        instead = "the run's own is shown. Choose another from the list."
        return Opened(RuleView(every=view.every), (complaint + instead,))
    dial = view.rule_on(run).dial
    wrong = links.misplaced(view.dial, None if dial is None else (dial.symbol, dial.low, dial.high))
    return Opened(replace(view, dial=None), (wrong,)) if wrong else Opened(view)


@dataclass(slots=True)
class RulesPageState(PageState):
    view: RuleView = field(default_factory=RuleView)
    panel: AllRules | None = None  # verdicts of all rules on the last run, cached because they take long
    walking: tuple[str, Job[Walked]] | None = None  # id of the run and the unfinished walks of this tab
    known: dict[str, tuple[Provenance, Mapping[Prefix, Answer]]] = field(default_factory=dict)
    """Finished walks: the run's provenance and the answers at prefixes, by the run's id."""

    def opened(self, parameters: Mapping[str, str]) -> Opened[RuleView]:
        """Return the view of a link. Unreadable parts take their default and add a complaint."""
        if parameters.get("rule") and _rule(parameters["rule"]) is None:  # its dial belongs to an unknown rule
            parameters = {name: text for name, text in parameters.items() if name != "dial"}
        return links.from_parameters(RuleView, parameters)

    def fit(self, run: Run) -> None:
        self.settle_on(fitted(self.view, run))

    def begin_at(self, shown: View | None, run: Run) -> None:
        """Start at the class's dial if the class is shown this run and the user has changed nothing."""
        if shown is not None and not shown.cuts and self.view == RuleView(every=self.view.every):
            self.settle_on(fitted(replace(self.view, dial=shown.dial), run))

    def answers(self, run_id: str, run: Run) -> Mapping[Prefix, Answer] | None:
        """Return the answers of finished walks from this run's prompt; None if there are none."""
        provenance, answers = self.known.get(run_id, (None, None))
        return answers if provenance == run.provenance else None

    def panel_of(self, run_id: str, run: Run) -> AllRules:
        if self.panel is None or self.panel.run is not run:
            self.panel = AllRules(run, self.answers(run_id, run))
        return self.panel

    def learn(self, run_id: str, run: Run, answers: Mapping[Prefix, Answer]) -> None:
        put_last(self.known, run_id, (run.provenance, {**answers, **(self.answers(run_id, run) or {})}), MOST)
        self.panel = None


def start_walks(page_state: RulesPageState, session: Session, panel: AllRules, dials: Dials) -> None:
    """Start walking all rules from the tab's run, in place of the tab's previous walks."""
    if page_state.walking is not None:
        page_state.walking[1].cancel()
    page_state.notices.clear()
    run_id, catalog = session.view.run, library.shelf(session)
    path = catalog.recorded[run_id].path if run_id in catalog.recorded and run_id not in catalog.own else None
    models = tab_jobs.models_for(session, panel.run) or BUILT_IN
    page_state.walking = run_id, walk_job(panel.run, panel.stands(dials), Walking, path, models)
    tab_jobs.shared_worker().submit(page_state.walking[1])


def settle_walks(page_state: RulesPageState) -> None:
    """When the tab's walks have ended, keep their answers and report how they ended."""
    if page_state.walking is None or not page_state.walking[1].progress.state.finished:
        return
    (run_id, job), page_state.walking = page_state.walking, None
    progress = job.progress
    if progress.run is not None and progress.together is not None:
        page_state.learn(run_id, progress.run, progress.together.answers)
    page_state.notices.clear()
    if progress.state is JobState.FAILED:
        page_state.notices.append(progress.error)
    elif progress.state is JobState.CANCELLED:
        reason = LEFT if progress.abandoned else "You stopped the walks"
        page_state.notices.append(f"{reason}; rules whose text was complete have exact rows.")


def walks_going_on(progress: Walked) -> tuple[float, str]:
    together = progress.together
    if together is None:
        return 0.0, "The walks begin …"
    done = f"{number(together.finished)} of {counted(together.walks, 'text')} complete"
    words = f"Decoding every rule, and the strict end of each: {done} after {counted(together.passes, 'batched step')}"
    return together.finished / max(1, together.walks), words


COMPARED = ("mars", "mars-margin", "tensorrt-llm", "vllm-thinking")  # rules whose boundaries are drawn by default
MOST_LINES = 5  # maximum number of boundaries besides that of the chosen rule
DEFAULT, MATCHED = "defaults", "matched"
DISPUTED, EVERY = "disputed", "all"


@faults.drawn
def page() -> None:
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
    dials |= {name: at for name, (at, _) in matched.items() if others == MATCHED} | {rule.name: dial}
    listed = page_state.view.listed(panel.rules, panel.run)
    if lacks := panel.opinions[rule.name].lacks:
        theme.note(lacks)
    else:
        row, strict, walked = panel.against_strict(rule.name, dial)
        basis = Basis.EXACT if {row.basis, strict.basis} == {Basis.EXACT} else Basis.BLOCK_LOCAL
        lead([Sentence(compared_with_strict(row, strict, walked), basis.value)])
    sentence(f"{rule.title}: {rule.summary} It keeps a drafted token x where {rule.formula}.")
    with st.expander("About this rule", key="lab-about", on_change="rerun") as about:
        if about.open:
            draw(Sentence(f"{name}: {text}") for name, text in rule.facts)
    rulings = {name: panel.ruling(name, dials[name]) for name in panel.able}
    _table(session, page_state, panel, listed, dials)
    side_by_side = [rulings[name] for name in listed if name in rulings]
    _matrix(session, panel, agreement(side_by_side, len(panel.drafted)), chosen)
    _plane(session, panel, rulings, chosen)
    shifted = _equivalents(panel, listed, rule, dials, matched)
    name, rules = file_name(panel.run), partial(rule_frame, panel, list(panel.rules), dials)
    likeness = partial(likeness_frame, dials, matched, shifted)
    shared_tables = [
        share.Table("Every rule on this run", f"{name}-rules", rules),
        share.Table("Equivalent settings of every rule", f"{name}-likeness", likeness),
    ]
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
    how = "Defaults, or for each rule the dial value whose verdicts differ least from the chosen rule's"
    return theme.choice("Other rules at", [DEFAULT, MATCHED], "lab-others", place=right, help=how)


def _table(session: Session, page_state: RulesPageState, panel: AllRules, listed: Sequence[str], dials: Dials) -> None:
    theme.section("Rules in numbers")
    left, every, decode = st.columns([4.4, 3.7, 3.9], vertical_alignment="center", gap="medium")
    bound(
        every.toggle, markdown(f"Show all {len(panel.rules)} rules"), "lab-every", page_state.view.every,
        lambda on: page_state.change(every=on), help="In the tables and in the figure of verdicts",
    )  # fmt: skip
    if page_state.walking is not None and page_state.walking[0] == session.view.run:
        job = page_state.walking[1]
        tab_jobs.watch(
            job, lambda: walks_going_on(job.progress), "Cancel", keeps="Keeps the rules that are done", key="lab-cancel"
        )
    else:
        bases = [panel.row(name, dials[name]).basis for name in listed if name in panel.able]
        exact, local = bases.count(Basis.EXACT), "block-local: judged round by round on the recorded text"
        missing = exact < len(bases)
        words = f"{number(exact)} of {number(len(bases))} rows exact; the others {local}."
        if not missing:
            words = "Every row is exact: counted on the rule's own text after this prompt."
        elif not exact:
            words = f"Every row is {local}."
        reason = tab_jobs.why_not_again(session, panel.run) if missing else ""
        with left:
            sentence(f"{words} {reason}".rstrip())
        how = "Each rule writes its own text after this prompt, with the same seed and settings; its row then counts it"
        key, off = "lab-every-rule", bool(reason)
        if missing and decode.button("Decode every rule on this prompt", key, how, disabled=off, width="stretch"):
            start_walks(page_state, session, panel, dials)
            st.rerun()
    chosen = page_state.view.rule_on(panel.run).name
    table(rule_frame(panel, listed, dials), chosen, "Rules in numbers")


def _equivalents(
    panel: AllRules, listed: Sequence[str], rule: Rule, dials: Dials, matched: Mapping[str, Equivalent]
) -> dict[str, int]:
    """Draw the equivalents, and return how many verdicts of each rule a constant in every logit changes."""
    theme.section("Which settings are equivalent?")
    sentence(nearest_settings(rule.at(dials.get(rule.name)), matched, len(panel.drafted)))
    left, right = st.columns([3.2, 8.8], vertical_alignment="bottom", gap="medium")
    c = left.number_input("Shift test: add to every logit", -1000.0, 1000.0, 10.0, 1.0, key="lab-shift", format="%g")
    shifted = {name: int(np.count_nonzero(panel.shifted(name, dials[name], float(c)))) for name in panel.able}
    with right:
        sentence(shift_words(float(c), {panel.rules[name].at(dials[name]): shifted[name] for name in shifted}))
    folded = st.expander("Rule by rule", key="lab-likeness", on_change="rerun")
    if folded.open:
        rows = {name: shifted[name] for name in listed if name in shifted}
        with folded:
            table(likeness_frame(dials, matched, rows), rule.name, "Equivalent settings")
    st.caption("Block-local: verdicts on the drafted positions of the recorded text, each rule at the table's dial.")
    return shifted


def _matrix(session: Session, panel: AllRules, agreed: Agreement, chosen: Ruling | None) -> None:
    theme.section("Verdicts, token by token")
    rounds = int(panel.drafted.round_index.max()) + 1
    left, right = st.columns([3.2, 8.8], vertical_alignment="bottom", gap="medium")
    which = theme.choice(
        "Positions", [DISPUTED, EVERY], "lab-positions", place=left, help="Disputed: the rules disagree"
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
    across = (
        f"Verdicts of {_listed([rule.title for rule in RULES.values() if rule.spans_positions])} depend on other "
        "tokens of the block, and hold if all before are kept. What "
        f"{_listed([rule.title for rule in RULES.values() if rule.emission_follows_dial])} emits on rejection depends "
        "on its dial, which no verdict shows."
    )
    st.caption(
        "Block-local: every rule judges the same drafted tokens, after the recorded text before each block.",
        help=f"{markdown(across)} Drag over the figure to zoom, double-click to see it all.",
    )


def _plane(session: Session, panel: AllRules, rulings: Mapping[str, Ruling], chosen: Ruling | None) -> None:
    theme.section("Decision boundaries")
    others = [name for name in rulings if panel.rules[name].dial is not None and rulings[name] is not chosen]
    left, right = st.columns([3.2, 8.8], vertical_alignment="bottom", gap="medium")
    upward = theme.choice("Vertical axis", Upward, "lab-upward", lambda upward: upward.value, place=left)
    compared = right.multiselect(
        "Boundaries to compare with",
        others,
        [name for name in COMPARED if name in others],
        key=f"lab-compared-{session.view.run}",
        format_func=_title,  # a module's function, because Streamlit never forgets a widget and its callbacks
        max_selections=MOST_LINES,
        placeholder="Choose rules",
    )
    compared_rulings = ([] if chosen is None else [chosen]) + [rulings[name] for name in compared]
    lines = [boundary(ruling, panel.drafted.margin, upward.of(panel.drafted)) for ruling in compared_rulings]
    figure = decision_plane(panel.drafted, chosen, [line for line in lines if line], upward, theme.figure_theme())
    chart(figure, "plane", of=file_name(panel.run))
    without = [each.rule.at(each.dial) for each, line in zip(compared_rulings, lines, strict=True) if line is None]
    no_line = f"No line for {_listed(without)}: the dial divides no drafts here." if without else ""
    st.caption(
        f"Block-local: the recorded text's drafted tokens. {markdown(no_line)}",
        help="A line is where a rule's verdicts divide best; “exceptions” counts those on its wrong side",
    )


def _title(name: str) -> str:
    return rule_named(name).title
