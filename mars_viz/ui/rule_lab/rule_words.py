"""Rules, and what they come to on a run, in sentences. Plain text: whoever shows it escapes it. Knows no Streamlit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from mars_viz.analysis.boundaries import Boundary
from mars_viz.analysis.equivalents import Equivalent
from mars_viz.analysis.opinions import Ruling
from mars_viz.analysis.panel import AgainstStrict
from mars_viz.analysis.rule_table import RuleRow
from mars_viz.analysis.shift import Shifted
from mars_viz.figures.words import counted, number, setting
from mars_viz.records import Emission
from mars_viz.rules import RULES, Fixed, Rule

EMITTED = {
    Emission.ARGMAX: "the target's most likely token",
    Emission.SAMPLE: "a sample of the target's law p (its most likely token at temperature 0)",
    Emission.RESIDUAL: "a sample of norm((p − q)₊), what the target gives more than the drafter",
    Emission.LOWERED: "a sample of p with the drafted token's probability lowered by its q",
    Emission.BLOCK: "a sample of norm((w·p − q)₊), with w the block's weight so far",
}
"""What a row emits, in words."""
NEAREST = 3
"""Equivalents that a sentence names."""


def standing(rule: Rule, dial: float | None) -> str:
    """'MARS at θ = 0.90'."""
    return rule.title if rule.dial is None or dial is None else f"{rule.title} at {setting(rule.dial.symbol, dial)}"


def declarations(rule: Rule) -> tuple[str, ...]:
    """What a rule says of itself, a plain sentence each."""
    said = [f"On rejection it writes {EMITTED[rule.on_rejection]}."]
    if rule.lossless:
        said.append("Lossless: the text keeps the target's law.")
    if rule.dial is None:
        said.append("It has no dial.")
    else:
        said.append(f"{setting(rule.dial.symbol, rule.dial.strict)} is its strict end.")
    said += [f"{each.at(rule.values[each.key])}: {each.meaning} ({_range(each)})." for each in rule.fixed]
    if rule.spans_positions:
        said.append("Its verdict on a token looks at other tokens of the block, and holds where all before are kept.")
    if rule.emission_follows_dial:
        said.append("What it writes on rejection changes with the dial.")
    if not rule.monotone:
        said.append("Not monotone: a looser dial may keep less.")
    return tuple(said)


def _range(setting: Fixed) -> str:
    """'1 to 16, 10 unless said', of one that stays as it is while the dial moves."""
    return f"fixed; {setting.low:g} to {setting.high:g}, {setting.written(setting.default)} unless said"


def lead(found: AgainstStrict) -> str:
    """What the chosen rule comes to, against its own strict end: on its own text, or on the same prefixes."""
    row, strict = found.row, found.strict
    at = standing(row.rule, row.dial)
    kept = f"{number(row.kept)} of {counted(row.kept + row.rolled_back, 'drafted token')}"
    per_round = f"{number(row.tau)} tokens per round (τ)"
    if row.rule.dial is None:
        return f"{at} keeps {kept}: {per_round}."
    if row.dial == row.rule.dial.strict:
        return f"{at} is at its strict end. It keeps {kept}: {per_round}."
    if found.walked:
        return f"{at} {_against_strict_text(row, strict)}"
    more = row.kept - strict.kept
    if not more and row.relaxed == 0:
        return f"{at} keeps what its strict end keeps, {kept}: {per_round}."
    compared = "as many drafted tokens as" if not more else f"{counted(abs(more), 'drafted token')} "
    compared += "" if not more else "more than" if more > 0 else "fewer than"
    return (
        f"On the recorded text {at} keeps {compared} its strict end: {per_round} instead of "
        f"{number(strict.tau)}, {number(row.rolled_back)} rolled back instead of {number(strict.rolled_back)}."
    )


def _against_strict_text(row: RuleRow, strict: RuleRow) -> str:
    """'runs the target 28 times where its strict end runs it 37 times …', of two whole texts."""
    per_round = f"{number(row.tau)} tokens per round (τ)"
    if row.first_difference is None:
        same = (
            "in as many rounds" if row.rounds == strict.rounds else f"in {row.rounds} rounds instead of {strict.rounds}"
        )
        return f"writes the same text as its strict end {same}: {per_round}."
    as_often = row.rounds == strict.rounds
    times = ", as often as its strict end" if as_often else f" instead of {number(strict.rounds)}"
    return (
        f"runs the target {counted(row.rounds, 'time')}{times}: {per_round}{_instead(row.tau, strict.tau)}. "
        f"It rolls back {counted(row.rolled_back, 'drafted token')}{_instead(row.rolled_back, strict.rolled_back)}, "
        f"and its text first differs from the strict one at token {number(row.first_difference + 1)}."
    )


def _instead(ours: float, theirs: float) -> str:
    return "" if number(ours) == number(theirs) else f" instead of {number(theirs)}"


def in_the_light_of_others() -> str:
    """How the verdicts of rules that look further than one token are to be read, wherever verdicts are compared."""
    across = _listed([rule.title for rule in RULES.values() if rule.spans_positions])
    writing = _listed([rule.title for rule in RULES.values() if rule.emission_follows_dial])
    return (
        f"{across} judge a token in the light of others in its block: what they say of one holds where all before it "
        f"are kept. What {writing} writes on rejection depends on its dial, which no verdict shows."
    )


def alike(rule: Rule, dial: float | None, found: Mapping[str, Equivalent]) -> str:
    """The settings of other rules that keep nearly the same positions, the nearest first."""
    dialled = [one for one in found.values() if one.dial is not None]
    nearest = sorted(dialled, key=lambda one: one.differing)[:NEAREST]
    if not nearest:
        return ""
    parts = [f"{standing(one.rule, one.dial)} ({_apart(one)})" for one in nearest]
    return f"Judged on the recorded text (block-local), {standing(rule, dial)} behaves like {_listed(parts)}."


def shift_words(c: float, found: Iterable[Shifted]) -> str:
    """What adding `c` to every logit does to the rules' verdicts."""
    changed = sorted((one for one in found if one.count), key=lambda one: -one.count)
    amount = f"{number(abs(c))} {'to' if c >= 0 else 'from'}"
    begin = f"{'Adding' if c >= 0 else 'Taking'} {amount} every logit leaves every probability as it is, "
    if not changed:
        return begin + "and here no rule changes a verdict."
    parts = [f"{counted(one.count, 'verdict')} of {standing(one.ruling.rule, one.ruling.dial)}" for one in changed]
    return begin + f"yet it changes {_listed(parts)}. All other rules stay as they are."


def undrawn(rulings: Sequence[Ruling], lines: Sequence[Boundary | None]) -> str:
    """How the lines of the plane are to be read, and which rules have none."""
    without = [ruling for ruling, line in zip(rulings, lines, strict=True) if line is None]
    said = "A line is where a rule's verdicts part best; “off” counts what lies on its wrong side."
    if without:
        said += f" No line for {_listed([_undivided(ruling) for ruling in without])}."
    return said


def _undivided(ruling: Ruling) -> str:
    decided = ~np.isnan(ruling.opinion.verdicts.breakpoints)
    if not decided.any():
        return f"{ruling.rule.title} (no verdict hangs on a dial)"
    which = "all" if (ruling.keeps & decided).any() else "none"
    return f"{standing(ruling.rule, ruling.dial)} (keeps {which} of the {number(int(decided.sum()))} its dial decides)"


def _apart(one: Equivalent) -> str:
    if not one.differing:
        return "the same verdicts"
    return f"{number(one.differing)} of {counted(one.positions, 'verdict')} differ"


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
