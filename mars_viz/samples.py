"""Where the recorded runs and races lie that come with the product, and whether they are wanted. Knows paths."""

from __future__ import annotations

import os
from pathlib import Path

from mars_viz.errors import RunFileError

_ROOT = Path(__file__).parents[1]
RUNS = _ROOT / "sample_runs"
"""A folder a run."""
MEASURED = _ROOT / "sample_measurements"
"""What the lessons measure, measured once."""
RACES = _ROOT / "sample_races"
"""A folder a race."""
VARIABLE = "MARS_VIZ_SAMPLES"
"""Of the environment; "off" leaves the samples out, a folder's name puts the runs in it in their place."""
_OURS = ("", "on")


def wanted() -> bool:
    """False where the environment leaves them out, or puts others in their place."""
    return os.environ.get(VARIABLE, "") in _OURS


def runs_folder() -> Path | None:
    """Where the sample runs lie; None where there are none. Raises BadInput where the variable names no folder."""
    named = os.environ.get(VARIABLE, "")
    if named == "off":
        return None
    folder = RUNS if named in _OURS else Path(named)
    if not folder.is_dir():
        raise RunFileError(f"{VARIABLE} names no folder of runs here. Set it to one, or to off for no samples.")
    return folder
