"""The command that repeats a sweep and its evidence, built from the sweep itself.

Facts that a sweep does not store are described in words: the path of a prompt file or local model, and the machine.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from mars_viz import demo
from mars_viz.analysis.intervals import DEFAULT
from mars_viz.controllers import NONE
from mars_viz.demo import is_built_in
from mars_viz.errors import BadInput
from mars_viz.options import options_of
from mars_viz.prompts import PromptItem, Turns, harness, kinds_of, per_task
from mars_viz.run import Settings
from mars_viz.shapes import CHAIN
from mars_viz.sweep.measures import Terms
from mars_viz.sweep.plan import Plan
from mars_viz.sweep.result import SweepResult
from mars_viz.sweep.store import open_store
from mars_viz.sweep.wall_clock import TimingCheck
from mars_viz.words import exactly


def reproduction(
    result: SweepResult, terms: Terms, *, dial: float | None = None, timing: TimingCheck | None = None, grid: str = ""
) -> dict[str, Any]:
    """Return the shell `command` for this sweep on these terms, and a sentence for everything else that it `needs`.

    OUT and PACK in the command are placeholders of new folders. `dial` is a setting chosen by hand, `timing` its
    wall-clock check, and `grid` the value of `--grid` for variants.
    """
    plan, items = result.plan, tuple[PromptItem, ...]()
    with suppress(BadInput):
        items = open_store(result.folder).prompts().items
    prompts, needs = _prompts(plan, items)
    systems = {item.system for item in items}
    prompts += [f"--system={system}" for system in systems if system and len(systems) == 1]
    models, of_models = _models(plan)
    words = ["mars-viz", "sweep", *prompts, *_settings(plan, dial, grid), *models]
    words += ["--loss", f"{terms.points:g}", "--confidence", f"{terms.confidence:g}"]
    words += [] if terms.how.method is DEFAULT.method else ["--intervals", terms.how.method.value.lower()]
    if timing is not None and not grid:
        count, repetitions = timing.chosen.seconds.shape
        words += ["--wall-clock", "--timed", str(count), "--repetitions", str(repetitions)]
    words += ["--out", "OUT", "--evidence", "PACK"]
    versions = ", ".join(f"{name} {version}" for name, version in sorted(plan.provenance.versions.items()))
    where = f"The device was {plan.provenance.device}"
    needs = (*needs, *of_models, f"{where}, with {versions}." if versions else f"{where}.")
    return {"command": shlex.join(words), "needs": needs}


def _prompts(plan: Plan, items: Sequence[PromptItem]) -> tuple[list[str], tuple[str, ...]]:
    if kinds := kinds_of(plan.prompt_set):
        named = plan.prompt_set.partition(": ")[2].replace(" ", "")
        each = str(per_task(plan.prompts, len(kinds)))
        return ["--set", f"builtin:{named}" if named else "builtin", "--limit", each], ()
    graders = list(dict.fromkeys(item.grader for item in items if item.graded))
    limit = ["--limit", str(len({item.unit for item in items}))] if items else []
    if task := next(filter(None, map(harness.task_of, graders)), ""):
        note = f"The task and its examples: {plan.prompt_set}."
        score = next(grader for grader in graders if harness.task_of(grader)).rpartition(":")[2]
        shots = plan.prompt_set.partition(", ")[2].partition(" ")[0]
        fewshot = ["--fewshot", shots] if shots.isdigit() else []
        return ["--task", task, *fewshot, "--metric", score, *limit], (note,)
    words = ["--set", plan.prompt_set, *limit]
    if plan.turns is Turns.FIRST and plan.later_turns:
        words += ["--turns", "first"]
    if len(graders) == 1:
        words += ["--grader", *graders]
    note = f"{plan.prompt_set} is the file that was swept; the SHA-256 of its prompts is under “What was run”."
    return words + ["--skip-bad"] * bool(plan.skipped), (note,)


_ALWAYS = ("gamma", "temperature", "seed", "max_new_tokens")  # written even at their defaults


def _settings(plan: Plan, dial: float | None, grid: str) -> list[str]:
    settings, rule = plan.settings, plan.rule
    words = ["--rule", rule.family if grid and plan.cut_by is None else rule.name]
    words += ["--grid", grid] if grid else []
    counts = plan.cut_by is not None and plan.cut_by.counts
    whole = plan.axis.span(None, None, (settings.gamma,))
    for name, at, end in (("low", plan.low, whole.low), ("high", plan.high, whole.high)):
        words += [f"--{name}", exactly(at)] if at != end else []
    words += ["--tree", settings.tree] if settings.tree != CHAIN else []
    if plan.over:
        at_dial = [] if settings.dial is None else ["--dial", exactly(settings.dial)]
        threshold = "" if dial is None else f":{exactly(dial)}"
        over = ["--controller", f"{plan.over}{threshold}", "--over", "controller"]
        words += [*(["--over", "gamma"] if counts and dial is None else over), *at_dial]
    elif settings.controller != NONE:
        words += ["--controller", settings.controller.partition(":")[0] if grid else settings.controller]
    if dial is not None and not plan.over:
        words += ["--dial", exactly(dial)]
    for each in options_of(Settings).values():
        value = getattr(settings, each.name)
        words += [each.flag, each.written(value)] if each.name in _ALWAYS or value != each.default else []
    for text in settings.stop:
        words += ["--stop", text]
    plain = not plan.chat and not demo.is_built_in(plan.provenance.target)
    return words + ["--chat"] * plan.chat + ["--no-chat"] * plain


def _models(plan: Plan) -> tuple[list[str], tuple[str, ...]]:
    provenance, words = plan.provenance, []
    for name, model in (("target", provenance.target), ("drafter", provenance.drafter)):
        words += [] if is_built_in(model) else [f"--{name}", model]
    words += ["--dtype", provenance.dtype] if provenance.dtype else []
    revisions = tuple(
        f"{name} {model} was at revision {revision}."
        for name, model, revision in (
            ("The target", provenance.target, provenance.target_revision),
            ("The drafter", provenance.drafter, provenance.drafter_revision),
        )
        if revision and not is_built_in(model)
    )
    return words, revisions
