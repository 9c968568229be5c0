"""The evidence pack: the same evidence as Markdown, CSV and JSON, in a folder, written whole or not at all, or a zip.

Knows folders and JSON; the evidence is gathered and put into words beside it.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from mars_viz.analysis.intervals import DEFAULT, Bootstrap
from mars_viz.analysis.recommendation import Recommendation
from mars_viz.runfiles.folders import check_free, write_folder
from mars_viz.strict_json import json_of, plain
from mars_viz.sweep.evidence import evidence_of
from mars_viz.sweep.evidence_tables import engines_csv, grid_csv, prompts_csv, setting_grid_csv, summary_csv
from mars_viz.sweep.evidence_text import markdown
from mars_viz.sweep.grid_table import Advised
from mars_viz.sweep.result import SweepResult
from mars_viz.sweep.timing import TimingCheck


def evidence_files(
    result: SweepResult,
    *,
    dial: float,
    grid: Sequence[float] | np.ndarray | None = None,
    recommendation: Recommendation | None = None,
    checks: Sequence[TimingCheck] = (),
    beside: Sequence[Advised] = (),
    how: Bootstrap = DEFAULT,
) -> dict[str, bytes]:
    """The evidence for `dial`, a file each: evidence.md, evidence.json, summary.csv (a line each for the target alone,
    strict and the setting), grid.csv (a line a dial value), engines.csv (a line a definition of acceptance) and
    prompts.csv (a line a prompt); with `beside` setting_grid.csv as well (a line a variant and dial value).

    `grid` are the dial values of the table (None: evenly spaced ones), `checks` the sweep's wall-clock checks, `beside`
    the sweeps of the rule's other variants. Raises BadInput for a dial value outside the sweep, and for sweeps that are
    no grid.
    """
    options: dict[str, Any] = {"grid": grid, "recommendation": recommendation, "checks": checks, "beside": beside}
    found = plain(evidence_of(result, dial, **options, how=how))
    files = {
        "evidence.md": markdown(found),
        "evidence.json": json_of(found, indent=1, escaped=False) + "\n",
        "summary.csv": summary_csv(found),
        "grid.csv": grid_csv(found["grid"]),
        "engines.csv": engines_csv(found["engines"]),
        "prompts.csv": prompts_csv(result, dial),
    }
    if found["setting_grid"] is not None:
        files["setting_grid.csv"] = setting_grid_csv(found["setting_grid"])
    return {name: text.encode() for name, text in files.items()}


def write_evidence(folder: str | PathLike[str], result: SweepResult, *, dial: float, **options: Any) -> Path:
    """Write the files to a new folder and return its path.

    Takes the options of `evidence_files`. Raises BadInput as it does, where something of that name exists, and where
    the disk refuses.
    """
    path = Path(folder)
    check_free(path)
    write_folder(evidence_files(result, dial=dial, **options), path)
    return path


def evidence_zip(result: SweepResult, *, dial: float, **options: Any) -> bytes:
    """The same as a zip that holds one folder: the same bytes for the same evidence."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in evidence_files(result, dial=dial, **options).items():
            archive.writestr(zipfile.ZipInfo(f"evidence/{name}"), data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()
