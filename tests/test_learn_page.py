"""The Learn page in AppTest, without models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from mars_viz.analysis.rulings import changed, moved, opinion, own_dial, ruling
from mars_viz.costs import Cost, Costs
from mars_viz.errors import BadInput
from mars_viz.exploration import Budget, mapped
from mars_viz.records import first_difference
from mars_viz.rules import RULES
from mars_viz.run import Run
from mars_viz.runstore import read
from mars_viz.ui import tab_jobs
from mars_viz.ui.jobs import tasks
from mars_viz.ui.jobs.models import Models
from mars_viz.ui.jobs.worker import Worker, pickled
from mars_viz.ui.lessons import LESSONS, base, ratio, theta
from mars_viz.ui.lessons.base import LessonView, fitted
from mars_viz.ui.links import from_parameters, to_parameters
from tests import tabs
from tests.factories import toy_map, toy_run
from tests.tabs import address, press, said, sent, settled, titles, wait

EVERY = range(1, len(LESSONS) + 1)
WATCHED = "Exact: the decisions of this text."  # the caption of the stepper


def with_map(title: str, **settings: object) -> Run:
    run = replace(toy_run(**{"dial": 0.9, "max_new_tokens": 30, **settings}), title=title)
    return mapped(run, toy_map(replace(run.settings, dial=None), 0.5, None, (2, 6))[0])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mapped greedy run and a sampled one."""
    path = tmp_path_factory.mktemp("runs")
    hostile = {i: b"<script>x" for i in range(5, 15)}
    with_map("Greedy", pieces=hostile).save(path / "a-greedy")
    sampled = toy_run(rule="rejection-sampling", temperature=1.0, max_new_tokens=30, pieces=hostile)
    replace(sampled, title="Sampled").save(path / "b-sampled")
    return path


@pytest.fixture(autouse=True)
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page with these runs, and a worker without models."""
    monkeypatch.setenv("MARS_VIZ_RUNS", str(folder))
    monkeypatch.setenv("MARS_VIZ_SAMPLES", str(folder))
    worker = Worker(Models(lambda choice, tell: object()))
    monkeypatch.setattr(tab_jobs, "shared_worker", lambda: worker)


def opened(**parameters: str) -> AppTest:
    return tabs.opened("pages/learn.py", **parameters)


def element(tab: AppTest) -> Any:
    """What the lesson's element was sent."""
    return next(data[0] for data in sent(tab) if "knobs" in data[0])


@pytest.mark.parametrize("number", EVERY)
def test_every_lesson_opens_on_a_run_that_serves_it(number):
    tab, lesson = opened(lesson=str(number)), LESSONS[number - 1]
    assert f"{number} · {lesson.title}" in said(tab) and lesson.point.split("'")[0] in said(tab)
    assert all(paragraph in said(tab) for paragraph in lesson.text) and lesson.answer in said(tab)
    assert address(tab)["lesson"] == str(number) and all(titles(tab)) and "<script>" not in said(tab)
    assert (lesson.whole_width or element(tab)["knobs"]) and pickled(lesson.measured)  # for the model process


def test_counts_of_the_shift_and_texts_of_the_dial_are_those_of_the_run(folder):
    figure, run = element(opened(lesson="5", run="a-greedy"))["figure"], read(folder / "a-greedy")
    for name, told in zip(ratio.COMPARED, figure["rules"], strict=True):
        asked = ruling(opinion(RULES[name], run), own_dial(run, RULES[name]))
        for c in (-40, -8, 0, 3, 40):
            assert told["changes"][c + figure["reach"]] == np.count_nonzero(
                changed(asked, moved(run.trace.speculations, float(c)))
            )
    figure, run = element(opened(lesson="6", run="a-greedy"))["figure"], read(folder / "a-greedy")
    assert len(figure["segments"]) > 1 and figure["prompt"] == run.prompt and figure["segments"][-1]["other"] == ""
    for told in figure["segments"]:
        text = run.decode(run.dial_map.segment(told["low"], 6).token_ids)
        assert told["same"] + told["other"] == text and "strict text" in told["words"]


def cut_short(budget: Budget) -> Run:
    """A mapped exercise whose map was cut short."""
    run = replace(toy_run(dial=0.9, max_new_tokens=30), prompt="Add 12 and 34.")
    return mapped(run, toy_map(replace(run.settings, dial=None), 0.5, None, (2, 6), budget)[0])


def test_an_incomplete_strict_text_is_marked_and_no_incomplete_text_is_wrong():
    run = cut_short(Budget())
    *_, loose, strict = run.dial_map.segments_for(6)
    same = first_difference(loose.token_ids, strict.token_ids)
    rounds = next(n for n in range(len(strict.rounds)) if sum(len(r.token_ids) for r in strict.rounds[: n + 1]) > same)
    before, after = (replace(strict, rounds=strict.rounds[: rounds + n], complete=False) for n in (0, 1))
    told = theta.written(run, loose, before, None)
    assert told["words"] == "The strict text was cut short." and told["other"] == ""
    assert told["same"] == run.decode(loose.token_ids) and told["tau"] == loose.tau
    assert f"from token {same + 1} on (marked)" in theta.written(run, loose, after, None)["words"]


def test_maps_that_are_cut_short_or_begin_off_the_dials_steps(tmp_path, monkeypatch):
    monkeypatch.setenv("MARS_VIZ_RUNS", str(tmp_path))
    run = cut_short(Budget(passes=2))
    assert not run.dial_map.segment(1.0, 6).complete and len(run.dial_map.segments_for(6)) > 1
    run.save(tmp_path / "cut")
    shown = element(opened(lesson="6", run="cut", dial="1", frame="3"))
    assert shown["figure"]["strictTau"] is None and shown["position"] == {"dial": 1.0}
    toy_run(dial=0.0, max_new_tokens=30).save(tmp_path / "loose")
    assert element(opened(lesson="5", run="loose"))["figure"]["theta"] == 0.0
    run = toy_run(dial=0.987, max_new_tokens=30)
    mapped(run, toy_map(replace(run.settings, dial=None), 0.503, None, (6,))[0]).save(tmp_path / "off")
    for dial in ("0.503", "0.987"):
        link = {"run": "off", "lesson": "6", "dial": dial, "frame": "2"}
        tab = opened(**link)
        assert element(tab)["position"] == {"dial": float(dial)} and address(tab) == link


@pytest.mark.parametrize(
    "link",
    [
        {"run": "a-greedy", "lesson": "6", "dial": "0.7", "frame": "5", "teach": "1"},
        {"run": "a-greedy", "lesson": "1", "alpha": "0.4", "block": "3", "cost": "0.2"},
        {"run": "a-greedy", "lesson": "5", "shift": "-7"},
        {"run": "a-greedy", "lesson": "2", "drafted": "2", "frame": "3"},
    ],
)
def test_a_link_opens_the_same_lesson_step_dial_and_knobs(link):
    tab = opened(**link)
    assert address(tab) == link
    knobs = {name: float(value) for name, value in link.items() if name in base.KNOBS or name == "dial"}
    assert element(tab)["position"] == knobs


def test_knobs_of_a_link_are_those_of_the_lesson_and_teacher_mode_hides_the_controls():
    for lesson, knob, asked, got in (("2", "drafted", "77", 6), ("5", "shift", "lots", -8)):
        tab = opened(lesson=lesson, run="a-greedy", **{knob: asked})
        assert element(tab)["position"] == {knob: got} and knob not in address(tab)
    settled(tab.button_group(key="learn-lesson").set_value(2).run())
    assert "shift" not in address(tab) and address(tab)["lesson"] == "2"
    assert int(address(opened(run="a-greedy", frame="99999"))["frame"]) < 500
    tab = opened()
    assert address(tab) == {"run": "a-greedy"} and WATCHED in said(tab)
    assert settled(tab.button_group(key="learn-lesson").set_value(3).run()).selectbox(key="run").value == "b-sampled"
    tab = opened(lesson="2", run="a-greedy", teach="1")
    assert not tab.selectbox and LESSONS[1].text[0] not in said(tab)
    press(tab, "›")
    assert address(tab)["lesson"] == "3" and address(tab)["teach"] == "1"
    press(tab, "Exit")
    assert "teach" not in address(tab) and tab.selectbox(key="run").value == "b-sampled"
    moved = LessonView(1, knobs={"alpha": 0.4, "block": 3.0})
    for view in (LessonView(), LessonView(3, 7, 0.925, True), LessonView(0, 0, None, False), moved):
        assert from_parameters(LessonView, to_parameters(view, run="x")).view == view and len(LESSONS) == base.LESSONS
    assert fitted(LessonView(2, 4, 0.3), toy_run()).view == LessonView(2, 4, 0.3)


def test_a_bad_link_is_a_sentence_and_the_page():
    for link, sentence in (
        ({"lesson": "9"}, "is none of 1 to 7"),
        ({"lesson": "<script>"}, "is none of 1 to 7"),
        ({"dial": "lots"}, "is no number"),
        ({"dial": "7"}, "lies outside 0 to 1"),
        ({"run": "b-sampled", "dial": "0.9"}, "has none"),
        ({"run": "../../etc"}, "no run of the link"),
    ):
        tab = opened(**link)
        assert sentence in said(tab) and "<script>" not in said(tab) and WATCHED in said(tab)


SPREAD = Cost(0.002, 0.001, 0.003)
COSTS = Costs("a device", "float32", "t", "d", 64, 30, (SPREAD,) * 9, Cost(0.0005, 0.0004, 0.0006), (SPREAD,) * 8)


def test_costs_are_measured_on_request_and_drawn(monkeypatch):
    monkeypatch.setattr(tasks, "measure", Mock(side_effect=BadInput("The models are missing")))
    tab = wait(press(opened(lesson="1", run="a-greedy"), "Measure"), "Stop")
    assert "The models are missing" in said(tab) and not titles(tab)
    monkeypatch.setattr(tasks, "measure", lambda settings, pair: iter([(1.0, COSTS)]))
    tab = wait(press(opened(lesson="1", run="a-greedy"), "Measure"), "Stop")
    assert "Reading 9 positions at once costs 1 (0.45 to 2.23) times as much as reading one (measured)" in titles(tab)
    assert "The built-in pair, measured here, a device" in said(tab)


def test_recorded_measurements_are_shown_by_default_but_no_grades_of_another_rule(tmp_path, monkeypatch):
    monkeypatch.delenv("MARS_VIZ_SAMPLES")
    tab = opened(lesson="1", run="a-greedy")
    assert any("Reading 9 positions at once" in title for title in titles(tab)) and "The built-in pair, " in said(tab)
    tab = opened(lesson="6", run="a-greedy")
    assert any("of 300 exercises are right at θ = 0.90" in title for title in titles(tab))
    monkeypatch.setenv("MARS_VIZ_RUNS", str(tmp_path))
    with_map("Other", rule="mars-code", temperature=0.8, dial=0.7).save(tmp_path / "other")
    tab = opened(lesson="6", run="other")
    assert titles(tab) == [] and "300 exercises" not in said(tab)
    assert "Exercises are graded with MARS alone" in said(tab)
