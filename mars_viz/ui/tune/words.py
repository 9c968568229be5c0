"""Sentences about a sweep, as plain text that the caller escapes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mars_viz.analysis.recommendation import Recommendation
from mars_viz.controllers import CONTROLLERS
from mars_viz.figures.frontier import RulePath
from mars_viz.sweep.measures import Terms
from mars_viz.sweep.plan import turns_words
from mars_viz.sweep.report import losing, spread
from mars_viz.sweep.wall_clock import TimingCheck
from mars_viz.ui.tune.catalogue import CachedSweep
from mars_viz.ui.tune.jobs import Sweeping
from mars_viz.words import counted, decimals_within, exact_setting, number, ranged, short_device, times

Clause = tuple[str, str]  # part of a sentence, with 'exact', 'modelled' or 'measured' as its basis; empty for none


def lead(sweep: CachedSweep, dial: float) -> tuple[Clause, ...]:
    """Return the results of the chosen setting compared with strict or with fixed γ."""
    if sweep.plan.over:
        return _shortened(sweep, dial)
    plan = sweep.plan
    at = f"{plan.rule.title} at {exact_setting(plan.symbol, dial)}"
    if dial == plan.strict:
        tau = number(sweep.value("tau", dial).estimate)
        return ((f"{at} is strict: {tau} tokens per target pass. Move the dial to relax.", "exact"),)
    if sweep.value("same", dial).estimate == 1:
        moved = _accuracy_change(sweep, dial) if sweep.graded else "."
        return ((f"{at} writes the same text as strict on every prompt{moved}", "exact"),)
    speed, passes = sweep.value("speed_up_strict", dial), sweep.value("passes", dial).estimate
    strict_passes = sweep.value("passes", plan.strict).estimate
    end = f"; {ranged(sweep.value('same', dial).scaled(100), ' %')} of texts are identical to strict."
    return (
        (f"{at} is {spread(speed)} as fast as strict", "modelled"),
        (f": {number(passes)} target passes per prompt, strict {number(strict_passes)}", "exact"),
        (_accuracy_change(sweep, dial) if sweep.graded else end, "exact"),
    )


def _shortened(sweep: CachedSweep, dial: float) -> tuple[Clause, ...]:
    plan, controller = sweep.plan, CONTROLLERS[sweep.plan.over]
    tau, drafted = (sweep.value(name, dial).estimate for name in ("tau", "drafted"))
    counts = f"{number(drafted)} drafted tokens per prompt, {number(tau)} tokens per target pass"
    if dial == plan.strict:
        return ((f"At {exact_setting(plan.symbol, dial)} nothing is cut: {counts}.", "exact"),)
    where = controller.advice(dial, "Drafting", "Stopping")
    has_speed, full_drafted = "speed_up_strict" in sweep.measures, sweep.value("drafted", plan.strict).estimate
    pace = f" is {spread(sweep.value('speed_up_strict', dial))} as fast as {plan.against}" if has_speed else ""
    parts = (
        (f"{where}{pace}", "modelled" if has_speed else ""),
        (f": {counts}; {plan.against} drafts {number(full_drafted)}{'' if sweep.graded else '.'}", "exact"),
    )
    return (*parts, (_accuracy_change(sweep, dial), "exact")) if sweep.graded else parts


def _accuracy_change(sweep: CachedSweep, dial: float) -> str:
    change, accuracy = (sweep.value(name, dial).scaled(100) for name in ("accuracy_change", "accuracy"))
    is_now = f"; accuracy is {number(accuracy[0], decimals_within(*accuracy[1:]))} %"
    grades = sweep.result.at("right", np.array([dial])), sweep.result.at("right", np.array([sweep.plan.strict]))
    if (grades[0] != grades[1]).any():
        return f"{is_now}, {ranged(change, ' points', signed=True)} vs {sweep.plan.against}."
    low, high = (number(end, decimals_within(*change[1:])) for end in change[1:])
    return f"{is_now}, and no prompt's grade changes ({low} to {high} points)."


def advice(sweep: CachedSweep, recommendation: Recommendation | None, dial: float, terms: Terms) -> str:
    """Return the recommendation, the next step, and the tasks that lose too much at this setting."""
    if recommendation is None:
        return "No prompt of this set is graded, so nothing can be recommended. Sweep a set with answers and a grader."
    tasks = losing(sweep.tasks(dial), terms, sweep.plan.against)
    text = f"{so_far(sweep)}{recommendation.sentence} {recommendation.next_step}".rstrip()
    return f"{text} At {exact_setting(sweep.plan.symbol, dial)}: {tasks[0].lower()}{tasks[1:]}" if tasks else text


def so_far(sweep: CachedSweep) -> str:
    """Return the beginning of a sentence about an unfinished sweep; empty if it is finished."""
    result = sweep.result
    if result.complete:
        return ""
    return f"So far, from the first {number(result.finished)} of {number(sweep.plan.prompts)} prompts: "


def coverage(sweep: CachedSweep) -> str:
    """Return the basis of all figures."""
    result, plan = sweep.result, sweep.plan
    left = f", {counted(len(result.failures), 'prompt')} without results" if result.failures else ""
    if not result.complete:
        left += f", {number(plan.prompts - result.finished)} not done yet"
    off = int(result.prompts["off_is_strict"].sum())
    turns = "" if result.units is None else f", turns of {counted(result.questions, 'question')}"
    strict = "every" if off == len(result) else f"{number(off)} of {number(len(result))}"
    at_the_end = f"At the strict end {strict} text equals the lossless rule's token for token{result.compared}."
    if plan.over:
        at_the_end = f"With drafts of full length {strict} text equals that of a walk without controller."
    return (
        f"{counted(len(result), 'prompt')} of {plan.prompt_set}{turns}, "
        f"{number(int(result.graded.sum()))} graded{left}; "
        f"{counted(result.positions, 'drafted position')}; {plan.settings.draft}, temperature "
        f"{plan.settings.temperature:g}, max {number(plan.settings.max_new_tokens)} new tokens; "
        f"{plan.provenance.target} with {plan.provenance.drafter} on {short_device(plan.provenance.device)}. "
        f"{at_the_end} {turns_words(plan)}"
    ).rstrip()


def trade(paths: Sequence[RulePath], points: float) -> str:
    """Return the fastest rule for the tolerated loss of accuracy."""
    ranked: list[tuple[float, str]] = []
    for each in paths:
        place = each.path.best_within(each.strict, points)
        speed, at = float(each.path.speed_up.estimate[place]), exact_setting(each.symbol, float(each.path.dials[place]))
        ranked.append((-speed, f"{each.name} {times(speed)}× at {at}"))
    parts = [words for _, words in sorted(ranked, key=lambda row: row[0])]
    allowed = f"{number(points)} {'point' if points == 1 else 'points'}"
    return (
        f"Fastest settings that lose at most {allowed} on these prompts, over {paths[0].path.over}: "
        f"{'; '.join(parts)}. Other prompts may differ."
    )


def going(now: Sweeping) -> str:
    """Return a sentence about a running sweep."""
    if not now.prompts:
        return "Loading the models and measuring what their passes cost on this device …"
    words = f"{number(now.finished)} of {counted(now.prompts, 'prompt')} done"
    if now.failed:
        words += f", {number(now.failed)} of them without results"
    if now.workers:
        words += f", by {counted(len(now.workers), 'worker')}: {' + '.join(map(number, now.workers))}"
    return words + ("" if math.isnan(now.left) else f"; about {duration(now.left)} to go")


def timed(check: TimingCheck) -> tuple[str, ...]:
    """Return the results of a wall-clock check, measured and modelled."""
    prompts, repetitions = check.chosen.seconds.shape
    modelled = "" if math.isnan(check.modelled_over_target) else f" (modelled {spread(check.modelled)})"
    alone = f", and {spread(check.over_target)} as fast as the target alone{modelled}"
    ways = (("the target alone", check.target), (check.against, check.strict), ("this setting", check.chosen))
    paces = ", ".join(f"{label} {ranged(check.pace(way).scaled(1))}" for label, way in ways)
    over = check.modelled_over_strict
    modelled_over = "" if math.isnan(over) else f" (modelled {times(over)}×)"
    return (
        f"Measured {spread(check.over_strict)} as fast as {check.against}{modelled_over}"
        f"{f'. {check.objection}' if check.objection else f'{alone}.'}",
        f"Tokens a second: {paces}. {counted(prompts, 'prompt')}, {counted(repetitions, 'repetition')} in turn, on "
        f"{short_device(check.device)}.",
    )


def duration(seconds: float) -> str:
    """Return a duration like '40 seconds', '6 minutes' or '2.5 hours'."""
    if seconds < 90:
        return counted(max(1, round(seconds)), "second")
    if seconds < 5400:
        return counted(round(seconds / 60), "minute")
    return f"{number(round(seconds / 3600, 1))} hours"
