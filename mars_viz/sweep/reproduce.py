"""The command that repeats a sweep and its evidence, built from the sweep itself.

Facts that a sweep does not store are described in words: the path of a prompt file or local model, and the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from mars_viz.analysis.intervals import DEFAULT
from mars_viz.controllers import NONE
from mars_viz.demo import is_built_in
from mars_viz.errors import BadInput
from mars_viz.options import options_of
from mars_viz.prompts import PromptItem, Turns, harness, kinds_of, per_task
from mars_viz.run import Settings
from mars_viz.runlist.reproduce import Options, command_line
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
    options, needs = _prompts(plan, items)
    systems = {item.system for item in items}
    options += [("system", system) for system in systems if system and len(systems) == 1]
    options += _settings(plan, dial, grid)
    provenance = plan.provenance
    for name, model, revision in (
        ("target", provenance.target, provenance.target_revision),
        ("drafter", provenance.drafter, provenance.drafter_revision),
    ):
        if not is_built_in(model):
            options.append((name, model))
            needs += [f"The {name} {model} was at revision {revision}."] * bool(revision)
    options += [("dtype", provenance.dtype)] * bool(provenance.dtype)
    options += [("loss", terms.points), ("confidence", terms.confidence)]
    increases = (("cut_off", terms.cut_off), ("looping", terms.looping))
    options += [(name, limit) for name, limit in increases if limit != getattr(Terms(), name)]
    options += [("intervals", terms.how.method.value.lower())] * (terms.how.method is not DEFAULT.method)
    if timing is not None and not grid:
        count, repetitions = timing.chosen.seconds.shape
        options += [("wall_clock", True), ("timed", count), ("repetitions", repetitions)]
    options += [("out", "OUT"), ("evidence", "PACK")]
    versions = ", ".join(f"{name} {version}" for name, version in sorted(provenance.versions.items()))
    needs.append(f"The device was {provenance.device}{f', with {versions}' if versions else ''}.")
    return {"command": command_line("sweep", options), "needs": tuple(needs)}


def _prompts(plan: Plan, items: Sequence[PromptItem]) -> tuple[Options, list[str]]:
    if kinds := kinds_of(plan.prompt_set):
        named = plan.prompt_set.partition(": ")[2].replace(" ", "")
        each = per_task(plan.prompts, len(kinds))
        return [("set", f"builtin:{named}" if named else "builtin"), ("limit", each)], []
    graders = list(dict.fromkeys(item.grader for item in items if item.graded))
    limit: Options = [("limit", len({item.unit for item in items}))] * bool(items)
    if task := next(filter(None, map(harness.task_of, graders)), ""):
        score = next(grader for grader in graders if harness.task_of(grader)).rpartition(":")[2]
        shots = plan.prompt_set.partition(", ")[2].partition(" ")[0]
        fewshot: Options = [("fewshot", shots)] * shots.isdigit()
        note = f"The task and its examples: {plan.prompt_set}."
        return [("task", task), *fewshot, ("metric", score), *limit], [note]
    options: Options = [("set", plan.prompt_set), *limit]
    options += [("turns", "first")] * (plan.turns is Turns.FIRST and plan.later_turns > 0)
    options += [("grader", grader) for grader in graders if len(graders) == 1]
    options += [("skip_bad", True)] * bool(plan.skipped)
    note = f"{plan.prompt_set} is the file that was swept; the SHA-256 of its prompts is under “What was run”."
    return options, [note]


def _settings(plan: Plan, dial: float | None, grid: str) -> Options:
    settings, rule = plan.settings, plan.rule
    options: Options = [("rule", rule.family if grid and plan.cut_by is None else rule.name)]
    options += [("grid", grid)] * bool(grid)
    whole = plan.axis.span(None, None, (settings.gamma,))
    ends = (("low", plan.low, whole.low), ("high", plan.high, whole.high))
    options += [(name, at) for name, at, end in ends if at != end]
    options += [("tree", settings.tree)] * settings.drafts_trees
    if plan.over:
        if dial is None and plan.cut_by is not None and plan.cut_by.counts:
            options.append(("over", "gamma"))
        else:
            threshold = "" if dial is None else f":{exactly(dial)}"
            options += [("controller", f"{plan.over}{threshold}"), ("over", "controller")]
        options += [("dial", settings.dial)] * (settings.dial is not None)
    elif settings.controller != NONE:
        options.append(("controller", settings.controller.partition(":")[0] if grid else settings.controller))
    options += [("dial", dial)] * (dial is not None and not plan.over)
    options += [(name, getattr(settings, name)) for name in options_of(Settings)]
    chat: Options = [("chat", plan.chat)] * (plan.chat or not is_built_in(plan.provenance.target))
    return [*options, ("stop", settings.stop), *chat]
