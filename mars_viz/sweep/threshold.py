"""Choice of a draft-length controller's threshold: the fastest by modelled time, with its effect on accuracy.

Only speed decides, so that accuracy is tested once, at the chosen threshold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mars_viz.analysis.intervals import DEFAULT, Bootstrap, prompts_needed
from mars_viz.analysis.recommendation import FEW, Finding, Recommendation, about, grown, loss_bound
from mars_viz.controllers import CONTROLLERS
from mars_viz.costs import objection
from mars_viz.sweep.figure_words import spread
from mars_viz.sweep.grid import Advised
from mars_viz.sweep.measures import ALONE, band_at, measures, named_places, pace_over, value_at
from mars_viz.sweep.result import SweepResult, recommended
from mars_viz.words import exact_setting, number


def advised(
    result: SweepResult, points: float, confidence: float, among: int = 1, how: Bootstrap = DEFAULT
) -> Recommendation | None:
    """Return `recommended` for a rule's dial, or `fastest` for a controller's threshold. Raises BadInput for an invalid
    limit or confidence."""
    if result.plan.over:
        return fastest(result, points, confidence, how)
    return recommended(result, points, confidence, among)


def fastest(result: SweepResult, points: float, confidence: float, how: Bootstrap = DEFAULT) -> Recommendation:
    """Return the threshold with the largest modelled speed-up over full drafts. Recommended only if its interval is
    above 1 and its accuracy loss is at most `points` with this confidence, or the rule is lossless."""
    controller, by_name, against = CONTROLLERS[result.plan.over], measures(result), result.plan.against
    none = Recommendation(Finding.NO_GAIN, "", None, None, None, math.nan, None)
    if "speed_up_strict" not in by_name:
        return replace(none, sentence=f"No threshold can be recommended. {objection(result.costs)}")
    places = named_places(result)
    speeds = band_at(result, by_name["speed_up_strict"], places, how).estimate
    dial = float(places[int(np.nanargmax(speeds))])
    speed = value_at(result, by_name["speed_up_strict"], dial, how)
    alone = value_at(result, by_name["speed_up"], dial, how) if "speed_up" in by_name else None
    pace = f"{spread(speed)} as fast as {against}"
    stops = controller.advice(dial)
    if controller.counts and alone is not None and not alone.low > 1:
        sentence = f"No draft length is shown to be faster than {ALONE}: the best is modelled {spread(alone)} as fast."
        return replace(none, sentence=f"{sentence} {stops}, or decode without drafts.")
    if not controller.counts and (dial == result.plan.strict or not speed.low > 1):
        sentence = f"No threshold is shown to be faster than {against}: the fastest is modelled {pace}. {stops}."
        return replace(none, sentence=sentence)
    fewer = 1 - value_at(result, by_name["drafted_share"], dial, how).estimate
    count = f"{number(abs(round(100 * fewer)))} % {'fewer' if fewer >= 0 else 'more'} drafted tokens"
    sentence = stops if dial == result.plan.strict else f"{stops}: {count}, modelled {pace}"
    if alone is not None:
        sentence += f"{', modelled' if dial == result.plan.strict else ' and'} {spread(alone)} as fast as {ALONE}"
    changed, bound = None, math.nan
    if result.graded.any():
        graded = result.graded_steps()
        changed = graded.changed()[graded.steps.segment(dial)]
        bound = loss_bound(changed, confidence)
    recommended_dial = replace(none, finding=Finding.RECOMMENDED, dial=dial, changed=changed, bound=bound)
    if result.plan.rule.lossless:
        title = result.plan.rule.title
        return replace(recommended_dial, sentence=f"{sentence}. {title} is lossless at every threshold.")
    if dial == result.plan.strict:  # which only a draft length can be here, and it changes nothing
        longer = "Shorter drafts are slower, and longer ones were not swept."
        return replace(recommended_dial, bound=0.0, sentence=f"{sentence}. {longer}")
    if changed is None:
        unknown = "Its effect on accuracy is not known: no prompt is graded."
        return replace(recommended_dial, sentence=f"{sentence}. {unknown}")
    grades = f"of {changed.prompts} graded prompts it loses {changed.lost} and wins {changed.won} against {against}"
    safe = bound <= points / 100
    sure, needed = f"at most {number(100 * bound)} points", None
    if not safe:
        share = changed.discordant_share if changed.questions >= FEW else 0.0
        needed = max(grown(changed.questions), prompts_needed(points, confidence, share))
        sure += f"; about {about(needed - changed.questions)} more {changed.unit} may show {number(points)}"
        sentence = f"Not shown to be safe: {sentence[0].lower()}{sentence[1:]}"
    return replace(
        recommended_dial,
        finding=Finding.RECOMMENDED if safe else Finding.NOT_ENOUGH,
        sentence=f"{sentence}; {grades}, a loss of {sure}.",
        dial=dial if safe else None,
        prompts_needed=needed,
        there=changed.questions,
    )


def with_pair(best: Advised, variants: Sequence[Advised], how: Bootstrap = DEFAULT) -> Recommendation | None:
    """Return the recommendation of a grid of thresholds and dial values: its best variant's, with the pair and its
    speed.

    The speed is relative to strict with full drafts, and to full drafts at their own recommended setting. Unchanged if
    nothing is recommended, or speeds are unknown.
    """
    advice, plan = best.found, best.result.plan
    control, sentences = plan.settings.control, []
    if advice is None or advice.dial is None or control is None or "modelled" not in best.result.lines:
        return advice
    at = exact_setting(plan.symbol, advice.dial)
    for other in variants:
        others = other.result.plan.settings.control
        if others is None or others.threshold != control.controller.full(plan.settings.gamma):
            continue
        over = pace_over((best.result, advice.dial), (other.result, plan.strict), how)
        sentences.append(f"{spread(over)} as fast as strict with fixed γ = {plan.settings.gamma}")
        if other is not best and other.found is not None and other.found.dial is not None:
            over = pace_over((best.result, advice.dial), (other.result, other.found.dial), how)
            full_at = exact_setting(plan.symbol, other.found.dial)
            sentences.append(f"{spread(over)} as fast as {full_at} with it")
    where = control.controller.advice(control.threshold)
    if control.threshold == control.controller.full(plan.settings.gamma):
        where = f"Draft all γ = {plan.settings.gamma} tokens"
    words = f"{where} and take {at}" + (f": modelled {', '.join(sentences)}." if sentences else ".")
    return replace(advice, sentence=f"{words} {advice.sentence}")
