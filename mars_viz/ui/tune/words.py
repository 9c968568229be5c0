"""A sweep in sentences. Plain text: whoever shows it escapes it. Knows no Streamlit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mars_viz.analysis.recommendation import Recommendation
from mars_viz.figures.frontier import RulePath
from mars_viz.sweep.by_task import losing
from mars_viz.sweep.figure_words import spread
from mars_viz.sweep.plan import turns_words
from mars_viz.sweep.terms import Terms
from mars_viz.sweep.threshold import stopping
from mars_viz.sweep.timing import TimingCheck
from mars_viz.ui.jobs.job import JobState
from mars_viz.ui.tune.cached_sweep import CachedSweep
from mars_viz.ui.tune.jobs import Clocking, Sweeping
from mars_viz.words import counted, decimals_within, exact_setting, number, ranged, short_device, times


@dataclass(frozen=True, slots=True)
class Clause:
    """A piece of a sentence, and what its numbers are."""

    words: str
    """Text."""
    tag: str = ""
    """'exact', 'modelled' or 'measured'; empty where nothing needs to be said."""


def lead(study: CachedSweep, dial: float) -> tuple[Clause, ...]:
    """What the chosen setting comes to, against strict or fixed γ."""
    if study.plan.controller is not None:
        return _shortened(study, dial)
    plan = study.plan
    at = f"{plan.rule.title} at {exact_setting(plan.symbol, dial)}"
    if dial == plan.strict:
        tau = study.value("tau", dial)
        return (
            Clause(f"{at} is strict: {number(tau.estimate)} tokens per target pass. Move the dial to relax.", "exact"),
        )
    if study.value("same", dial).estimate == 1:
        moved = _moved(study, dial) if study.graded else "."
        words = "writes the same text as strict on every prompt"
        return (Clause(f"{at} {words}{moved}", "exact"),)
    speed, passes, before = study.value("speed_up_strict", dial), *_passes(study, dial)
    parts = [
        Clause(f"{at} is {spread(speed)} as fast as strict", "modelled"),
        Clause(f": {number(passes)} target passes per prompt, strict {number(before)}", "exact"),
    ]
    if not study.graded:
        same = study.value("same", dial)
        return (*parts, Clause(f"; {ranged(same.scaled(100), ' %')} of texts are identical to strict.", "exact"))
    return (*parts, Clause(_moved(study, dial), "exact"))


def _shortened(study: CachedSweep, dial: float) -> tuple[Clause, ...]:
    """What a controller's threshold comes to, against drafts of full length."""
    plan, controller = study.plan, study.plan.controller
    assert controller is not None  # or the rule's dial were swept
    tau, drafted = (study.value(name, dial).estimate for name in ("tau", "drafted"))
    counts = f"{number(drafted)} drafted tokens per prompt, {number(tau)} tokens per target pass"
    if dial == plan.strict:
        return (Clause(f"At {exact_setting(plan.symbol, dial)} nothing is cut: {counts}.", "exact"),)
    where = f"Stopping where {stopping(controller, dial)}"
    known, before = "speed_up_strict" in study.measures, study.value("drafted", plan.strict).estimate
    pace = f" is {spread(study.value('speed_up_strict', dial))} as fast as {plan.against}" if known else ""
    parts = [
        Clause(f"{where}{pace}", "modelled" if known else ""),
        Clause(f": {counts}; {plan.against} drafts {number(before)}{'' if study.graded else '.'}", "exact"),
    ]
    return (*parts, Clause(_moved(study, dial), "exact")) if study.graded else tuple(parts)


def _moved(study: CachedSweep, dial: float) -> str:
    """What becomes of accuracy, as the end of a sentence."""
    change, accuracy = (study.value(name, dial).scaled(100) for name in ("accuracy_change", "accuracy"))
    is_now = f"; accuracy is {number(accuracy[0], decimals_within(*accuracy[1:]))} %"
    if study.regraded(dial):
        return f"{is_now}, {ranged(change, ' points', signed=True)} vs {study.plan.against}."
    low, high = (number(end, decimals_within(*change[1:])) for end in change[1:])
    return f"{is_now}, and no prompt's grade changes ({low} to {high} points)."


def _passes(study: CachedSweep, dial: float) -> tuple[float, float]:
    return study.value("passes", dial).estimate, study.value("passes", study.plan.strict).estimate


def advice(study: CachedSweep, found: Recommendation | None, dial: float, terms: Terms) -> str:
    """The recommendation, what would tell more, and which tasks lose too much by themselves at this setting."""
    if found is None:
        return "No prompt of this set is graded, so nothing can be recommended. Sweep a set with answers and a grader."
    tasks = losing(study.tasks(dial), terms, study.plan.against)
    said = f"{so_far(study)}{found.sentence} {found.next_step}".rstrip()
    return f"{said} At {exact_setting(study.plan.symbol, dial)}: {tasks[0].lower()}{tasks[1:]}" if tasks else said


def so_far(study: CachedSweep) -> str:
    """What a sweep that is not at its end speaks of; empty where it is."""
    result = study.result
    if result.complete:
        return ""
    return f"So far, from the first {number(result.finished)} of {number(study.plan.prompts)} prompts: "


def coverage(study: CachedSweep) -> str:
    """What it all rests on."""
    result, plan = study.result, study.plan
    left = f", {counted(len(result.failures), 'prompt')} without results" if result.failures else ""
    if not result.complete:
        left += f", {number(plan.prompts - result.finished)} not done yet"
    off = int(result.prompts["off_is_strict"].sum())
    turns = "" if result.units is None else f", turns of {counted(result.questions, 'question')}"
    strict = "every" if off == len(result) else f"{number(off)} of {number(len(result))}"
    at_the_end = f"At the strict end {strict} text equals the lossless rule's token for token{result.compared}."
    if plan.controller is not None:
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
    """Which rule buys most speed for the accuracy that may be lost."""
    ranked = sorted(paths, key=lambda each: -_best(each, points).speed)
    parts = [f"{each.name} {times(_best(each, points).speed)}× at {_best(each, points).at}" for each in ranked]
    allowed = f"{number(points)} {'point' if points == 1 else 'points'}"
    return (
        f"Fastest settings that lose at most {allowed} on these prompts, over {paths[0].path.over}: "
        f"{'; '.join(parts)}. Other prompts may differ."
    )


@dataclass(frozen=True, slots=True)
class _Best:
    speed: float
    at: str


def _best(each: RulePath, points: float) -> _Best:
    place = each.path.best_within(each.strict, points)
    return _Best(float(each.path.speed_up.estimate[place]), exact_setting(each.symbol, float(each.path.dials[place])))


def going(now: Sweeping, ahead: int, stopping: bool) -> str:
    """A sentence about a sweep that is under way."""
    if stopping:
        return "Stopping after this pass; finished prompts are kept …"
    if now.state is JobState.QUEUED:
        return f"Waiting for {counted(ahead, 'other job')} on this server …"
    if not now.prompts:
        return "Loading the models and measuring what their passes cost on this device …"
    words = f"{number(now.finished)} of {counted(now.prompts, 'prompt')} done"
    if now.failed:
        words += f", {number(now.failed)} of them without results"
    if now.workers:
        words += f", by {counted(len(now.workers), 'worker')}: {' + '.join(map(number, now.workers))}"
    return words + ("" if math.isnan(now.left) else f"; about {duration(now.left)} to go")


def timing(now: Clocking, ahead: int, stopping: bool) -> str:
    """A sentence about a wall-clock check that is under way."""
    if stopping:
        return "Stopping after this decode …"
    if now.state is JobState.QUEUED:
        return f"Waiting for {counted(ahead, 'other job')} on this server …"
    return f"Decoding in turn: {number(now.done)} of {number(now.decodes)}" if now.decodes else "Loading the models …"


def timed(check: TimingCheck) -> tuple[str, ...]:
    """What a wall-clock check found, measured beside modelled."""
    prompts, repetitions = check.chosen.seconds.shape
    modelled = "" if math.isnan(check.modelled_over_target) else f" (modelled {spread(check.modelled)})"
    alone = f", and {spread(check.over_target)} as fast as the target alone{modelled}"
    paces = ", ".join(
        f"{label} {ranged(check.pace(way).scaled(1))}"
        for label, way in (
            ("the target alone", check.target),
            (check.against, check.strict),
            ("this setting", check.chosen),
        )
    )
    over = check.modelled_over_strict
    told = "" if math.isnan(over) else f" (modelled {times(over)}×)"
    return (
        f"Measured {spread(check.over_strict)} as fast as {check.against}{told}"
        f"{f'. {check.objection}' if check.objection else f'{alone}.'}",
        f"Tokens a second: {paces}. {counted(prompts, 'prompt')}, {counted(repetitions, 'repetition')} in turn, on "
        f"{short_device(check.device)}.",
    )


def duration(seconds: float) -> str:
    """'40 seconds', '6 minutes', '2.5 hours'."""
    if seconds < 90:
        return counted(max(1, round(seconds)), "second")
    if seconds < 5400:
        return counted(round(seconds / 60), "minute")
    return f"{number(round(seconds / 3600, 1))} hours"
