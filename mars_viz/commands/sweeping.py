"""Sweeping in a terminal: a bar while it goes on, and what is kept where it is interrupted. One sweep or a grid."""

from __future__ import annotations

import sys

from mars_viz.commands import decoding
from mars_viz.figures.words import counted
from mars_viz.sweep.grid_sweep import GridSweep
from mars_viz.sweep.sweep import Sweep


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
        decoding.note(f"Interrupted. {kept} of {now.prompts} kept {where}; go on with --resume.")
        sys.exit(130)
