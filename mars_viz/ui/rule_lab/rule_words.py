"""The Rules page: its state in one tab, with the walks that decode a prompt by every rule, and rules and their results
on a run in words and tables. Sentences are plain text that the caller escapes; tables are escaped here.

Tabs with the same run share the verdicts."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from numbers import Real
from weakref import WeakValueDictionary

import numpy as np
import pandas as pd
import streamlit as st

from mars_viz.analysis.branching import Branching
from mars_viz.analysis.metrics import Basis
from mars_viz.analysis.rulings import AllRules, Boundary, Equivalent, RuleRow, Ruling, Shifted, own_dial
from mars_viz.backend_choice import BUILT_IN
from mars_viz.components.session_cache import put_last
from mars_viz.errors import BadInput
from mars_viz.escapes import Html, html, joined
from mars_viz.exploration import Stand, answers_along
from mars_viz.options import clipped
from mars_viz.records import Emission
from mars_viz.rules import RULES, OnTrees, Rule, rule_named, rules_and
from mars_viz.run import Run
from mars_viz.ui import library, links, tab_jobs, theme
from mars_viz.ui.jobs.decode_job import Walked, WalkJob
from mars_viz.ui.jobs.job import JobState
from mars_viz.ui.jobs.tasks import walk
from mars_viz.ui.jobs.worker import LEFT
from mars_viz.ui.links import Opened, View
from mars_viz.ui.session import PageState, Session
from mars_viz.walk import Answer, Prefix
from mars_viz.words import counted, number, setting

EMITTED = {
    Emission.ARGMAX: "the target's most likely token",
    Emission.SAMPLE: "a sample from the target's distribution p (its most likely token at temperature 0)",
    Emission.RESIDUAL: "a sample from the residual norm((p − q)₊)",
    Emission.LOWERED: "a sample from p with the drafted token's probability lowered by its q",
    Emission.BLOCK: "a sample from the residual norm((w·p − q)₊), with w the block's weight so far",
}
"""Emitted token after a rejection, in words."""
BRANCHES = (
    "Every rule here is lossless. Naive: the target's own sample is among the children. Recursive: children are tried "
    "in turn, p becoming the residual after each refusal. k-SEQ: SpecTr's. Best possible: what no rule for i.i.d. "
    "children surpasses; distinct ones may. A mean is over the positions of a depth, each weighed by the chance that "
    "rejection sampling gets there; a branch pays most where that chance times what is kept more is largest. For the "
    "built-in pair the means came out at most .03 below those of the whole laws."
)
NEAREST = 3  # maximum number of equivalents in a sentence


def standing(rule: Rule, dial: float | None) -> str:
    """Return a rule and its dial, like 'MARS at θ = 0.90'."""
    return rule.title if rule.dial is None or dial is None else f"{rule.title} at {setting(rule.dial.symbol, dial)}"


def emitted(rule: Rule) -> str:
    """Return the token that a rule emits on rejection, in words."""
    of_trees = "; in a tree of drawn paths from what it has left of p there" * (rule.on_trees is OnTrees.DRAWN)
    return EMITTED[rule.on_rejection] + of_trees


def _declarations(rule: Rule) -> tuple[str, ...]:
    sentences = [f"On rejection it emits {emitted(rule)}."]
    if rule.lossless:
        sentences.append("Lossless: the text follows the target's distribution.")
    if rule.dial is None:
        sentences.append("It has no dial.")
    else:
        sentences.append(f"Strict at {setting(rule.dial.symbol, rule.dial.strict)}.")
    for each in rule.fixed:
        bounds = f"fixed, {each.low:g} to {each.high:g}, default {each.written(each.default)}"
        sentences.append(f"{each.at(rule.values[each.key])}: {each.meaning} ({bounds}).")
    if rule.spans_positions:
        sentences.append("A verdict depends on other tokens of the block, and holds where all before it are kept.")
    if rule.emission_follows_dial:
        sentences.append("The token written on rejection depends on the dial.")
    if not rule.monotone:
        sentences.append("Not monotone: a looser dial may keep less.")
    return tuple(sentences)


def compared_with_strict(row: RuleRow, strict: RuleRow, walked: bool) -> str:
    """Compare a rule with its strict end, like 'MARS at θ = 0.90: 28 target passes (strict 37), τ = 4.57 (strict 3.46),
    …'. The figures are from the texts of both if these were decoded, otherwise from the recorded text."""
    tau = f"τ = {number(row.tau)}{_versus(row.tau, strict.tau)}"
    if not walked:
        kept = f"{number(row.kept)} of {counted(row.kept + row.rolled_back, 'drafted token')} kept"
        return f"{standing(row.rule, row.dial)} on the recorded text: {tau}, {kept}{_versus(row.kept, strict.kept)}."
    parts = [f"{number(row.rounds)} target pass{'es' * (row.rounds != 1)}{_versus(row.rounds, strict.rounds)}", tau]
    back = f"{counted(row.rolled_back, 'drafted token')} rolled back"
    parts.append(back + _versus(row.rolled_back, strict.rolled_back))
    if row.dial != strict.dial:
        place = row.first_difference
        same = "the same text as strict"
        parts.append(same if place is None else f"first difference from strict at token {number(place + 1)}")
    return f"{standing(row.rule, row.dial)}: {', '.join(parts)}."


def _versus(value: float, strict: float) -> str:
    return "" if number(value) == number(strict) else f" (strict {number(strict)})"


def across_positions() -> str:
    """Return how to read verdicts of rules that look at more than one token."""
    across = _listed([rule.title for rule in RULES.values() if rule.spans_positions])
    writing = _listed([rule.title for rule in RULES.values() if rule.emission_follows_dial])
    return (
        f"Verdicts of {across} depend on other tokens of the block, and hold if all before are kept. What {writing} "
        "emits on rejection depends on its dial, which no verdict shows."
    )


def nearest_settings(rule: Rule, dial: float | None, equivalents: Mapping[str, Equivalent]) -> str:
    """Return the settings of other rules with the most similar verdicts, the closest first."""
    dialled = [one for one in equivalents.values() if one.dial is not None]
    nearest = sorted(dialled, key=lambda one: one.differing)[:NEAREST]
    if not nearest:
        return ""
    parts = []
    for one in nearest:
        differ = f"{number(one.differing)} of {counted(one.positions, 'verdict')} differ"
        parts.append(f"{standing(one.rule, one.dial)} ({differ if one.differing else 'the same verdicts'})")
    return f"Closest to {standing(rule, dial)}: {_listed(parts)}."


def shift_words(c: float, shifts: Iterable[Shifted]) -> str:
    """Return the effect of adding `c` to every logit on the rules' verdicts."""
    changed = sorted((one for one in shifts if one.count), key=lambda one: -one.count)
    amount = f"{number(abs(c))} {'to' if c >= 0 else 'from'}"
    begin = f"{'Adding' if c >= 0 else 'Subtracting'} {amount} every logit changes no probability"
    if not changed:
        return begin + " and, here, no verdict."
    parts = [f"{counted(one.count, 'verdict')} of {standing(one.ruling.rule, one.ruling.dial)}" for one in changed]
    return begin + f", but {_listed(parts)}."


def undrawn(rulings: Sequence[Ruling], lines: Sequence[Boundary | None]) -> str:
    """Return which rules have no boundary in the plane, and why; empty if all have one."""
    without = [ruling for ruling, line in zip(rulings, lines, strict=True) if line is None]
    return f"No line for {_listed([_why_undrawn(ruling) for ruling in without])}." if without else ""


def _why_undrawn(ruling: Ruling) -> str:
    decided = ~np.isnan(ruling.opinion.verdicts.breakpoints)
    if not decided.any():
        return f"{ruling.rule.title} (no verdict depends on a dial)"
    which = "all" if (ruling.keeps & decided).any() else "none"
    return f"{standing(ruling.rule, ruling.dial)} (keeps {which} of the {number(int(decided.sum()))} its dial decides)"


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def modelled_on(branching: Branching) -> str:
    """Return the basis of the figure of branches."""
    target, drafter = round(100 * branching.left_p), round(100 * branching.left_q)
    return (
        f"Modelled from {counted(branching.nodes, 'drafted position')} and the recorded best tokens of both laws: "
        f"{target} % of the target's mass and {drafter} % of the drafter's lie on others, put together so that one "
        "child's acceptance is the recorded one."
    )


_STYLE = """
.mv-lead { margin: 0; font-size: 1.08rem; line-height: 1.55; }
.mv-rule { margin: 0; line-height: 1.6; }
.mv-rule code { font-size: .95em; overflow-wrap: anywhere; }
.mv-rule summary { cursor: pointer; width: fit-content; opacity: .8; }
.mv-rule ul { margin: 0; font-size: .95rem; }
.mv-wide { overflow-x: auto; }
.mv-rules { width: 100%; border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
.mv-rules :is(th, td) { padding: .25rem .55rem; border: 0; text-align: left; font-weight: 400;
  border-bottom: 1px solid color-mix(in srgb, currentColor 18%, transparent); white-space: nowrap; }
.mv-rules thead th { opacity: .8; font-size: .82rem; vertical-align: bottom; white-space: normal; cursor: help; }
.mv-rules .number { text-align: right; }
.mv-rules .reason { white-space: normal; }
.mv-rules .grey :is(th, td) { color: color-mix(in srgb, currentColor 72%, transparent); }
.mv-rules tr > :first-child { position: sticky; left: 0; background: var(--mv-ground); }
.mv-rules .chosen :is(th, td) { font-weight: 600; background: color-mix(in srgb, #0072B2 18%, var(--mv-ground)); }
@media (max-width: 640px) {
  .mv-rules :is(th, td) { padding: .25rem .35rem; }
  .mv-rules tr > :first-child { white-space: normal; max-width: 7.5rem; }
}
"""
_HELP = {
    "dial": "The chosen rule at the dial above, the run's own rule at the recorded value, the others as chosen above",
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


def style() -> None:
    """Draw the page's style sheet."""
    light, dark = (st.get_option(f"theme.{kind}.backgroundColor") for kind in ("light", "dark"))
    ground = f"light-dark({light}, {dark})"  # CSS follows a change of the theme before the script runs again
    theme.show(Html(f"<style>{_STYLE}.mv-rules {{ --mv-ground: {html(ground)}; }}</style>"))


def lead(sentence: str, basis: Basis) -> None:
    """Draw the main result with its basis."""
    theme.show(Html(f'<p class="mv-lead">{html(sentence)} {html(theme.tag(basis.value, basis.words))}</p>'))


def sentence(words: str) -> None:
    """Draw a sentence."""
    theme.show(Html(f'<p class="mv-rule">{html(words)}</p>'))


def card(rule: Rule) -> None:
    """Draw a rule's title and formula, with its summary, declarations and source in a fold."""
    items = joined(Html(f"<li>{html(sentence)}</li>") for sentence in _declarations(rule))
    theme.show(
        Html(
            f'<p class="mv-rule">{html(rule.title)} keeps a drafted token x where <code>{html(rule.formula)}</code></p>'
            f'<details class="mv-rule"><summary>About this rule</summary><ul><li>{html(rule.summary)}</li>{html(items)}'
            f"<li>Source: {html(rule.source)}.</li></ul></details>"
        )
    )


def rule_frame(panel: AllRules, names: Sequence[str], dials: Mapping[str, float | None]) -> pd.DataFrame:
    """Return a table with a row per rule. Rules that cannot judge the run have a reason in place of numbers."""
    table = pd.DataFrame([_line(panel, name, dials) for name in names], index=list(names))
    return table if table["reason"].any() else table.drop(columns="reason")


def _line(panel: AllRules, name: str, dials: Mapping[str, float | None]) -> dict[str, object]:
    rule = panel.rules[name]
    if lacks := panel.opinions[name].lacks:
        return {"rule": rule.title, "dial": "cannot judge", "reason": lacks}
    row = panel.row(name, dials[name])
    return {
        "rule": rule.title,
        "dial": _setting(rule, row.dial),
        "basis": row.basis.value,
        "reason": "",
        "τ": row.tau,
        "rolled back": row.rolled_back,
        "relaxed": row.relaxed,
        "first difference": None if row.first_difference is None else row.first_difference + 1,
        "worst rank kept": row.lowest_rank,
        "least p(x)/p1 kept": row.lowest_share,
    }


def likeness_frame(
    dials: Mapping[str, float | None], matched: Mapping[str, Equivalent], shifted: Mapping[str, Shifted]
) -> pd.DataFrame:
    """Return a table that compares the rules' verdicts on the recorded positions."""
    lines = []
    for name, changed in shifted.items():
        rule, match = rule_named(name), matched.get(name)
        line: dict[str, object] = {"rule": rule.title, "dial": _setting(rule, dials[name])}
        line["matched at"] = "" if match is None else _setting(rule, match.dial)
        line |= {"still differ": None if match is None else match.differing, "shift changes": changed.count}
        lines.append(line)
    return pd.DataFrame(lines, index=list(shifted))


def branch_frame(branching: Branching) -> pd.DataFrame:
    """Return a table of the effect of k children, with a row per depth."""
    columns = {"depth": branching.depths, "children": branching.children, "reached": branching.reached}
    return pd.DataFrame({**columns, "one child": branching.alone, **branching.acceptance})


def table(frame: pd.DataFrame, chosen: str, spoken: str) -> None:
    """Draw a table with the chosen rule marked. Rows that are not exact are grey. Rules that cannot judge the run show
    the reason."""
    columns = [name for name in frame if name != "reason"]
    heads = joined(
        Html(f'<th scope="col" class="{html(_kind(name))}" title="{html(_HELP.get(name, ""))}">{html(name)}</th>')
        for name in columns
    )
    lines: list[Html] = []
    for rule, row in zip(frame.index, frame.to_dict("records"), strict=True):
        cells = joined(
            Html(f'<td class="{html(_kind(name))}">{html(_cell_text(name, row[name]))}</td>') for name in columns[1:]
        )
        if lacks := row.get("reason"):
            why, width = f"cannot judge: {lacks}", str(len(columns) - 1)
            cells = Html(f'<td class="reason" colspan="{html(width)}">{html(why)}</td>')
        kinds = " ".join(["chosen"] * (rule == chosen) + ["grey"] * (row.get("basis", _EXACT) != _EXACT))
        lines.append(Html(f'<tr class="{html(kinds)}"><th scope="row">{html(row["rule"])}</th>{html(cells)}</tr>'))
    theme.show(
        Html(
            f'<div class="mv-wide" tabindex="0" role="region" aria-label="{html(spoken)}"><table class="mv-rules">'
            f"<thead><tr>{html(heads)}</tr></thead><tbody>{joined(lines)}</tbody></table></div>"
        )
    )


_EXACT = Basis.EXACT.value
_COUNTS = ("rolled back", "relaxed", "first difference", "worst rank kept", "still differ", "shift changes")
_FORMATS = {**dict.fromkeys(_COUNTS, ".0f"), "τ": ".2f", "least p(x)/p1 kept": ".3g"}


def _kind(column: str) -> str:
    return "number" if column in _FORMATS else column


def _cell_text(column: str, value: object) -> str:
    """Return the text of a cell: a dash for a missing number."""
    if column not in _FORMATS:
        return str(value) if isinstance(value, str) else ""
    return format(value, _FORMATS[column]) if isinstance(value, Real) and not math.isnan(value) else "–"


def _setting(rule: Rule, dial: float | None) -> str:
    return "" if rule.dial is None or dial is None else setting(rule.dial.symbol, dial)


class Panels:
    """Cache of AllRules by run, which lasts as long as any tab holds them."""

    def __init__(self) -> None:
        self._alive: WeakValueDictionary[int, AllRules] = WeakValueDictionary()
        self._lock = threading.Lock()

    def of(self, run: Run) -> AllRules:
        """Return the run's AllRules without answers of walks. It holds the run, so the run's id stays unique."""
        with self._lock:
            cached = self._alive.get(id(run))
        if cached is not None:
            return cached
        created = AllRules(run)  # without the lock: takes seconds for a long run
        with self._lock:
            return self._alive.setdefault(id(run), created)


@st.cache_resource(show_spinner=False)
def _panels() -> Panels:
    return Panels()


FIRST = ("strict", "rejection-sampling", "mars", "lenience", "typical", "sglang-acc", "tensorrt-llm", "vllm-fly")
EVERY = "all"  # link value that lists every rule
MOST = 4  # number of runs per tab whose answers are kept; these include all distributions


def _rule(name: str) -> str | None:
    if name.partition(":")[0] not in RULES:
        return None
    with suppress(BadInput):  # `fitted` refuses it
        return rule_named(name).name  # in canonical spelling
    return name


@dataclass(frozen=True, slots=True)
class RuleView:
    """Rule and dial shown on the page; the run is separate."""

    rule: str = links.parameter("rule", _rule, str, "", "is not in the list")  # empty for the run's own
    dial: float | None = links.number("dial")
    """Value of its dial; None for the run's own value if the rule is the run's, otherwise for the default."""
    every: bool = links.flag("rules", EVERY)

    def rule_on(self, run: Run) -> Rule:
        """Return the chosen rule."""
        return rule_named(self.rule or run.settings.rule)

    def dial_on(self, run: Run) -> float | None:
        """Return the value of its dial; None if the rule has no dial."""
        return own_dial(run, self.rule_on(run)) if self.dial is None else self.dial

    def listed(self, rules: Iterable[str], run: Run) -> tuple[str, ...]:
        """Return the listed rules: all, or the first ones, the run's own and the chosen one."""
        first = {*FIRST, run.settings.rule, self.rule_on(run).name}
        return tuple(name for name in rules if self.every or name in first)


def fitted(view: RuleView, run: Run) -> Opened[RuleView]:
    """Return the view with an invalid rule or dial value set to the default, and a complaint."""
    if view.rule and view.rule not in rules_and(rule_named(run.settings.rule)):
        complaint = f"The link's rule “{clipped(view.rule)}” is not in the list, and the run was made with another; "
        instead = "the run's own is shown. Choose another from the list."
        return Opened(RuleView(every=view.every), (complaint + instead,))
    dial = view.rule_on(run).dial
    wrong = links.misplaced(view.dial, None if dial is None else (dial.symbol, dial.low, dial.high))
    return Opened(replace(view, dial=None), (wrong,)) if wrong else Opened(view)


@dataclass(frozen=True, slots=True)
class Known:
    """Answers of walks from a run's prompt."""

    run: Run
    answers: Mapping[Prefix, Answer]

    def fits(self, run: Run) -> bool:
        """Return True if `run` has the same models, prompt and settings but for the rule, so that the answers apply."""
        keys = []
        for each in (self.run, run):
            weights = each.provenance.target_revision, each.provenance.drafter_revision
            keys.append((weights, each.prompt_ids, replace(each.settings, rule="", dial=None)))
        return keys[0] == keys[1]


@dataclass(slots=True)
class RulesPageState(PageState):
    """State of one tab's Rules page."""

    view: RuleView = field(default_factory=RuleView)
    panel: AllRules | None = None  # verdicts of all rules on the last run, cached because they take long
    walking: tuple[str, WalkJob] | None = None  # id of the run and the unfinished walks of this tab
    known: dict[str, Known] = field(default_factory=dict)  # answers of finished walks, by the run's id

    def opened(self, parameters: Mapping[str, str]) -> Opened[RuleView]:
        """Return the view of a link. Unreadable parts take their default and add a complaint."""
        if parameters.get("rule") and _rule(parameters["rule"]) is None:  # its dial belongs to an unknown rule
            parameters = {name: text for name, text in parameters.items() if name != "dial"}
        return links.from_parameters(RuleView, parameters)

    def fit(self, run: Run) -> None:
        """Reset parts of the view that the run does not have, with a notice."""
        self.settle_on(fitted(self.view, run))

    def begin_at(self, shown: View | None, run: Run) -> None:
        """Start at the class's dial if the class is shown this run and the user has changed nothing."""
        if shown is not None and not shown.cuts and self.view == RuleView(every=self.view.every):
            self.settle_on(fitted(replace(self.view, dial=shown.dial), run))

    def panel_of(self, run_id: str, run: Run) -> AllRules:
        """Return the verdicts of all rules on this run."""
        if self.panel is None or self.panel.run is not run:
            walked = self.known.get(run_id)
            applies = walked is not None and walked.fits(run)
            self.panel = AllRules(run, walked.answers) if walked is not None and applies else _panels().of(run)
        return self.panel

    def learn(self, run_id: str, run: Run, answers: Mapping[Prefix, Answer]) -> None:
        """Add the answers of walks from the run's prompt."""
        walked = self.known.get(run_id)
        old = walked.answers if walked is not None and walked.fits(run) else {}
        put_last(self.known, run_id, Known(run, {**answers, **old}), MOST)
        self.panel = None


def start_walks(page_state: RulesPageState, session: Session, run: Run, stands: Sequence[Stand]) -> None:
    """Start walking these rules from the tab's run, in place of the tab's previous walks."""
    if page_state.walking is not None:
        page_state.walking[1].cancel()
    page_state.notices.clear()
    run_id, catalog = session.view.run, library.shelf(session)
    path = catalog.recorded[run_id].path if run_id in catalog.recorded and run_id not in catalog.own else None
    job = WalkJob(run, stands, walk, path, tab_jobs.models_for(session, run) or BUILT_IN)
    page_state.walking = run_id, job
    tab_jobs.shared_worker().submit(job)


def settle_walks(page_state: RulesPageState) -> None:
    """When the tab's walks have ended, keep their answers and report how they ended."""
    if page_state.walking is None or not page_state.walking[1].progress.state.finished:
        return
    (run_id, job), page_state.walking = page_state.walking, None
    progress = job.progress
    if progress.together is not None:
        page_state.learn(run_id, job.asked, answers_along(progress.together.walks, job.asked.prompt_ids))
    page_state.notices.clear()
    if progress.state is JobState.FAILED:
        page_state.notices.append(progress.error)
    elif progress.state is JobState.CANCELLED:
        reason = LEFT if progress.abandoned else "You stopped the walks"
        page_state.notices.append(f"{reason}; rules whose text was complete have exact rows.")


def walks_going_on(progress: Walked) -> tuple[float, str]:
    """Return the finished share of the walks, and a sentence about them."""
    together = progress.together
    if together is None:
        return 0.0, tab_jobs.FIRST_LOADS
    words = (
        f"Decoding every rule, and the strict end of each: {number(together.finished)} of "
        f"{counted(len(together.walks), 'text')} complete after {counted(together.passes, 'batched step')}"
    )
    return together.finished / max(1, len(together.walks)), words


def what_is_exact(rows: Iterable[RuleRow]) -> str:
    """Return a sentence about the basis of the table's rows."""
    bases = list(rows)
    exact = sum(row.basis is Basis.EXACT for row in bases)
    if exact == len(bases):
        return "Every row is exact: counted on the rule's own text after this prompt."
    local = "block-local (grey): judged round by round on the recorded text"
    if not exact:
        return f"Every row is {local}."
    return f"{number(exact)} of {number(len(bases))} rows exact; the others {local}."
