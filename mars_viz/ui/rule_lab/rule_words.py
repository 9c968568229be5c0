"""Rules and their results on a run, in words and tables. Sentences are plain text that the caller escapes; tables are
escaped here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real

import numpy as np
import pandas as pd
import streamlit as st

from mars_viz.analysis.all_rules import AgainstStrict, AllRules
from mars_viz.analysis.branching import Branching
from mars_viz.analysis.judgements import Ruling
from mars_viz.analysis.metrics import Basis
from mars_viz.analysis.rulings import Boundary, Equivalent, Shifted
from mars_viz.escapes import Html, html, joined
from mars_viz.records import Emission
from mars_viz.rules import RULES, Fixed, OnTrees, Rule, rule_named
from mars_viz.ui import theme
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
"""Explains the rules for several children."""
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
    sentences += [f"{each.at(rule.values[each.key])}: {each.meaning} ({_range(each)})." for each in rule.fixed]
    if rule.spans_positions:
        sentences.append("A verdict depends on other tokens of the block, and holds where all before it are kept.")
    if rule.emission_follows_dial:
        sentences.append("The token written on rejection depends on the dial.")
    if not rule.monotone:
        sentences.append("Not monotone: a looser dial may keep less.")
    return tuple(sentences)


def _range(setting: Fixed) -> str:
    """Return the range of a fixed setting, like 'fixed, 1 to 16, default 10'."""
    return f"fixed, {setting.low:g} to {setting.high:g}, default {setting.written(setting.default)}"


def compared_with_strict(comparison: AgainstStrict) -> str:
    """Compare a rule with its strict end, like 'MARS at θ = 0.90: 28 target passes (strict 37), τ = 4.57 (strict 3.46),
    …'. The figures are from the texts of both if these were decoded, otherwise from the recorded text."""
    row, strict = comparison.row, comparison.strict
    tau = f"τ = {number(row.tau)}{_versus(row.tau, strict.tau)}"
    if not comparison.walked:
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
    parts = [f"{standing(one.rule, one.dial)} ({_difference(one)})" for one in nearest]
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


def _difference(one: Equivalent) -> str:
    if not one.differing:
        return "the same verdicts"
    return f"{number(one.differing)} of {counted(one.positions, 'verdict')} differ"


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
    lines = [
        {
            "rule": rule_named(name).title,
            "dial": _setting(rule_named(name), dials[name]),
            "matched at": _setting(rule_named(name), matched[name].dial) if name in matched else "",
            "still differ": matched[name].differing if name in matched else None,
            "shift changes": changed.count,
        }
        for name, changed in shifted.items()
    ]
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
_FORMATS = {
    **dict.fromkeys(
        ("rolled back", "relaxed", "first difference", "worst rank kept", "still differ", "shift changes"), ".0f"
    ),
    "τ": ".2f",
    "least p(x)/p1 kept": ".3g",
}


def _kind(column: str) -> str:
    return "number" if column in _FORMATS else column


def _cell_text(column: str, value: object) -> str:
    """Return the text of a cell: a dash for a missing number."""
    if column not in _FORMATS:
        return str(value) if isinstance(value, str) else ""
    return format(value, _FORMATS[column]) if isinstance(value, Real) and not math.isnan(value) else "–"


def _setting(rule: Rule, dial: float | None) -> str:
    return "" if rule.dial is None or dial is None else setting(rule.dial.symbol, dial)
