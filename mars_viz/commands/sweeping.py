"""Sweeping in a terminal: a bar while it goes on, what is kept where it is interrupted, and which command adds prompts
to it. One sweep or a grid."""

from __future__ import annotations

import argparse
import sys
from itertools import accumulate

from mars_viz.analysis.recommendation import Recommendation
from mars_viz.commands import decoding
from mars_viz.errors import BadInput
from mars_viz.figures.words import counted
from mars_viz.prompts import Turns, load_prompts, per_task
from mars_viz.sweep.grid_sweep import GridSweep
from mars_viz.sweep.sweep import Sweep

BUILTIN = "builtin"
"""What --set calls the built-in tasks."""


def swept(sweep: Sweep | GridSweep, title: str, where: str) -> None:
    """Sweep to the end with a bar on standard error; an interruption says what is kept `where`."""
    now, bars = sweep.progress, decoding.progress_bar()
    try:
        with bars(desc=title, total=now.prompts, initial=now.finished, unit=" prompts") as bar:
            for progress in sweep:
                bar.update(progress.finished - bar.n)
                if progress.failed:
                    bar.set_postfix(failed=progress.failed, refresh=False)
    except KeyboardInterrupt:
        kept = counted(sweep.progress.finished, "finished prompt")
        decoding.note(f"Interrupted. {kept} of {now.prompts} kept {where}; continue with --resume.")
        sys.exit(130)


def next_step(found: Recommendation, options: argparse.Namespace, turns: Turns) -> str:
    """How many prompts a test of the next looser setting needs, and how the command adds them; empty where none do."""
    needed = found.prompts_needed
    if needed is None:
        return ""
    if options.set == BUILTIN:
        limit = per_task(needed)
    else:
        try:
            graded = _graded(options, turns)
        except BadInput:  # lines beyond those that were swept
            return found.next_step
        if graded[-1] < needed:
            return f"{found.next_step} {options.set} has {graded[-1]} that are graded.".lstrip()
        limit = 1 + next(place for place, count in enumerate(graded) if count >= needed)
    return f"{found.next_step} The same command with --resume --limit {limit} adds them.".lstrip()


def _graded(options: argparse.Namespace, turns: Turns) -> list[int]:
    """Graded prompts of the file up to each line, conversations as one."""
    whole = load_prompts(options.set, grader=options.grader, skip_bad=options.skip_bad, turns=turns)
    lines: dict[str, bool] = {}
    for item in whole.items:
        lines[item.unit] = lines.get(item.unit, False) or item.graded
    return list(accumulate(lines.values()))
