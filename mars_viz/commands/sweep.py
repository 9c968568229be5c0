"""`mars-viz sweep`: sweep a prompt set into a folder of results, a table and a recommendation.

With `--grid k=1,2,5` every variant of a rule is swept into a folder of its own.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mars_viz import default_folders
from mars_viz.analysis.intervals import Bootstrap
from mars_viz.axis import Span
from mars_viz.chat import checked_system
from mars_viz.commands import decoding, prompt_sets
from mars_viz.commands.decoding import add, note
from mars_viz.controllers import control_named
from mars_viz.costs import BatchCosts
from mars_viz.documents import lines
from mars_viz.errors import BadInput, SettingError
from mars_viz.locks import check_nobody
from mars_viz.prompts import GRADERS, HarnessTask, PromptSet, Turns, builtin_prompts, load_prompts
from mars_viz.recording import OVER_DIAL, mapping_of
from mars_viz.rules import rule_named
from mars_viz.run import Settings
from mars_viz.runfiles import check_free
from mars_viz.shapes import drafted_tokens
from mars_viz.speculators.names import pair_named
from mars_viz.sweep import document, store
from mars_viz.sweep.evidence import Evidence, table_of
from mars_viz.sweep.grid import Grid, chosen_dial, grid_of
from mars_viz.sweep.measures import METHODS, Terms
from mars_viz.sweep.on_ray import LOCAL, NamedModels, RayRequest, WorkerPool, check_ray, joined_cluster, sweep_with
from mars_viz.sweep.plan import Plan, check_span, set_notes
from mars_viz.sweep.report import Advised, CachedSweep, best_of, keep_batch_costs, kept_batch_costs, missing
from mars_viz.sweep.result import SweepResult
from mars_viz.sweep.store import SweepStore
from mars_viz.sweep.sweep import SweepLoop, sweep_prompts
from mars_viz.sweep.wall_clock import TimingCheck, WallClock, clock_options, keep_check, kept_checks
from mars_viz.terminal import say
from mars_viz.walk import AT_ONCE
from mars_viz.words import counted
from mars_viz.writer import json_of, write_folder

if TYPE_CHECKING:
    from mars_viz.speculators.backend import Backend


def arguments(parser: argparse.ArgumentParser) -> None:
    about = "N prompts or conversations, the file's tasks in turn; built-in: N of each task (default: 20); with "
    prompt_sets.arguments(parser, prompt_sets.BUILTIN, f"{about}--resume, a larger N adds prompts to the sweep")
    prompt_sets.task_arguments(parser)
    add(parser, "--grader", f"grader of prompts that name none: {', '.join(GRADERS)}", metavar="NAME")
    about = "turns of conversations; later ones follow the target's own answers, through the chat template or, without "
    about += "--chat, as plain text with blank lines between (default: all; with --resume as begun)"
    add(parser, "--turns", about, choices=[each.value for each in Turns])
    about = (
        "sweep each of these values of a fixed setting, such as k=1,2,5, into a folder of its own below --out; each "
    )
    about += "prefix is decoded once for all; with --controller NAME of its threshold, such as threshold=0.2,0.4"
    add(parser, "--grid", about, metavar="KEY=VALUES")
    decoding.range_arguments(parser)
    about = "dial value to time and report (default: recommended, else the rule's); with --over controller the value "
    about += "for decoding (default: the rule's); the threshold reported is that of --controller, else the recommended "
    decoding.settings_arguments(parser, dial=f"{about}one")
    parser.set_defaults(max_new_tokens=None)  # a task has its own limit
    decoding.over_argument(parser, "swept")
    decoding.model_arguments(parser)
    decoding.system_argument(parser, " for all prompts, in place of the set's own (default: with --resume as begun)")
    about = "map prompts with workers of a Ray cluster, each with models of its own: auto joins the cluster that this "
    about += "machine is in, HOST:PORT the one with that head; without an address one is started with what this "
    add(parser, "--ray", f"{about}machine has", nargs="?", const=LOCAL, metavar="ADDRESS")
    about = "workers at most (default: as many as there is room for)"
    add(parser, "--ray-workers", about, type=int, metavar="N")
    about = "cores of each worker, and threads on the CPU (default: 1)"
    add(parser, "--ray-cpus", about, type=int, metavar="N")
    about = "GPUs of each worker, or a share of one, such as 0.5 (default: 1 with --device cuda, and with auto where "
    add(parser, "--ray-gpus", f"{about}the cluster has GPUs)", type=float, metavar="SHARE")
    add(parser, "--out", "folder for the results (default: one that the app's Tune page lists)", metavar="DIR")
    parser.add_argument("--resume", action="store_true", help="continue the sweep in that folder, if there is one")
    add(parser, "--batch", "prompts to map at once", AT_ONCE)
    add(parser, "--evidence", "new folder for the evidence pack", metavar="DIR")
    add(parser, "--loss", "accuracy loss to tolerate, in points", 1.0)
    add(parser, "--cut-off", "increase of answers that the length limit cuts off to tolerate, in points", 1.0)
    add(parser, "--looping", "increase of answers that loop to tolerate, in points", 1.0)
    add(parser, "--confidence", "confidence of the recommendation and of all intervals", 0.95)
    add(parser, "--intervals", "bootstrap that makes the intervals", "bca", choices=METHODS)
    parser.add_argument("--wall-clock", action="store_true", help="time the strict (or fixed γ) and the chosen setting")
    add(parser, "--timed", "prompts to time", 5, metavar="K")
    add(parser, "--repetitions", "repetitions of each", 3, metavar="R")
    about = "measure rounds of 1, 2, 4, … N texts at once (32 without N), and model with how many speculation pays"
    add(parser, "--load", about, nargs="?", const=32, type=int, metavar="N")
    decoding.json_argument(parser)


def run(options: argparse.Namespace) -> None:
    if options.resume and not options.out:
        raise SettingError("--resume continues the sweep in --out DIR; name its folder.")
    name = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{rule_named(options.rule).slug}"
    options.out = options.out or str(default_folders.sweeps() / name)
    requested = decoding.settings_of(options, dial=None if options.over == OVER_DIAL else options.dial)
    pair_named(options.target, options.drafter).check(requested)
    settings, span = mapping_of(requested, options.over, options.low, options.high, (requested.gamma,))
    _check(options, settings, span)
    if options.load is not None and (requested.drafts_trees or requested.control is not None or options.load < 1):
        raise SettingError(
            "--load measures chains of one length for 1 text or more; leave --tree and --controller out."
        )
    asked_ray = _ray_request(options)
    variants = _checked_grid(options)
    task = prompt_sets.task_of(options, settings)
    resumed = _begun(variants, Path(options.out)) if options.resume else []
    begun = store.open_store(resumed[0]) if resumed else None
    prompts = _prompts(options, begun, task)
    settings = settings if task is None else task.settings(settings, options.max_new_tokens)
    for sentence in set_notes(prompts):
        note(sentence)
    dtype, out = "auto" if begun is None else _dtype_of(begun.plan), Path(options.out)
    keywords: dict[str, Any] = {"chat": options.chat, "resume": options.resume}
    pair: Any = None if asked_ray is not None else decoding.opened_backend(options, dtype)
    with ExitStack() as cluster:
        if asked_ray is not None:
            models = NamedModels(decoding.models_of(options, dtype), threads=asked_ray.cpus, folder=os.getcwd())
            cluster.enter_context(joined_cluster(asked_ray.address))
            pool = WorkerPool(models, settings, asked_ray, models.arguments["device"], note, options.batch)
            sweep = sweep_with(cluster.enter_context(closing(pool)), prompts, settings, span, out, **keywords)
        else:
            asked = settings if variants is None else variants.settings(settings)
            folders = out if variants is None else variants.folders(out)
            sweep = sweep_prompts(pair, prompts, asked, span, folders, batch=options.batch, **keywords)
        swept(sweep, f"in {out}" if variants is None else "for every variant")
    results = sweep.results()
    terms = terms_of(options)
    every = Advised.each([CachedSweep(result, terms.how) for result in results], terms)
    best = best_of(every)
    value: float | None = options.dial
    if options.over != OVER_DIAL:  # the threshold that --controller names, if it names one
        control = requested.control
        value = None if control is None or ":" not in options.controller else control.threshold
    result = best.sweep.result
    dial = chosen_dial(result, best.found) if value is None else value
    checks = _checks(result, pair, dial, options)
    batches = _batches(result, pair, dial, options)
    others = [each for each in every if each.sweep is not best.sweep]
    _report(result, dial, options, recommendation=best.found, checks=checks, batches=batches, beside=others)


def _check(options: argparse.Namespace, settings: Settings, span: Span) -> None:
    prompt_sets.check_task(options)
    terms_of(options)
    if span.over and options.grid is not None:
        raise SettingError("A grid of thresholds is one over the rule's dial; leave --over or --grid out.")
    if not span.over and options.dial is not None and not span.low <= options.dial <= span.high:
        raise SettingError(f"--dial {options.dial:g} is outside what is swept, {span.low:g} to {span.high:g}.")
    check_span(settings, span)
    for name in ("limit", "batch", "timed", "repetitions"):
        if (count := getattr(options, name)) is not None and count < 1:
            raise SettingError(f"--{name} {count} is too few; take at least 1.")
    check_nobody(Path(options.out))
    if not options.resume and options.grid is None:
        store.check_new(Path(options.out))
    if options.evidence is not None:
        check_free(options.evidence)


def _prompts(options: argparse.Namespace, begun: SweepStore | None, task: HarnessTask | None) -> PromptSet:
    """Return the set; for a resumed sweep its prompts, then those that a larger --limit adds."""
    kinds, limit = prompt_sets.builtin_kinds(options.set), options.limit
    if task is not None:
        offered = task.prompts
    elif kinds is None:
        turns = Turns(options.turns or Turns.ALL)
        if options.turns is None and begun is not None:  # as the resumed sweep
            turns = Turns.FIRST if begun.plan.later_turns else Turns.ALL
        keywords = {"grader": options.grader, "skip_bad": options.skip_bad, "turns": turns}
        offered = load_prompts(options.set, limit=limit if begun is None else None, **keywords)
    elif options.turns is not None or options.grader not in (None, "none"):
        raise SettingError("Built-in tasks have one turn and a grader of their own; leave --turns and --grader out.")
    else:
        count = 20 if begun is None else begun.plan.prompts
        offered = builtin_prompts(count if limit is None else limit, kinds=kinds)
        if options.grader == "none":
            items = tuple(replace(item, answer=None, grader="none") for item in offered.items)
            offered = replace(offered, items=items)
    offered = offered.with_system(checked_system(options.system, options.chat))
    if begun is not None:
        with suppress(BadInput):  # another set, which resuming reports, or a folder without its prompts
            offered = begun.prompts().with_more(offered)
            offered = offered.first(begun.plan.prompts) if limit is None else offered
        if task is None and kinds is None and limit is not None:
            offered = offered.limited(limit)
    return offered


def _checks(result: SweepResult, pair: Backend | None, dial: float, options: argparse.Namespace) -> list[TimingCheck]:
    unkept: list[TimingCheck] = []
    if pair is not None and options.wall_clock:
        timed = WallClock(pair, **clock_options(result, dial, options.timed, options.repetitions)).finish()
        try:
            keep_check(result.folder, timed)
        except BadInput as error:
            note(str(error))
            unkept.append(timed)
    checks = kept_checks(result.folder, result.plan)
    for problem in checks.problems:
        note(problem)
    return [*checks.found, *unkept]


def _batches(result: SweepResult, pair: Backend | None, dial: float, options: argparse.Namespace) -> BatchCosts | None:
    """Return the rounds of several texts, measured now with --load, or those stored with the sweep."""
    if pair is not None and options.load is not None:
        from mars_viz.speculators.costs import MeasuringBatches

        measuring, bars = MeasuringBatches(pair, result.plan.settings, options.load), decoding.progress_bar()
        with bars(desc="Measuring rounds of batches", total=1.0, bar_format="{desc}: {percentage:.0f} %|{bar}|") as bar:
            for share in measuring:
                bar.update(share - bar.n)
        keep_batch_costs(result.folder, measuring.costs())
    return kept_batch_costs(result.folder) if result.plan.length_at(dial) is not None else None


def _report(result: SweepResult, dial: float, options: argparse.Namespace, **about: Any) -> None:
    evidence = Evidence(result, dial, terms=terms_of(options), **about)
    sweep, terms, found = evidence.sweep, evidence.terms, evidence.recommendation
    if options.evidence is not None:
        write_folder(Path(options.evidence), evidence.files().items())
    if options.json:
        timed, table = evidence.timing, evidence.variants
        facts = {
            "folder": str(result.folder),
            "plan": result.plan,
            "costs": result.costs,
            "costs_objection": missing(result.costs, result.folder),
            "prompts": len(result),
            "failures": result.failures,
            "positions": result.positions,
            "off_is_strict": int(result.prompts["off_is_strict"].sum()),
            "dial": dial,
            "terms": terms.facts(),
            "table": table_of(sweep, dial),
            "by_task": sweep.tasks(dial),
            "recommendation": found,
            "wall_clock": None if timed is None else timed.facts(),
            "load": evidence.load,
        }
        grid_facts = {} if options.grid is None else {"setting_grid": None if table is None else table.facts()}
        print(json_of(facts | grid_facts))
        return
    grid = document.in_sections({"The grid": evidence.grid_blocks()})
    say(*lines([*document.summary(sweep, dial, evidence.checks, terms, evidence.load), *grid]))
    advice = f"{found.sentence} {terms.safe}"
    say("", f"{result.plan.rule.title}: {advice}" if grid else advice)
    if found.prompts_needed is not None:
        say(f"{found.next_step} The same command with --resume and a larger --limit adds prompts.".lstrip())
    pack = f", evidence in {options.evidence}" if options.evidence else ""
    say("", f"Results {'below' if grid else 'in'} {options.out}{pack}.")


def _ray_request(options: argparse.Namespace) -> RayRequest | None:
    sized = {name: getattr(options, f"ray_{name}") for name in ("workers", "cpus", "gpus")}
    sized = {name: value for name, value in sized.items() if value is not None}
    if options.ray is None:
        if sized:
            raise SettingError(f"--ray-{next(iter(sized))} says how workers on Ray are; add --ray, or leave it out.")
        return None
    ray_request = RayRequest(options.ray, **sized)
    if options.grid is not None:
        raise SettingError(
            "A grid's variants share what the models answer, in one process. Leave --ray out, or sweep each variant "
            "by itself, such as --rule vllm-thinking:k=5."
        )
    if options.wall_clock or options.load is not None:
        raise SettingError(
            "--wall-clock and --load time one process. Leave them out, and run the same command afterwards with them "
            "and with --resume in place of --ray."
        )
    check_ray()
    return ray_request


def swept(sweep: SweepLoop, where: str) -> None:
    """Sweep with a progress bar on standard error; an interruption prints the number of prompts kept `where`."""
    now, bars = sweep.progress, decoding.progress_bar()
    title = f"Sweeping {len(sweep.folders)} variants" if len(sweep.folders) > 1 else "Sweeping"
    try:
        begin = {"total": now.prompts, "initial": now.finished}
        with closing(iter(sweep)) as steps, bars(desc=title, unit=" prompts", **begin) as bar:
            for now in steps:
                bar.update(now.finished - bar.n)
                fields = {"failed": now.failed or "", "workers": "+".join(map(str, now.workers))}
                if shown := {name: value for name, value in fields.items() if value}:
                    bar.set_postfix(shown, refresh=False)
    except KeyboardInterrupt:
        kept = counted(sweep.progress.finished, "finished prompt")
        note(f"Interrupted. {kept} of {now.prompts} kept {where}; continue with --resume.")
        sys.exit(130)
    if sum(now.workers):
        note(f"Mapped by {counted(len(now.workers), 'worker')}: {' + '.join(map(str, now.workers))} prompts.")


def terms_of(options: argparse.Namespace) -> Terms:
    if not 0 < options.confidence < 1:
        raise SettingError("--confidence must be at least 0.5 and below 1.")
    how = Bootstrap(options.confidence, METHODS[options.intervals])
    return Terms(options.loss, how, options.cut_off, options.looping)


def _checked_grid(options: argparse.Namespace) -> Grid | None:
    if options.grid is None:
        return None
    control, out = control_named(options.controller), Path(options.out)
    if control is not None and ":" in options.controller:
        remedy = f"leave :{options.controller.partition(':')[2]} out of --controller"
        raise SettingError(f"The grid says the controller's thresholds, and so does its name; {remedy}.")
    gamma = drafted_tokens(options.gamma, options.tree)
    grid = grid_of(rule_named(options.rule), options.grid, None if control is None else control.controller, gamma)
    if options.wall_clock or options.load is not None:
        last = grid.settings(Settings())[-1]
        example = f"--rule {last.rule} --out {grid.folders(out)[-1]} --resume"
        raise SettingError(
            f"--wall-clock and --load time one sweep. Leave out --grid and name one of them, such as {example}."
        )
    if store.holds_sweep(out):
        raise SettingError(f"{out} holds a sweep itself. Choose another folder for the grid.")
    if not options.resume:
        if _begun(grid, out):
            raise SettingError(
                f"{out} holds sweeps of this grid already. Go on with them (--resume), or choose another folder."
            )
        store.check_new(out)
    for folder in grid.folders(out):
        check_nobody(folder)
    return grid


def _begun(grid: Grid | None, out: Path) -> list[Path]:
    """Return the folders that already contain a sweep: below `out` for a grid, otherwise `out` itself."""
    return [folder for folder in ((out,) if grid is None else grid.folders(out)) if store.holds_sweep(folder)]


def _dtype_of(plan: Plan) -> str:
    """Return the dtype that `auto` means for a resumed sweep: on the CPU, the recorded one, because auto depends on the
    processor."""
    on_cpu = re.search(r", \d+ threads?$", plan.provenance.device)
    return (on_cpu and plan.provenance.dtype) or "auto"
