"""Rules, and what they come to on a run, in sentences. Plain text: whoever shows it escapes it. Knows no Streamlit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from mars_viz.analysis.all_rules import AgainstStrict
from mars_viz.analysis.branching import Branching
from mars_viz.analysis.judgements import Ruling
from mars_viz.analysis.rulings import Boundary, Equivalent, Shifted
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
"""What a row emits, in words."""
BRANCHES = (
    "Every rule here is lossless. Naive: the target's own sample is among the children. Recursive: children are tried "
    "in turn, p becoming the residual after each refusal. k-SEQ: SpecTr's. Best possible: what no rule for i.i.d. "
    "children surpasses; distinct ones may. A mean is over the positions of a depth, each weighed by the chance that "
    "rejection sampling gets there; a branch pays most where that chance times what is kept more is largest. For the "
    "built-in pair the means came out at most .03 below those of the whole laws."
)
"""What the rules that verify siblings are."""
NEAREST = 3
"""Equivalents that a sentence names."""


def standing(rule: Rule, dial: float | None) -> str:
    """'MARS at θ = 0.90'."""
    return rule.title if rule.dial is None or dial is None else f"{rule.title} at {setting(rule.dial.symbol, dial)}"


def emitted(rule: Rule) -> str:
    """What a rule emits on rejection, in words."""
    of_trees = "; in a tree of drawn paths from what it has left of p there" * (rule.on_trees is OnTrees.DRAWN)
    return EMITTED[rule.on_rejection] + of_trees


def declarations(rule: Rule) -> tuple[str, ...]:
    """What a rule says of itself, a plain sentence each."""
    said = [f"On rejection it emits {emitted(rule)}."]
    if rule.lossless:
        said.append("Lossless: the text follows the target's distribution.")
    if rule.dial is None:
        said.append("It has no dial.")
    else:
        said.append(f"Strict at {setting(rule.dial.symbol, rule.dial.strict)}.")
    said += [f"{each.at(rule.values[each.key])}: {each.meaning} ({_range(each)})." for each in rule.fixed]
    if rule.spans_positions:
        said.append("A verdict depends on other tokens of the block, and holds where all before it are kept.")
    if rule.emission_follows_dial:
        said.append("What it emits on rejection depends on the dial.")
    if not rule.monotone:
        said.append("Not monotone: a looser dial may keep less.")
    return tuple(said)


def _range(setting: Fixed) -> str:
    """'fixed, 1 to 16, default 10', of one that stays as it is while the dial moves."""
    return f"fixed, {setting.low:g} to {setting.high:g}, default {setting.written(setting.default)}"


def lead(found: AgainstStrict) -> str:
    """'MARS at θ = 0.90: 28 target passes (strict 37), τ = 4.57 (strict 3.46), …': of the rule's own text beside that
    of its strict end, or of both on the recorded text."""
    row, strict = found.row, found.strict
    tau = f"τ = {number(row.tau)}{_strictly(row.tau, strict.tau)}"
    if not found.walked:
        kept = f"{number(row.kept)} of {counted(row.kept + row.rolled_back, 'drafted token')} kept"
        return f"{standing(row.rule, row.dial)} on the recorded text: {tau}, {kept}{_strictly(row.kept, strict.kept)}."
    said = [f"{number(row.rounds)} target pass{'es' * (row.rounds != 1)}{_strictly(row.rounds, strict.rounds)}", tau]
    back = f"{counted(row.rolled_back, 'drafted token')} rolled back"
    said.append(back + _strictly(row.rolled_back, strict.rolled_back))
    if row.dial != strict.dial:
        place = row.first_difference
        same = "the same text as strict"
        said.append(same if place is None else f"first difference from strict at token {number(place + 1)}")
    return f"{standing(row.rule, row.dial)}: {', '.join(said)}."


def _strictly(ours: float, theirs: float) -> str:
    return "" if number(ours) == number(theirs) else f" (strict {number(theirs)})"


def across_positions() -> str:
    """How the verdicts of rules that look further than one token are to be read, wherever verdicts are compared."""
    across = _listed([rule.title for rule in RULES.values() if rule.spans_positions])
    writing = _listed([rule.title for rule in RULES.values() if rule.emission_follows_dial])
    return (
        f"Verdicts of {across} depend on other tokens of the block, and hold where all before are kept. What {writing} "
        "emits on rejection depends on its dial, which no verdict shows."
    )


def nearest_settings(rule: Rule, dial: float | None, found: Mapping[str, Equivalent]) -> str:
    """The settings of other rules that keep nearly the same positions, the nearest first."""
    dialled = [one for one in found.values() if one.dial is not None]
    nearest = sorted(dialled, key=lambda one: one.differing)[:NEAREST]
    if not nearest:
        return ""
    parts = [f"{standing(one.rule, one.dial)} ({_apart(one)})" for one in nearest]
    return f"Closest to {standing(rule, dial)}: {_listed(parts)}."


def shift_words(c: float, found: Iterable[Shifted]) -> str:
    """What adding `c` to every logit does to the rules' verdicts."""
    changed = sorted((one for one in found if one.count), key=lambda one: -one.count)
    amount = f"{number(abs(c))} {'to' if c >= 0 else 'from'}"
    begin = f"{'Adding' if c >= 0 else 'Subtracting'} {amount} every logit changes no probability"
    if not changed:
        return begin + " and, here, no verdict."
    parts = [f"{counted(one.count, 'verdict')} of {standing(one.ruling.rule, one.ruling.dial)}" for one in changed]
    return begin + f", but {_listed(parts)}."


def undrawn(rulings: Sequence[Ruling], lines: Sequence[Boundary | None]) -> str:
    """Which rules have no boundary in the plane, and why; empty where all have one."""
    without = [ruling for ruling, line in zip(rulings, lines, strict=True) if line is None]
    return f"No line for {_listed([_undivided(ruling) for ruling in without])}." if without else ""


def _undivided(ruling: Ruling) -> str:
    decided = ~np.isnan(ruling.opinion.verdicts.breakpoints)
    if not decided.any():
        return f"{ruling.rule.title} (no verdict depends on a dial)"
    which = "all" if (ruling.keeps & decided).any() else "none"
    return f"{standing(ruling.rule, ruling.dial)} (keeps {which} of the {number(int(decided.sum()))} its dial decides)"


def _apart(one: Equivalent) -> str:
    if not one.differing:
        return "the same verdicts"
    return f"{number(one.differing)} of {counted(one.positions, 'verdict')} differ"


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def modelled_on(found: Branching) -> str:
    """What the figure of branches stands on."""
    target, drafter = round(100 * found.left_p), round(100 * found.left_q)
    return (
        f"Modelled from {counted(found.nodes, 'drafted position')} and the recorded best tokens of both laws: "
        f"{target} % of the target's mass and {drafter} % of the drafter's lie on others, put together so that one "
        "child's acceptance is the recorded one."
    )
