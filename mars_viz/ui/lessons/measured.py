"""What the lessons measure on request, as it was measured once and comes with the product: passes and graded exercises.

`python benchmarks/lessons.py` makes these files. Knows their place and form; knows no Streamlit and no models.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from mars_viz import samples
from mars_viz.analysis.steps import Steps
from mars_viz.costs import Costs, costs_from
from mars_viz.errors import BadInput
from mars_viz.ui.jobs.exercises import Graded

COSTS = "costs.json"
"""Of the built-in pair's passes."""
GRADED = "graded.json"
"""Exercises of the built-in pair that are right, along θ."""


def recorded_costs() -> Costs | None:
    """The passes; None where there are none that can be read, for the lesson can do without."""
    try:
        return costs_from(_read(samples.MEASURED / COSTS))
    except BadInput:
        return None


def recorded_grades() -> Graded | None:
    """The exercises; None likewise."""
    try:
        return graded_from(_read(samples.MEASURED / GRADED))
    except BadInput:
        return None


def as_json(graded: Graded) -> dict[str, Any]:
    """What `graded_from` reads."""
    right = graded.right.simplified()
    return {"exercises": graded.exercises, "edges": right.edges.tolist(), "right": right.values.tolist()}


def graded_from(found: Any) -> Graded:
    """Graded exercises from what JSON made of `as_json`. Raises BadInput for anything else."""
    try:
        exercises = int(found["exercises"])
        right = Steps(np.array(found["edges"], np.float64), np.array(found["right"], np.float64))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise BadInput(
            "The graded exercises cannot be read. Grade them again: python benchmarks/lessons.py."
        ) from error
    if exercises < 1 or not ((right.values >= 0) & (right.values <= exercises)).all():
        raise BadInput("The graded exercises contradict each other. Grade them again: python benchmarks/lessons.py.")
    return Graded(exercises, right)


def _read(path: Path) -> Any:
    if not samples.wanted():
        raise BadInput(f"The samples are left out: {samples.VARIABLE} is off.")
    return _parsed(path)


@cache
def _parsed(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read. Make it again: python benchmarks/lessons.py.") from error
