"""The evidence pack on disk: a folder with the same evidence as Markdown, CSV and JSON, written whole or not at all.

Knows folders and JSON; the evidence is gathered and put into words beside it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import numpy as np

from mars_viz.analysis.intervals import DEFAULT, Bootstrap
from mars_viz.analysis.recommendation import Recommendation
from mars_viz.runfiles.folders import check_free, write_folder
from mars_viz.sweep.evidence import evidence_of, plain
from mars_viz.sweep.evidence_tables import grid_csv, prompts_csv
from mars_viz.sweep.evidence_text import markdown
from mars_viz.sweep.result import SweepResult
from mars_viz.sweep.timing import TimingCheck


def write_evidence(
    folder: str | PathLike[str],
    result: SweepResult,
    *,
    dial: float,
    grid: Sequence[float] | np.ndarray | None = None,
    recommendation: Recommendation | None = None,
    timing: TimingCheck | None = None,
    how: Bootstrap = DEFAULT,
) -> Path:
    """Write the evidence for `dial` to a new folder and return its path: evidence.md, evidence.json, grid.csv (a line a
    dial value) and prompts.csv (a line a prompt).

    `grid` are the dial values of the table (None: evenly spaced ones). Raises BadInput where something of that name
    exists, for a dial value outside the sweep, and where the disk refuses.
    """
    path = Path(folder)
    check_free(path)
    found = plain(evidence_of(result, dial, grid=grid, recommendation=recommendation, timing=timing, how=how))
    files = {
        "evidence.md": markdown(found),
        "evidence.json": json.dumps(found, ensure_ascii=False, allow_nan=False, indent=1) + "\n",
        "grid.csv": grid_csv(found["grid"]),
        "prompts.csv": prompts_csv(result, dial),
    }
    write_folder({name: text.encode() for name, text in files.items()}, path)
    return path
