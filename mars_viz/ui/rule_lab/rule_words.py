"""Sentences about rules and their results on a run, as plain text that the caller escapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from mars_viz.analysis.branching import Branching
from mars_viz.analysis.rulings import Boundary, Equivalent, RuleRow, Ruling, Shifted
from mars_viz.records import Emission
from mars_viz.rules import RULES, Fixed, OnTrees, Rule
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


def declarations(rule: Rule) -> tuple[str, ...]:
    """Return sentences about a rule's properties."""
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


def lead(row: RuleRow, strict: RuleRow, walked: bool) -> str:
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
