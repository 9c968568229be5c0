"""Sample runs, races, sweeps and measurements that ship with the product."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from mars_viz.analysis.intervals import Steps
from mars_viz.bounds import parsed, strict_json
from mars_viz.costs import Costs, costs_from, objection
from mars_viz.errors import BadInput, RunFileError, disk_refusals

_ROOT = Path(__file__).parents[1]
RUNS = _ROOT / "sample_runs"  # a folder per run
MEASURED = _ROOT / "sample_measurements"  # recorded measurements of the lessons
RACES = _ROOT / "sample_races"  # a folder per race
SWEEPS = _ROOT / "sample_sweeps"  # a folder per sweep
VARIABLE = "MARS_VIZ_SAMPLES"  # environment variable: "off" disables the samples, a folder replaces the sample runs
_OURS = ("", "on")


def wanted() -> bool:
    """False if the environment disables or replaces the samples."""
    return os.environ.get(VARIABLE, "") in _OURS


def runs_folder() -> Path | None:
    """Return the folder of sample runs, or None. Raises BadInput if the variable is not a folder."""
    named = os.environ.get(VARIABLE, "")
    if named == "off":
        return None
    folder = RUNS if named in _OURS else Path(named)
    if not folder.is_dir():
        raise RunFileError(f"{VARIABLE} names no folder of runs here. Set it to one, or to off for no samples.")
    return folder


def is_sample_sweep(folder: Path) -> bool:
    """True for the read-only folder of a shipped sweep."""
    return folder.parent == SWEEPS


COSTS = "costs.json"  # costs of the built-in pair's passes
GRADED = "graded.json"  # correct exercises of the built-in pair by θ


@dataclass(frozen=True, slots=True)
class GradedExercises:
    """Exercises graded at every θ."""

    exercises: int  # number of exercises
    right: Steps  # number of correct ones by θ; integers [S]


def recorded_costs() -> Costs | None:
    """Return the recorded costs; None if they are unreadable or implausible."""
    with suppress(BadInput):
        costs = costs_from(_parsed(MEASURED / COSTS))
        return costs if wanted() and not objection(costs) else None
    return None


def recorded_grades() -> GradedExercises | None:
    """Return the graded exercises; None if they are unreadable."""
    with suppress(BadInput):
        return graded_from(_parsed(MEASURED / GRADED)) if wanted() else None
    return None


@dataclass(frozen=True, slots=True)
class _Grades:
    """The JSON of graded exercises."""

    exercises: int
    edges: tuple[float, ...]
    right: tuple[float, ...]


def as_json(graded: GradedExercises) -> dict[str, Any]:
    """Return the JSON that `graded_from` reads."""
    right = graded.right.simplified()
    return {"exercises": graded.exercises, "edges": right.edges.tolist(), "right": right.values.tolist()}


def graded_from(found: Any) -> GradedExercises:
    """Return graded exercises from the JSON of `as_json`. Raises BadInput for anything else."""
    grades = parsed(_Grades, found, GRADED)
    right = np.array(grades.right, np.float64)
    if not (grades.exercises and (right <= grades.exercises).all() and (right == np.floor(right)).all()):
        raise RunFileError("The graded exercises are impossible. Grade them again: python benchmarks/lessons.py.")
    return GradedExercises(grades.exercises, Steps(np.array(grades.edges, np.float64), right))


@cache
def _parsed(path: Path) -> Any:
    with disk_refusals(path, "read", "Make it again: python benchmarks/lessons.py.", RunFileError):
        return strict_json(path.read_bytes(), path.name)
