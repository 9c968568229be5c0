"""What the lessons measure, as it comes with the product: whole, the product's own, and none is no fault."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from mars_viz import samples
from mars_viz.analysis.steps import Steps
from mars_viz.errors import BadInput
from mars_viz.ui.jobs.exercises import Graded, grade
from mars_viz.ui.lessons import measured
from mars_viz.ui.lessons.why import MEASURED


@pytest.fixture(autouse=True)
def on(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the samples, whatever the environment says."""
    monkeypatch.delenv(samples.VARIABLE, raising=False)


def test_the_passes_that_come_along_tell_the_lessons_point():
    costs = measured.recorded_costs()
    assert costs is not None and costs.gamma == MEASURED
    assert (costs.target, costs.drafter) == ("built-in/target", "built-in/drafter")
    times = [each.median for each in costs.target_pass]
    assert times[-1] < 2 * times[0], "nine positions take little more time than one"
    assert costs.drafter_step.median < times[0]


def test_the_exercises_that_come_along_lose_answers_where_it_is_loose():
    graded = measured.recorded_grades()
    assert graded is not None and graded.exercises == 300
    strict, loose = (float(graded.right.at(theta)) for theta in (1.0, 0.5))
    assert loose < strict < graded.exercises and strict > 0.95 * graded.exercises


def test_what_comes_along_is_what_the_pair_does():
    """A few of the exercises again, in the order in which all of them were graded: where all of them are right at every
    θ of the few, the recorded count of wrong ones must leave room for that."""
    load_pair = pytest.importorskip("mars_viz.speculators.loading").load_pair
    graded, few = measured.recorded_grades(), 2
    assert graded is not None
    *_, last = islice(grade(load_pair(device="cpu"), few), 3 * few)
    assert last.result.exercises == 3 * few
    for theta in (0.5, 0.7, 0.9, 1.0):
        wrong = 3 * few - float(last.result.right.at(theta))
        assert 0 <= wrong <= graded.exercises - float(graded.right.at(theta))


def test_written_and_read_again_they_are_the_same():
    graded = Graded(7, Steps(np.array([0.5, 0.75, 0.9, 1.0]), np.array([5.0, 5.0, 7.0])))
    again = measured.graded_from(json.loads(json.dumps(measured.as_json(graded))))
    assert again.exercises == 7 and [float(again.right.at(at)) for at in (0.5, 0.8, 0.9, 1.0)] == [5, 5, 7, 7]


@pytest.mark.parametrize(
    "found",
    [
        None,
        [],
        {"exercises": 3},
        {"exercises": "many", "edges": [0, 1], "right": [1]},
        {"exercises": 3, "edges": [0, 1], "right": [1, 2]},
        {"exercises": 3, "edges": [1, 0], "right": [1]},
        {"exercises": 3, "edges": [0, 1], "right": [4]},
        {"exercises": 3, "edges": [0, 1], "right": ["x"]},
        {"exercises": 0, "edges": [0, 1], "right": [0]},
    ],
)
def test_what_is_no_grading_is_a_line_with_the_remedy(found):
    with pytest.raises(BadInput, match="benchmarks/lessons.py|Give one edge|that ascend"):
        measured.graded_from(found)


def test_without_files_or_samples_a_lesson_does_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(samples.VARIABLE, "off")
    assert measured.recorded_costs() is None and measured.recorded_grades() is None
    monkeypatch.delenv(samples.VARIABLE)
    monkeypatch.setattr(samples, "MEASURED", tmp_path)
    assert measured.recorded_costs() is None and measured.recorded_grades() is None
    (tmp_path / measured.COSTS).write_text("{not json", encoding="utf-8")
    (tmp_path / measured.GRADED).write_text('{"exercises": []}', encoding="utf-8")
    assert measured.recorded_costs() is None and measured.recorded_grades() is None
