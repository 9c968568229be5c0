"""What the lessons measure, as it comes with the product: whole, the product's own, and none is no fault."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from mars_viz import samples
from mars_viz.errors import BadInput
from mars_viz.speculators.backend import Backend
from mars_viz.ui.jobs import tasks
from mars_viz.ui.lessons.why import MEASURED


@pytest.fixture(autouse=True)
def on(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the samples, whatever the environment says."""
    monkeypatch.delenv(samples.VARIABLE, raising=False)


def test_the_passes_that_come_along_tell_the_lessons_point():
    costs = samples.recorded_costs()
    assert costs is not None and costs.gamma == MEASURED
    assert (costs.target, costs.drafter) == ("built-in/target", "built-in/drafter")
    times = [each.seconds for each in costs.target_pass]
    assert times[-1] < 2 * times[0], "nine positions take little more time than one"
    assert costs.drafter_step.seconds < times[0]


def test_the_exercises_that_come_along_lose_answers_where_it_is_loose():
    graded = samples.recorded_grades()
    assert graded is not None and graded.exercises == 300
    strict, loose = (float(graded.right.at(theta)) for theta in (1.0, 0.5))
    assert loose < 0.9 * strict and 0.9 * graded.exercises < strict < graded.exercises


@pytest.mark.long
def test_what_comes_along_is_what_the_pair_does(pair: Backend):
    *_, last = tasks.grade(pair, 100)
    graded = samples.recorded_grades()
    assert graded is not None and last.result.exercises == graded.exercises
    found, recorded = last.result.right.simplified(), graded.right.simplified()
    assert found.edges == pytest.approx(recorded.edges, abs=1e-5)
    assert found.values.tolist() == recorded.values.tolist()


def test_exercises_in_free_wording_are_graded_in_turn(pair: Backend):
    steps = [step.result for step in tasks.grade(pair, 1)]
    assert [step and step.exercises for step in steps] == [1, 2, 3]
    right = steps[-1].right
    assert right.low == 0.5 and right.at(1.0) <= 3


NUMBERS = {"exercises": 3, "edges": [0, 1], "right": [2]}
WRONG = {
    "exercises": ["many", 0, 2.5, 10**400],
    "edges": [[1, 0], [[0, 1]]],
    "right": [[1, 2], [4], ["x"], [[1], [2]], [[1, 2]], [2.5], 2, [10**400], [None]],
}


@pytest.mark.parametrize(
    "found", [None, [], {"exercises": 3}, *(NUMBERS | {name: value} for name in WRONG for value in WRONG[name])]
)
def test_bad_grades_are_refused(found):
    with pytest.raises(BadInput):
        samples.graded_from(found)


def test_without_files_or_samples_a_lesson_does_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(samples.VARIABLE, "off")
    assert samples.recorded_costs() is None and samples.recorded_grades() is None
    monkeypatch.delenv(samples.VARIABLE)
    monkeypatch.setattr(samples, "MEASURED", tmp_path)
    assert samples.recorded_costs() is None and samples.recorded_grades() is None
    (tmp_path / samples.COSTS).write_text("{not json", encoding="utf-8")
    (tmp_path / samples.GRADED).write_text('{"exercises": []}', encoding="utf-8")
    assert samples.recorded_costs() is None and samples.recorded_grades() is None


def recorded(name: str) -> str:
    return (samples.MEASURED / name).read_text("utf-8")


DAMAGED = {
    samples.COSTS: (
        recorded(samples.COSTS).replace('"repeats": ', '"repeats": Infinity, "was": '),
        recorded(samples.COSTS).replace('"repeats": ', '"repeats": 1e999, "was": '),
        recorded(samples.COSTS).replace('"seconds": 0.', f'"seconds": 1{"0" * 400}, "was": 0.', 1),
        recorded(samples.COSTS).replace('"seconds": 0.', f'"seconds": 1{"0" * 5000}, "was": 0.', 1),
        recorded(samples.COSTS).replace('"seconds": 0.', '"seconds": 0, "was": 0.', 1),
        recorded(samples.COSTS).replace('"seconds": 0.', '"seconds": -0.', 1),
        recorded(samples.COSTS)[:-5],
        recorded(samples.COSTS).replace('"repeats": ', '"repeats": 3, "was": '),
        "[" * 100_000,
    ),
    samples.GRADED: (
        recorded(samples.GRADED).replace("282.0", "[282.0]"),
        recorded(samples.GRADED).replace("282.0", "282.5"),
        recorded(samples.GRADED).replace("282.0", "NaN"),
        recorded(samples.GRADED).replace("300", "3"),
        json.dumps({"exercises": 3, "edges": [0, 1], "right": [[1], [2]]}),
        '{"exercises": ' * 100_000,
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_as_good_as_none_and_a_whole_one_is_read(name, tmp_path: Path, monkeypatch):
    whole = {each: recorded(each) for each in DAMAGED}
    for place, text in enumerate(DAMAGED[name]):
        assert text != whole[name]
        (folder := tmp_path / str(place)).mkdir()  # the text of a path is read once
        monkeypatch.setattr(samples, "MEASURED", folder)
        (folder / name).write_text(text, encoding="utf-8")
        assert samples.recorded_costs() is None and samples.recorded_grades() is None
    (folder := tmp_path / "whole").mkdir()
    monkeypatch.setattr(samples, "MEASURED", folder)
    for each, text in whole.items():
        (folder / each).write_text(text, encoding="utf-8")
    costs, graded = samples.recorded_costs(), samples.recorded_grades()
    later = {"tree": "chain", "drafting": [], "passes_per_token": 1.0}  # fields that older files lack
    assert json.loads(json.dumps(asdict(costs))) == json.loads(whole[samples.COSTS]) | later
    assert samples.as_json(graded) == json.loads(whole[samples.GRADED])
