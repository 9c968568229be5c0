"""Where runs, races and sweeps are kept: where the environment says, or in folders of the user's own. Knows paths."""

from __future__ import annotations

import os
from pathlib import Path

RUNS = "MARS_VIZ_RUNS"
"""Names the folder of live runs."""
SWEEPS = "MARS_VIZ_SWEEPS"
"""Names another folder for sweeps' results."""


def runs() -> Path:
    """The folder that the variable names, or one for programs' data in the user's home."""
    named = os.environ.get(RUNS)
    if named:
        return Path(named)
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "mars-viz" / "runs"


def races() -> Path:
    """Beside the runs."""
    return runs() / "races"


def sweeps() -> Path:
    """The folder that the variable names, or one in the user's home."""
    return Path(os.environ.get(SWEEPS) or Path.home() / "mars-viz" / "sweeps").absolute()
