"""Default folders of runs, races and sweeps, from environment variables or in the user's home."""

import os
from pathlib import Path

RUNS = "MARS_VIZ_RUNS"  # environment variable with the folder of saved runs
SWEEPS = "MARS_VIZ_SWEEPS"  # environment variable with the folder of sweeps


def runs() -> Path:
    """Return the folder in the variable, or a data folder in the user's home."""
    named = os.environ.get(RUNS)
    if named:
        return Path(named)
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "mars-viz" / "runs"


def races() -> Path:
    """Return the folder of races, inside the folder of runs."""
    return runs() / "races"


def sweeps() -> Path:
    """Return the folder in the variable, or one in the user's home."""
    return Path(os.environ.get(SWEEPS) or Path.home() / "mars-viz" / "sweeps").absolute()
