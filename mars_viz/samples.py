"""Where the recorded runs and races lie that come with the product. Knows paths."""

from __future__ import annotations

from pathlib import Path

_ROOT = Path(__file__).parents[1]
RUNS = _ROOT / "sample_runs"
"""A folder a run."""
RACES = _ROOT / "sample_races"
"""A folder a race."""
