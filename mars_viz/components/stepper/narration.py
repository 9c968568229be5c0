"""The steps of a run in plain sentences.

Tokens are data: a sentence refers to one by its number, and the display code quotes and escapes it.
"""

from __future__ import annotations

import math
from typing import TypeAlias

from mars_viz.records import Decision, Emission, Outcome, Policy, Round, Speculation
from mars_viz.rules import Rule
from mars_viz.rules.lossless import left_of_p
from mars_viz.rules.mars import THETA
from mars_viz.run import Run
from mars_viz.words import counted, number, setting

Words: TypeAlias = tuple[str | int, ...]  # the parts of a sentence, in order; a number is a token


def start(run: Run, both: bool) -> Words:
    """Return the sentence before the first round; `both` is False if only the target has a cache."""
    prompt, hold = counted(len(run.prompt_ids), "token"), "Both caches hold" if both else "The target's cache holds"
    return (f"The prompt has {prompt}. {hold} all but the last one. Press Play, or → for one step.",)


def draft(index: int, speculation: Speculation, *, looked_up: bool) -> Words:
    """Return the sentence for a draft."""
    drafted, depth = len(speculation), int(speculation.depths.max(initial=0))
    if speculation.is_tree:
        tree = f"a tree of {counted(drafted, 'token')}, {number(depth)} deep"
        return (f"Round {number(index + 1)}: the drafter proposes {tree}, level by level.",)
    order = ", one after the other" if drafted > 1 and not looked_up else ""
    return (f"Round {number(index + 1)}: the drafter proposes {counted(drafted, 'token')}{order}.",)


def verify(index: int, drafted: int) -> Words:
    """Return the sentence for the target's pass."""
    if not drafted:
        return (f"Round {number(index + 1)}: there is no room for a draft, so the target scores the last token alone.",)
    return (
        f"The target scores all {number(drafted)} in one pass. That gives its own choice at each of "
        f"{number(drafted + 1)} positions.",
    )


def judge(run: Run, rule: Rule, round_: Round, node: int, kept: bool, strict: Decision | None) -> Words:
    """Return the sentence for a decision on a node; `strict` is the strict end's decision if it differs."""
    spec, token = round_.speculation, int(round_.speculation.tokens[node])
    row = int(spec.judging_rows[node])
    relaxed = kept and not round_.verdicts.keep_strict[node]
    why = _why_relaxed(run, rule, spec, row) if relaxed else _why(run, rule, spec, node, kept)
    if not kept and round_.verdicts.keep_strict[node] and run.settings.temperature > 0:
        why = (*why, f" u alone would have kept it; {rule.title} at this setting does not.")
    if strict is None:
        return (token, *why)
    if not kept and strict.row != row:
        return (token, *why, " Divergence: strict keeps it.")
    if strict.row != row:
        return (token, *why, " Divergence: strict keeps another draft.")
    return (token, *why, " Divergence: strict stops here and writes ", strict.emitted, ".")


_PREFERS = {
    Policy.DRAFT_ORDER: "the first kept one is taken",
    Policy.STRICT_FIRST: "one that strict keeps, too, is taken first",
    Policy.LONGEST: "the one with the longest kept path is taken",
}


def passed_over(spec: Speculation, node: int, wanted: int, policy: Policy) -> Words:
    """Return the sentence for a node that the rule accepts when a sibling is chosen instead."""
    token, other = (int(spec.tokens[each]) for each in (node, wanted))
    return (token, " would be kept as well, but the text goes on with ", other, f": of siblings {_PREFERS[policy]}.")


def _why(run: Run, rule: Rule, spec: Speculation, node: int, kept: bool) -> Words:
    row, rank = int(spec.judging_rows[node]), int(spec.ranks[node])
    best = int(spec.top_ids[row, 0])
    if run.settings.temperature == 0 or rule.on_rejection is Emission.ARGMAX:  # by rank at any temperature
        if rank == 1:
            return (" is the target's own choice" + (": kept." if kept else ", yet it is rejected."),)
        ending = "th" if 10 <= rank % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(rank % 10, "th")
        ordinal = {2: "second", 3: "third"}.get(rank, f"{number(rank)}{ending}")
        place = f" is only the target's {ordinal} choice, and its first is "
        return (place, best, ": kept." if kept else ": rejected.")
    p, q = float(spec.p[node]), float(spec.q[node])
    chances = f": the target gives it p = {number(p)}"
    if rule.on_rejection is Emission.SAMPLE:  # the sample decides, without a coin
        sample = int(spec.emissions[row, Emission.SAMPLE])
        return (f"{chances}, and the target's own sample is ", sample, ": kept." if kept else ": rejected.")
    if spec.sampled:
        chances += f", the drafter gave it q = {number(q)}"
        if spec.is_drawn_tree and rule.chances:
            chance = float(getattr(spec, rule.chances)[node])
            later = kept and spec.coins[node] > chance
            verdict = "Kept with a token that was drafted after it." if later else "Kept." if kept else "Rejected."
            return (f"{chances}; its chance here is {number(chance)}, u = {number(spec.coins[node])}. {verdict}",)
        if spec.is_drawn_tree and spec.siblings[node]:
            if rule.on_rejection is Emission.LOWERED:  # removes the siblings from p but not from q
                p /= max(float(left_of_p(spec)[node]), p, 1e-12)
            else:
                p, q = float(spec.p_left[node]), float(spec.q_left[node])
            chances += f"; without its siblings before, p = {number(p)} and q = {number(q)} are left"
        chances += f"; p/q = {number(p / q if q else math.inf)}, u = {number(spec.coins[node])}"
    return (f"{chances}. " + ("Kept." if kept else "Rejected."),)


def _why_relaxed(run: Run, rule: Rule, spec: Speculation, row: int) -> Words:
    by_sample = rule.on_rejection is Emission.SAMPLE and run.settings.temperature > 0
    best = int(spec.emissions[row, Emission.SAMPLE] if by_sample else spec.top_ids[row, 0])
    assert rule.dial is not None and run.settings.dial is not None  # relaxing needs a dial
    at = setting(rule.dial.symbol, run.settings.dial)
    if rule.dial == THETA:
        ratio = number(float(spec.ratio[row]))
        return (f" is not what strict verification keeps; {rule.title} keeps it, for z2/z1 = {ratio} is above {at}.",)
    relaxed = f"), but {rule.title} keeps it at {at}."
    which = "own sample" if by_sample else "best"
    return (f" is not what strict verification keeps (the target's {which} is ", best, relaxed)


def roll_back(round_: Round, both: bool | None, again: int | None) -> Words:
    """Return the sentence for a rollback.

    `both` is False if only the target's cache shrinks, because the drafter never reads its last guess, and None if the
    drafter has no cache. `again` counts path tokens of a tree to read again; None for a chain.
    """
    lost = round_.rolled_back
    discarded = f"{counted(lost, 'drafted token')} {'is' if lost == 1 else 'are'} discarded"
    if again is not None:
        read = f"Of the path, {counted(again, 'token')} will be read again with the next tree."
        cache = read if again else "The target's cache keeps the path."
    elif both:
        cache = "From there on both caches drop what they held."
    else:
        drafters = "" if both is None else f"; the drafter's did not hold {'it' if lost == 1 else 'them'} yet"
        cache = f"The target's cache drops {'it' if lost == 1 else 'them'}{drafters}."
    if not round_.stopped_by:
        return (f"{'The text ends inside the block' if again is None else 'Roll back'}: {discarded}. {cache}",)
    rejected = " and its siblings are rejected" if len(round_.stopped_by) > 1 else " is rejected"
    return ("Roll back: ", int(round_.speculation.tokens[round_.stopped_by[0]]), f"{rejected}; {discarded}. {cache}")


def commit(round_: Round) -> Words:
    """Return the sentence for the tokens that join the text."""
    kept, total = counted(round_.kept, "drafted token"), counted(len(round_.token_ids), "token")
    passes = f"{total} for one target pass."
    if round_.emission is None:
        return (f"{kept} {'is' if round_.kept == 1 else 'are'} appended to the text, which ends here: {passes}",)
    emitted = round_.token_ids[-1]
    if round_.emission is Outcome.CORRECTED:
        first = f"{kept} and the target's own " if round_.kept else "Only the target's own "
        return (first, emitted, f" {'are' if round_.kept else 'is'} appended to the text: {passes}")
    if not len(round_.speculation):
        return ("The target writes ", emitted, f": {passes}")
    if round_.speculation.is_tree:
        path = f"A whole path of {counted(round_.kept, 'token')} is kept"
        return (f"{path}, and the target's pass yields a bonus token, ", emitted, f": {passes}")
    return (f"All {number(round_.kept)} are kept, and the target's pass yields a bonus token, ", emitted, f": {passes}")


def end(run: Run, shown: int, written: int) -> Words:
    """Return the sentence after the last displayed round."""
    passes = f"{number(shown)} {'pass' if shown == 1 else 'passes'}"
    if shown < len(run.rounds):
        return (f"The playback stops here, and the run goes on: {counted(written, 'token')} in {passes} so far.",)
    if not shown:
        return ("This run has no rounds: nothing was decoded.",)
    return (
        f"The text is complete: {counted(written, 'token')} in {passes} of the target, τ = {number(run.tau)} tokens "
        "per pass.",
    )
