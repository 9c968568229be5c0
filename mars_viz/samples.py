"""Where the recorded runs and races lie that come with the product, and whether they are wanted. Knows paths."""

from __future__ import annotations

import os
from pathlib import Path

_ROOT = Path(__file__).parents[1]
RUNS = _ROOT / "sample_runs"
"""A folder a run."""
MEASURED = _ROOT / "sample_measurements"
"""What the lessons measure, measured once."""
RACES = _ROOT / "sample_races"
"""A folder a race."""
VARIABLE = "MARS_VIZ_SAMPLES"
"""Of the environment; "off" leaves the samples out."""


def wanted() -> bool:
    """False where the environment leaves them out."""
    return os.environ.get(VARIABLE) != "off"
