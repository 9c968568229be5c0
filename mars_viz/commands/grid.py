"""`mars-viz sweep --grid k=1,2,5`: sweep every variant of a rule, each into a folder of its own."""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import asdict, replace
from itertools import accumulate
from pathlib import Path

import numpy as np

from mars_viz.analysis.intervals import Bootstrap
from mars_viz.analysis.recommendation import Recommendation
from mars_viz.axis import Span
from mars_viz.commands import decoding, prompt_sets
from mars_viz.commands.decoding import note
from mars_viz.controllers import control_named
from mars_viz.errors import BadInput, SettingError
from mars_viz.locks import check_nobody
from mars_viz.prompts import PromptSet, Turns, load_prompts, load_task, per_task
from mars_viz.rules import rule_named
from mars_viz.run import Settings
from mars_viz.shapes import drafted_tokens
from mars_viz.strict_formats import json_of
from mars_viz.sweep import store
from mars_viz.sweep.evidence import dial_grid
from mars_viz.sweep.evidence_pack import write_evidence
from mars_viz.sweep.figure_words import alone
from mars_viz.sweep.grid import Advised, Grid, GridTable, best_of, few_dials, grid_of, grid_table, left_out
from mars_viz.sweep.grid_sweep import GridSweep, sweep_grid
from mars_viz.sweep.plan import Plan
from mars_viz.sweep.report import summary_lines
from mars_viz.sweep.result import chosen_dial
from mars_viz.sweep.sweep import SweepLoop
from mars_viz.sweep.terms import METHODS, Terms
from mars_viz.sweep.threshold import with_pair
from mars_viz.sweep.timing import kept_checks
from mars_viz.terminal import say
from mars_viz.words import counted, exactly


def swept(sweep: SweepLoop | GridSweep, title: str, where: str) -> None:
    """Sweep with a progress bar on standard error; an interruption prints the number of prompts kept `where`."""
    now, bars = sweep.progress, decoding.progress_bar()
    try:
        with bars(desc=title, total=now.prompts, initial=now.finished, unit=" prompts") as bar:
            for progress in sweep:
                bar.update(progress.finished - bar.n)
                workers = "+".join(map(str, progress.workers))
                fields = {"failed": progress.failed or "", "workers": workers}
                if shown := {name: value for name, value in fields.items() if value}:
                    bar.set_postfix(shown, refresh=False)
    except KeyboardInterrupt:
        kept = counted(sweep.progress.finished, "finished prompt")
        decoding.note(f"Interrupted. {kept} of {now.prompts} kept {where}; continue with --resume.")
        sys.exit(130)


def terms_of(options: argparse.Namespace) -> Terms:
    """Return the terms of --loss, --confidence and --intervals. Raises SettingError for invalid numbers."""
    if not 0 < options.confidence < 1:
        raise SettingError("--confidence must be at least 0.5 and below 1.")
    return Terms(options.loss, Bootstrap(options.confidence, METHODS[options.intervals]))


def next_step(found: Recommendation, options: argparse.Namespace, folder: Path, turns: Turns) -> str:
    """Return how many prompts a test of the next looser setting needs, and the command to add them; may be empty."""
    needed = found.prompts_needed
    if needed is None:
        return ""
    if options.task is None and (kinds := prompt_sets.builtin_kinds(options.set)) is not None:
        limit = per_task(needed, len(kinds))
    else:
        try:
            graded = _graded(options, folder, turns)
        except BadInput:  # bad lines beyond the swept ones
            return found.next_step
        if graded[-1] < needed:
            return f"{found.next_step} {options.task or options.set} has {graded[-1]} that are graded.".lstrip()
        limit = 1 + next(place for place, count in enumerate(graded) if count >= needed)
    return f"{found.next_step} The same command with --resume --limit {limit} adds them.".lstrip()


def _graded(options: argparse.Namespace, folder: Path, turns: Turns) -> list[int]:
    """Return the cumulative number of graded prompts in sweep order; a conversation counts once."""
    if options.task is not None:
        return list(range(1, len(load_task(options.task, fewshot=options.fewshot, metric=options.metric).prompts) + 1))
    prompts = load_prompts(options.set, grader=options.grader, skip_bad=options.skip_bad, turns=turns)
    prompts = store.in_begun_order(folder, prompts)
    lines: dict[str, bool] = {}
    for item in prompts.items:
        lines[item.unit] = lines.get(item.unit, False) or item.graded
    return list(accumulate(lines.values()))


def checked(options: argparse.Namespace) -> Grid | None:
    """Return the requested grid, or None. Raises BadInput for an invalid one or an occupied folder."""
    if options.grid is None:
        return None
    control, out = control_named(options.controller), Path(options.out)
    if control is not None and ":" in options.controller:
        remedy = f"leave :{options.controller.partition(':')[2]} out of --controller"
        raise SettingError(f"The grid says the controller's thresholds, and so does its name; {remedy}.")
    gamma = drafted_tokens(options.gamma, options.tree)
    grid = grid_of(rule_named(options.rule), options.grid, None if control is None else control.controller, gamma)
    if options.wall_clock:
        last = grid.settings(Settings())[-1]
        example = f"--rule {last.rule} --out {grid.folders(out)[-1]} --resume"
        raise SettingError(
            f"The wall-clock check times one sweep. Leave out --grid and name one of them, such as {example}."
        )
    if store.holds_sweep(out):
        raise SettingError(f"{out} holds a sweep itself. Choose another folder for the grid.")
    if not options.resume:
        if begun(grid, out):
            raise SettingError(
                f"{out} holds sweeps of this grid already. Go on with them (--resume), or choose another folder."
            )
        store.check_new(out)
    for folder in grid.folders(out):
        check_nobody(folder)
    return grid


def begun(grid: Grid | None, out: Path) -> list[Path]:
    """Return the folders that already contain a sweep: below `out` for a grid, otherwise `out` itself."""
    return [folder for folder in ((out,) if grid is None else grid.folders(out)) if store.holds_sweep(folder)]


def gone_on_with(options: argparse.Namespace, grid: Grid | None) -> Plan | None:
    """Return the plan to resume, for a grid that of its first sweep; None for a new sweep. Raises BadInput."""
    folders = begun(grid, Path(options.out)) if options.resume else []
    return store.open_store(folders[0]).plan if folders else None


def dtype_of(plan: Plan | None) -> str:
    """Return the dtype that `auto` means for a resumed sweep.

    On the CPU, it is the recorded dtype, because auto depends on the processor. Elsewhere auto is each model's stored
    dtype.
    """
    if plan is None or not re.search(r", \d+ threads?$", plan.provenance.device):
        return "auto"
    return plan.provenance.dtype or "auto"


def run(options: argparse.Namespace, grid: Grid, settings: Settings, span: Span, prompts: PromptSet) -> None:
    """Sweep and print the results."""
    pair = decoding.opened_backend(options, dtype_of(gone_on_with(options, grid)))
    keywords = {"chat": options.chat, "resume": options.resume, "batch": options.batch}
    sweep = sweep_grid(pair, prompts, grid.settings(settings), grid.folders(Path(options.out)), span, **keywords)
    for each in sweep.too_long:
        note(f"{each.id} will have no results: {each.reason}")
    swept(sweep, f"Sweeping {counted(len(sweep.sweeps), 'variant')}", "for every variant")
    results = [each.result() for each in sweep.sweeps]
    if not len(results[0]):
        raise SettingError(f"None of the {results[0].finished} prompts could be swept. {results[0].failures[0].reason}")
    terms = terms_of(options)
    variants = [Advised.of(result, terms.points, terms.confidence, len(results)) for result in results]
    best = best_of(variants)
    best = replace(best, found=with_pair(best, variants)) if grid.axis.over else best
    dial = chosen_dial(best.result, best.found) if options.dial is None else options.dial
    if options.evidence is not None:
        others = [each for each in variants if each.result is not best.result]
        checks = kept_checks(best.result.folder, best.result.plan).found
        about = {"recommendation": best.found, "checks": checks, "beside": others, "terms": terms}
        write_evidence(options.evidence, best.result, dial=dial, **about)
    table = None if len(variants) == 1 else grid_table(variants, dial_grid(best.result, dial))
    _print(table, best, dial, options)


def _print(table: GridTable | None, best: Advised, dial: float, options: argparse.Namespace) -> None:
    terms = terms_of(options)
    if options.json:
        facts = {
            "folder": str(best.result.folder),
            "plan": asdict(best.result.plan),
            "dial": dial,
            "terms": terms.facts(),
            "recommendation": None if best.found is None else asdict(best.found),
            "setting_grid": None if table is None else table.facts(terms.how),
        }
        print(json_of(facts))
        return
    say(*summary_lines(best.result, dial, terms=terms))
    if table is not None:  # estimates only, to fit a terminal
        dials = table.dials.tolist()
        shown = few_dials(dials, (dial,))
        few = replace(table, dials=np.array(shown))
        for name in (each for each in ("accuracy", "tau", "speed_up", "rolled_back") if each in table.titles):
            heads = "".join(f"{f'{table.symbol} = {exactly(at)}':>14}" for at in shown)
            say("", f"{table.titles[name]:<44}{heads}")
            for place, value in enumerate(table.values):
                cells = [f"{alone(name, estimate):>14}" for estimate in few.band(place, name).estimate.tolist()]
                say(f"{f'{table.axis.symbol} = {exactly(value)}':<44}{''.join(cells)}")
        if omission := left_out(table.symbol, dials, dial):
            say("", *omission.split("\n"))
    advice = "No recommendation: no prompt of the set is graded."
    advice = advice if best.found is None else f"{best.found.sentence} {terms.safe}"
    say("", f"{best.result.plan.rule.title}: {advice}")
    if best.found is not None and (more := next_step(best.found, options, best.result.folder, best.result.plan.turns)):
        say(more)
    say("", f"Results below {options.out}" + (f", evidence in {options.evidence}." if options.evidence else "."))
