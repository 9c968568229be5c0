"""The samples that come with the product: where recorded runs, races and sweeps lie, whether they are wanted, and what
the lessons measure and grade on request, done once.

Knows paths, costs and steps; measures nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from mars_viz.analysis.steps import Steps
from mars_viz.costs import Costs, costs_from, objection
from mars_viz.errors import BadInput, RunFileError
from mars_viz.runfiles.manifest import strict_json

_ROOT = Path(__file__).parents[1]
RUNS = _ROOT / "sample_runs"
"""A folder a run."""
MEASURED = _ROOT / "sample_measurements"
"""What the lessons measure, measured once."""
RACES = _ROOT / "sample_races"
"""A folder a race."""
SWEEPS = _ROOT / "sample_sweeps"
"""A folder a sweep."""
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


def is_sample_sweep(folder: Path) -> bool:
    """True of the folder of a sweep that comes with the product, into which nothing is written."""
    return folder.parent == SWEEPS


COSTS = "costs.json"
"""Of the built-in pair's passes."""
GRADED = "graded.json"
"""Exercises of the built-in pair that are right, along θ."""
_AGAIN = "Grade them again: python benchmarks/lessons.py."


@dataclass(frozen=True, slots=True)
class GradedExercises:
    """So many exercises, graded at every θ."""

    exercises: int
    """How many."""
    right: Steps
    """How many of them are right, along θ; whole numbers [S]."""


def recorded_costs() -> Costs | None:
    """The passes; None where there are none that can be read and believed, for the lesson can do without."""
    try:
        costs = costs_from(_read(MEASURED / COSTS))
    except BadInput:
        return None
    return None if objection(costs) else costs


def recorded_grades() -> GradedExercises | None:
    """The exercises; None likewise."""
    try:
        return graded_from(_read(MEASURED / GRADED))
    except BadInput:
        return None


def as_json(graded: GradedExercises) -> dict[str, Any]:
    """What `graded_from` reads."""
    right = graded.right.simplified()
    return {"exercises": graded.exercises, "edges": right.edges.tolist(), "right": right.values.tolist()}


def graded_from(found: Any) -> GradedExercises:
    """Graded exercises from what JSON made of `as_json`. Raises BadInput for anything else."""
    try:
        exercises = found["exercises"]
        right = np.array(found["right"], np.float64)
        edges = np.array(found["edges"], np.float64)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise RunFileError(f"The graded exercises cannot be read. {_AGAIN}") from error
    if type(exercises) is not int or right.ndim != 1:
        raise RunFileError(f"The graded exercises cannot be read. {_AGAIN}")
    if not (0 < exercises < 2**53 and ((right >= 0) & (right <= exercises) & (right == np.floor(right))).all()):
        raise RunFileError(f"The graded exercises contradict each other. {_AGAIN}")
    return GradedExercises(exercises, Steps(edges, right))


def _read(path: Path) -> Any:
    if not wanted():
        raise RunFileError(f"The samples are left out: {VARIABLE} is off.")
    return _parsed(path)


@cache
def _parsed(path: Path) -> Any:
    try:
        return strict_json(path.read_bytes(), path.name)
    except OSError as error:
        raise RunFileError(f"{path} cannot be read. Make it again: python benchmarks/lessons.py.") from error
