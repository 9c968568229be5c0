"""The Tune page: in AppTest, once with the built-in pair, and once in Chromium."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import streamlit as st
from harness_tasks import FLEXIBLE, STRICT, gsm8k_form
from playwright.sync_api import expect
from streamlit.testing.v1 import AppTest
from sweep_cases import BATCHES, SETTINGS, sweep_over, timing, toy_prompts, toy_sweep

from mars_viz import default_folders, locks, samples
from mars_viz.analysis.intervals import Bootstrap, Method
from mars_viz.analysis.recommendation import two_digits
from mars_viz.axis import Span
from mars_viz.errors import BadInput, SettingError
from mars_viz.prompts import builtin_prompts, harness, load_prompts, load_task, per_task, to_jsonl
from mars_viz.records import Policy
from mars_viz.sweep import Sweep, load_sweep, measures, value_at
from mars_viz.sweep.measures import Terms, cell
from mars_viz.sweep.measures import places as measured_places
from mars_viz.sweep.report import CachedSweep
from mars_viz.sweep.store import list_sweeps, open_store
from mars_viz.sweep.wall_clock import keep_check, kept_checks
from mars_viz.ui import tab_jobs, visitors
from mars_viz.ui.jobs.models import Job, JobState, Models
from mars_viz.ui.jobs.worker import Worker
from mars_viz.ui.links import Opened, from_parameters, to_parameters
from mars_viz.ui.tune import detail, form, sweep_requests
from mars_viz.ui.tune.catalogue import KEY, ShownResults, Sweeping, TuneView, jobs_in, sample_sweeps, shelf, sweep_job
from mars_viz.ui.tune.detail import readings
from mars_viz.words import exactly, number
from tests import tabs
from tests.factories import until
from tests.tables import table_backend
from tests.tabs import ROOT, captions, keys, notes, press, sent, settled, titles


@pytest.fixture(scope="module")
def swept(tmp_path_factory) -> Path:
    """Two finished sweeps that can be compared, an ungraded one, one that is not finished, and a broken one."""
    folder = tmp_path_factory.mktemp("sweeps")
    toy_sweep(folder / "a-mars", 8).finish()
    toy_sweep(folder / "b-margin", 8, replace(SETTINGS, rule="mars-margin")).finish()
    toy_sweep(folder / "c-ungraded", 3, graded=False).finish()
    next(now for now in toy_sweep(folder / "d-half", 5) if now.finished == 2)
    (folder / "e-broken").mkdir()
    (folder / "e-broken" / "sweep.json").write_text("{}")
    return folder


@pytest.fixture
def folder(swept: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(default_folders.SWEEPS, str(swept))
    return swept


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Collects what would begin or go on: requests for new sweeps, jobs, and names with the prompts to add."""
    found: list[Any] = []
    monkeypatch.setattr(sweep_requests, "begin", lambda request, *_: found.append(request) or ["none"])
    monkeypatch.setattr(sweep_requests, "go_on", lambda entry, _, more=None: found.append((entry.path.name, more)))
    return found


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for results that is not there yet, and no samples."""
    monkeypatch.setenv(default_folders.SWEEPS, str(tmp_path / "results"))
    monkeypatch.setenv(samples.VARIABLE, "off")
    return tmp_path / "results"


def opened(**parameters: str) -> AppTest:
    """A fresh tab on a link to the page."""
    return tabs.opened("pages/tune.py", **parameters)


def own_file(data: str, grader: str = "") -> AppTest:
    """The form for an uploaded file of prompts, and the file."""
    tab = opened()
    tab.segmented_control(key="sweep-source").set_value("My own file")
    settled(tab.run())
    if data:
        tab.file_uploader(key="sweep-file").set_value(("prompts.jsonl", data.encode(), "application/json"))
    if grader:
        tab.selectbox(key="sweep-grader").select(grader)
    return settled(tab.run())


def element(tab: AppTest) -> dict[str, Any]:
    """What the dial's element was last sent."""
    ((found,),) = sent(tab)
    return found


def dialled(tab: AppTest, monkeypatch: pytest.MonkeyPatch, value: float) -> AppTest:
    """The tab after the hand has come to rest at this dial value."""
    with monkeypatch.context() as patched:
        patched.setattr(detail, "lesson_figure", lambda *_, **__: {"dial": value})
        settled(tab.run())
    return settled(tab.run())


def section(tab: AppTest, place: int) -> AppTest:
    """The tab with one of the folded parts open."""
    tab.session_state[f"tune-section-{place}"] = True
    return settled(tab.run())


def frames(tab: AppTest) -> list[Any]:
    """The tables of the page, but for that of the tasks, which is open from the start."""
    return [each for each in tab.dataframe if "task" not in each.value.columns]


def test_a_first_visit_offers_a_sweep_and_shows_the_folder_only_to_those_who_may_name_paths(empty, monkeypatch):
    for may in (True, False):
        monkeypatch.setattr(visitors, "may_name_paths", lambda may=may: may)
        tab = opened()
        assert "sweep-first" in keys(tab) and not titles(tab) and not empty.exists()
        assert (str(empty) in notes(tab)) == (tab.text_input(key="sweep-folder").placeholder == str(empty)) == may


def test_a_sweep_opens_at_the_recommended_setting_and_the_dial_changes_page_and_link(folder, monkeypatch):
    tab = opened(sweep="a-mars")
    study = CachedSweep(load_sweep(folder / "a-mars"))
    found = study.recommendation(Terms())
    assert found is not None and found.sentence in notes(tab)
    assert element(tab)["position"] == {"dial": study.dial(None, Terms())} == {"dial": 0.9}
    assert (
        "MARS at θ = 0.90 answers" in notes(tab) and len(titles(tab)) == 2 and tab.query_params == {"sweep": "a-mars"}
    )
    (tasks,) = [each.value for each in tab.dataframe if "task" in each.value.columns]
    assert tasks["task"].tolist() == ["even", "odd", "together"] and tasks["prompts"].tolist() == ["4", "4", "8"]
    tab = opened(sweep="a-mars", dial="0.87654321")
    assert element(tab)["position"] == {"dial": 0.87654321} and "MARS at θ = 0.87654321" in notes(tab)
    assert tab.query_params == {"sweep": "a-mars", "dial": "0.87654321"}
    before = element(tab)["id"]
    tab = dialled(tab, monkeypatch, 0.3)
    assert "MARS at θ = 0.30" in notes(tab) and "MARS at θ = 0.30" in titles(tab)[0]
    assert tab.query_params == {"sweep": "a-mars", "dial": "0.3"}
    assert element(tab)["id"] == before, "the browser keeps the element that is being dragged"
    assert "is strict" in notes(dialled(tab, monkeypatch, 1.0))


@pytest.mark.parametrize(("name", "paired"), [("a-mars", True), ("b-margin", False), ("c-ungraded", True)])
def test_the_readings_of_the_dial_are_those_of_the_sweep(folder, name, paired):
    study = CachedSweep(load_sweep(folder / name))
    told = readings(study, study.plan.strict, paired=paired)
    names = [each for each in KEY if each in study.measures]
    lows = [place["low"] for place in told["places"]]
    assert lows == sorted(set(lows)) and len(lows) > 2
    assert all(high <= place["until"] for place, high in zip(told["places"], lows[1:], strict=False)), (
        "none is left out"
    )
    inside = [low + 0.5 * (high - low) for low, high in itertools.pairwise(lows)]
    for value in (*lows, *inside, study.plan.strict):
        here = next(place for place in reversed(told["places"]) if place["low"] <= value)
        assert here["cells"] == [cell(study.measures[each], study.value(each, value)) for each in names]
        if study.graded:
            path = study.path(value, paired=paired)
            place = path.near(value)
            assert here["x"] == 100 * path.accuracy.estimate[place] and here["y"] == path.speed_up.estimate[place]
    strict = told["places"][-1 if study.plan.rule.strict_is_high else 0]
    assert [row["strict"] for row in told["rows"]] == strict["cells"]


def test_if_intervals_are_too_many_some_are_left_out_but_not_the_recommended_setting(folder, monkeypatch):
    for module in ("sweep.report", "ui.tune.detail"):
        monkeypatch.setattr(f"mars_viz.{module}.BANDS", 3)
    study, home = CachedSweep(load_sweep(folder / "a-mars")), 0.8512
    first, *more = readings(study, study.plan.strict, paired=True)["places"]
    assert len(more) == 2 and first["until"] < more[0]["low"]
    sample = load_sweep(sample_sweeps()["sample:3-holders-mars"].path)
    near, at = measured_places(sample), np.linspace(0.5, 1, 50)  # few changes are at the lower settings
    near = near[np.searchsorted(near, at, side="right") - 1]
    same = (sample.rows(at) == sample.rows(near)).all(axis=0)
    assert (same | (at - near < 0.02)).all()
    for paired in (True, False):
        places = readings(study, home, paired=paired)["places"]
        lows = [place["low"] for place in places]
        assert len(lows) == 4 and lows == sorted(lows)
        here, path = places[lows.index(home)], study.path(home, paired=paired)
        names = [each for each in KEY if each in study.measures]
        assert here["cells"] == [cell(study.measures[each], study.value(each, home)) for each in names]
        assert here["x"] == 100 * path.accuracy.estimate[path.near(home)]


def test_a_setting_that_changes_no_text_has_an_interval_and_a_sweep_of_strict_alone_opens(empty):
    for name, graded, words in (("graded", True, "(−71 to 71 points)"), ("ungraded", False, "the same text as strict")):
        toy_sweep(empty / name, 3, graded=graded).finish()
        assert words in notes(opened(sweep=name, dial="0.999999"))
    Sweep(table_backend(), toy_prompts(3), SETTINGS, Span(1.0, 1.0, (3,)), empty / "a").finish()
    knob = element(tab := opened(sweep="a"))["knobs"][0]
    assert knob["low"] == knob["high"] == 1.0 and "is strict" in notes(tab)


def test_the_terms_change_recommendation_intervals_and_link(folder):
    tab, sweep = opened(sweep="a-mars"), load_sweep(folder / "a-mars")
    tab.number_input(key="tune-points").set_value(60.0)
    for name in ("cut_off", "looping"):
        tab.number_input(key=f"tune-{name}").set_value(70.0)
    settled(tab.number_input(key="tune-confidence").set_value(0.6).run())
    found = CachedSweep(sweep).recommendation(Terms(60.0, Bootstrap(0.6), 70.0, 70.0))
    assert found is not None and found.dial is not None and found.sentence in notes(tab)
    others = {"sweep": "a-mars", "confidence": "0.6", "cut_off": "70", "looping": "70"}
    assert tab.query_params == others | {"loss": "60"}
    assert element(tab)["position"] == {"dial": found.dial}
    settled(tab.number_input(key="tune-points").set_value(1.0).run())
    settled(tab.segmented_control(key="tune-intervals").set_value("percentile").run())
    assert tab.query_params == others | {"intervals": "percentile"}
    assert "95 %" not in notes(tab) and "60 % intervals, percentile bootstrap over prompts" in notes(tab)
    tau = value_at(sweep, measures(sweep)["tau"], 0.9, Bootstrap(0.6, Method.PERCENTILE))
    read = [row["cells"] for row in element(tab)["figure"]["places"]]
    assert any(f"{number(tau.estimate)} ({number(tau.low)} to {number(tau.high)})" in cells for cells in read)


def test_comparable_sweeps_are_overlaid_and_others_are_named(folder):
    tab = opened(sweep="a-mars")
    assert len(tab.multiselect(key="tune-others").options) == 1  # the ungraded one has other prompts
    settled(tab.multiselect(key="tune-others").select("b-margin").run())
    assert tab.query_params == {"sweep": "a-mars", "with": "b-margin"} and "is fastest" in titles(tab)[0]
    tab = opened(sweep="a-mars", **{"with": "gone,c-ungraded,e-broken,b-margin"})
    assert "not overlaid: gone" in notes(tab) and "is fastest" in titles(tab)[0]
    assert all(f"{name} is not overlaid" in notes(tab) for name in ("c-ungraded", "e-broken"))
    tab = opened(sweep="c-ungraded")
    assert "Not enough prompts to tell whether settings looser than strict make more answers" in notes(tab)
    assert tab.multiselect(key="tune-others").disabled


def test_every_folded_section_opens(folder):
    tab = opened(sweep="a-mars")
    for place, shown in enumerate([(3, 1), (4, 0), (2, 1), (2, 0), (2, 0), (2, 2), (2, 0)]):
        section(tab, place)
        assert (len(titles(tab)), len(frames(tab))) == shown, place
        tab.session_state[f"tune-section-{place}"] = False


def test_a_bad_link_is_named_and_the_page_opens(folder):
    for link, fragment in (
        ({"sweep": "../../etc"}, "no sweep “../../etc”"),
        ({"dial": "<b>lots</b>"}, "is no number"),
        ({"dial": "7"}, "θ = 7"),
        ({"loss": "-3"}, "0.001 to 100"),
        ({"confidence": "2"}, "0.5 to 0.9999"),
        ({"intervals": "guessed"}, "bca, percentile"),
        ({"sweep": "e-broken"}, "cannot be opened"),
    ):
        tab = opened(**{"sweep": "a-mars"} | link)
        assert fragment in notes(tab) and "<b>lots" not in notes(tab)
        assert len(titles(tab)) == 2 * (link != {"sweep": "e-broken"})
    for view in (TuneView(), TuneView("a", 0.25, ("b", "c"), 2.0, 0.9), replace(TuneView("x"), points=0.5)):
        assert from_parameters(TuneView, to_parameters(view)) == Opened(view)


def test_an_unfinished_sweep_is_shown_and_continued_unless_another_process_has_it(folder, begun):
    with locks.held(folder / "d-half"):
        tab = opened(sweep="d-half")
    assert "under way elsewhere" in notes(tab) and "sweep-continue" not in keys(tab)
    press(tab, "sweep-again")
    assert "under way elsewhere" not in notes(tab) and "2 of 5 prompts are done" in notes(tab)
    assert "from the first 2 of 5 prompts: " in notes(tab) and len(titles(tab)) == 2
    press(tab, "sweep-continue")
    assert begun == [("d-half", None)]


def count_of(tab: AppTest) -> Any:
    (count,) = [each for each in tab.number_input if each.key.startswith("add-count")]
    return count


def test_prompts_are_added_by_default_as_many_as_the_next_test_needs(empty, begun, monkeypatch):
    sweep_over(empty / "a", builtin_prompts(2))
    found = CachedSweep(load_sweep(empty / "a")).recommendation(Terms())
    each = per_task(12 + two_digits(found.more), 6)
    tab = press(opened(sweep="a"), "add-prompts")
    ((name, prompts),) = begun
    assert name == "a" and prompts.items[:12] == builtin_prompts(2).items
    assert len(prompts) == 6 * each >= found.prompts_needed
    settled(count_of(tab).set_value(25).run())
    assert tab.button(key="add-prompts").label == "Add 30 prompts"  # as many of each task
    assert opened(sweep="a", loss="0.001").button(key="add-prompts").label == "Add 11\u202f988 prompts"
    monkeypatch.undo()
    monkeypatch.setenv(default_folders.SWEEPS, str(empty))
    with locks.held(empty / "a"):
        assert "is in use" in notes(press(opened(sweep="a"), "add-prompts"))


def test_prompts_that_a_limit_left_out_of_a_file_are_added(empty, begun):
    path = empty.parent / "mine.jsonl"
    path.write_bytes(to_jsonl(toy_prompts(20)))
    sweep_over(empty / "a", load_prompts(path, limit=6))
    tab = opened(sweep="a")
    assert "mine.jsonl has 14 prompts more" in notes(tab)
    settled(count_of(tab).set_value(5).run())
    press(tab, "add-prompts")
    whole = load_prompts(path).items
    ((_, prompts),) = begun
    assert prompts.items == whole[:11] and prompts.rest == whole[11:]
    again = Sweep(table_backend(), prompts, SETTINGS, Span(0.0, 1.0, (3,)), empty / "a", resume=True).finish()
    assert again.complete and open_store(empty / "a").rest() == whole[11:]
    shutil.copytree(empty / "a", empty / "b")
    (empty / "b" / "rest.jsonl").write_text("{")
    assert "add-prompts" not in keys(opened(sweep="b"))


def test_samples_are_listed_last_and_never_changed(tmp_path, monkeypatch, request):
    sample = tmp_path / "sample_sweeps" / "a-mars"
    sweep_over(sample, builtin_prompts(2))
    monkeypatch.setattr(samples, "SWEEPS", sample.parent)
    monkeypatch.setenv(default_folders.SWEEPS, str(tmp_path / "results"))
    sample_sweeps.cache_clear()
    request.addfinalizer(sample_sweeps.cache_clear)
    before = {path: path.read_bytes() for path in sample.rglob("*") if path.is_file()}
    tab = opened()
    picker = tab.selectbox(key="sweep")
    assert picker.options[0].startswith("Sample · ") and picker.value == "sample:a-mars"
    assert titles(tab) and not keys(tab) & {"add-prompts", "sweep-first"}
    job = sweep_requests.clock_job(load_sweep(sample), 0.9, 1, 1)
    assert pickle.loads(pickle.dumps(job.work)).args[1] is None, "it is not saved"
    job.tell(result=timing())
    with patch.object(st, "session_state", {"task-clock-a-mars": job}):
        assert len(detail.all_checks(CachedSweep(load_sweep(sample))).found) == 1
    assert {path: path.read_bytes() for path in sample.rglob("*") if path.is_file()} == before
    toy_sweep(tmp_path / "results" / "mine", 3).finish()
    assert list(shelf(tmp_path / "results").labels) == ["mine", "sample:a-mars"]


def test_a_growing_sweep_is_redrawn_as_prompts_finish_and_can_be_stopped(empty, monkeypatch):
    going = iter(sweep := toy_sweep(empty / "a", 5))
    next(now for now in going if now.finished == 2)
    job = sweep_job({empty / "a": "a"}, lambda pair: sweep)
    job.tell(state=JobState.DECODING, prompts=5, finished=2)
    tab_jobs.shared_worker().name(job, empty / "a")
    tab = opened(sweep="a")
    assert "from the first 2 of 5 prompts: " in notes(tab) and element(tab)["figure"]["rows"]
    asked = []

    def outdated(drawn: ShownResults, sweep: str, finished: int, now: float) -> bool:
        asked.append((drawn.sweep, drawn.finished, finished))
        if len(asked) == 1:
            next(now for now in going if now.finished == 3)
            job.tell(finished=3)
        return len(asked) == 1

    monkeypatch.setattr(ShownResults, "outdated", outdated)
    settled(tab.run())
    assert asked == [("a", 2, 2), ("a", 3, 3)] and "from the first 3 of 5 prompts: " in notes(tab)
    press(tab, "Stop")
    assert job.stopping
    monkeypatch.undo()
    for took, wait in ((0.1, 2.0), (3.0, 15.0)):  # less often the longer that takes
        drawn, end = ShownResults("a", 2, 100.0, 100.0 + took), 100.0 + took + wait
        assert not drawn.outdated("a", 3, end - 0.1) and drawn.outdated("a", 3, end + 0.2)
        assert not drawn.outdated("a", 2, 1000.0) and not drawn.outdated("b", 3, 1000.0)


def test_stored_wall_clock_checks_are_shown(empty):
    result = toy_sweep(empty / "a", 3).finish()
    check = timing()
    keep_check(result.folder, replace(check, created="2026-01-01T10:00:00+00:00"))
    keep_check(result.folder, replace(check, dial=0.5, created="2026-01-02T10:00:00+00:00"))
    (result.folder / "checks" / "broken.json").write_text("{")
    tab = section(opened(sweep="a", dial="0.9"), 3)
    assert "Measured: answers 2× (2 to 2) as fast as strict (modelled 1.50×)" in notes(tab).replace("2.00", "2")
    assert list(frames(tab)[0].value["measured, UTC"]) == ["2026-01-02 10:00", "2026-01-01 10:00"]
    assert "broken.json" in notes(tab)
    assert "with the wall-clock check" in notes(section(tab, 6))
    assert "without a wall-clock check" in notes(section(opened(sweep="a", dial="0.7"), 6))


def test_the_load_is_shown_from_stored_rounds_and_measured_on_request(empty, monkeypatch):
    result = toy_sweep(empty / "a", 6).finish()
    tab = section(opened(sweep="a", dial="0.9"), 4)
    assert "accept the first drafted token" in titles(tab)[1] and "Drafting one more token pays if" in notes(tab)
    assert "pays with up to" not in notes(tab) and not result.folder.joinpath("load.json").exists()
    asked: list[Any] = []
    monkeypatch.setattr(Worker, "_add", lambda worker, job, names: asked.append(job.work))
    tab.selectbox(key="load-most").set_value(8)
    press(settled(tab.run()), "measure-load-a")
    find, keep = asked[-1].args
    assert find.args[0] == result.plan.settings and find.keywords == {"most": 8}
    keep(BATCHES)
    settled(tab.run())
    assert "With γ = 3 speculation pays with up to" in notes(tab) and "× with 16 (modelled)" in titles(tab)[-1]
    assert list(frames(tab)[0].value["texts at once"]) == ["1", "4", "16"]
    assert "num_speculative_tokens_per_batch_size" in tab.code[0].value
    assert sum("num_speculative_tokens_per_batch_size" in code.value for code in section(tab, 6).code) == 2
    (result.folder / "load.json").write_text("{}")
    assert "load.json" in notes(settled(tab.run()))


def test_the_dials_range_can_be_narrowed_but_not_to_strict_alone(empty, begun):
    tab = opened()
    tab.number_input(key="sweep-loosest-mars").set_value(1.0)
    press(tab, "sweep-begin")
    assert begun[0].loosest == {"mars": 1.0}
    with pytest.raises(BadInput, match="θ = 1.00 is strict itself"):
        sweep_requests.span_to("mars", 1.0, 4)
    assert sweep_requests.span_to("mars", 0.8, 4) == Span(0.8, 1.0, (4,))
    for loosest in (1.5, float("nan")):
        with pytest.raises(BadInput, match="it must be a number from 0 to 1"):
            sweep_requests.span_to("mars", loosest, 4)


def test_a_bad_file_is_named_and_nothing_is_begun(empty, begun):
    for lines, grader, fragment in (
        ("", "", "Choose a file"),
        ('{"prompt": "a", "answer": "1", "grader": "exact"}\nnonsense\n', "", "prompts.jsonl: line 2"),
        ('{"question_id": 1, "category": "x", "turns": ["Hi"]}', "contains", "no answers to grade"),
    ):
        words = notes(press(own_file(lines, grader), "sweep-begin"))
        assert fragment in words and "/tmp" not in words and not begun and not empty.exists()


def test_trees_and_the_choice_among_siblings_are_swept(empty, monkeypatch):
    jobs: list[Job[Sweeping]] = []
    monkeypatch.setattr(Worker, "_add", lambda worker, job, names: jobs.append(job))
    tab = opened()
    tab.text_input(key="sweep-folder").set_value("mine")
    settled(tab.multiselect(key="sweep-rules").set_value([]).run())
    assert "at least one rule" in notes(press(tab, "sweep-begin"))
    settled(tab.multiselect(key="sweep-rules").set_value(["mars", "lenience"]).run())
    settled(tab.selectbox(key="sweep-draft").set_value("dynamic").run())
    assert "sweep-gamma" not in keys(tab)
    tab.number_input(key="sweep-nodes").set_value(8)
    tab.selectbox(key="sweep-siblings").set_value(Policy.LONGEST)
    settled(tab.number_input(key="sweep-temperature").set_value(1.0).run())
    assert "draft trees above temperature 0" in notes(press(tab, "sweep-begin")) and not jobs
    tab.multiselect(key="sweep-rules").set_value(["mars", "sglang-acc"])
    press(settled(tab.number_input(key="sweep-temperature").set_value(0.0).run()), "sweep-begin")
    tree = "tree of 8 nodes, depth 6, branching 4"
    names = [f"MARS, siblings longest, {tree}", f"SGLang, accumulated threshold, {tree}"]
    labels = [item for job in jobs for item in job.progress.labels.items()]
    assert [label.partition(" ·")[0] for _, label in labels] == names
    assert {folder.parent for folder, _ in labels} == {empty / "mine"}
    (settings,) = jobs[0].work.args[0].keywords["settings"]
    assert (settings.tree, settings.gamma) == ("dynamic:depth=6,topk=4", 8)


def test_a_task_is_swept_with_its_own_stop_strings_and_length(empty, tmp_path, begun, monkeypatch):
    monkeypatch.setattr(visitors, "may_name_paths", lambda: True)
    path = gsm8k_form(tmp_path, 4, num_fewshot=1, generation_kwargs={"until": ["\n\n"], "max_gen_toks": 33})
    tab = settled(opened().segmented_control(key="sweep-source").set_value("Harness task").run())
    press(tab, "sweep-begin")
    assert form.OWN in captions(tab) and not begun
    assert "Name a task of lm-evaluation-harness first" in notes(tab)
    tab.text_input(key="sweep-task").set_value(f" {path} ")
    tab.text_input(key="sweep-metric").set_value(FLEXIBLE)
    tab.number_input(key="sweep-fewshot").set_value(2)
    tab.number_input(key="sweep-task-limit").set_value(3)
    press(settled(tab.run()), "sweep-begin")
    (wish,) = begun
    assert wish.prompts == load_task(str(path), fewshot=2, metric=FLEXIBLE, limit=3).prompts
    assert wish.prompts.scores == (STRICT,) and len(wish.prompts) == 3
    assert wish.settings.stop == ("\n\n",) and wish.settings.max_new_tokens == 33


def test_visitors_name_no_file_of_a_task(tmp_path, empty, monkeypatch):
    """A task's file can run code."""
    task = load_task(str(gsm8k_form(tmp_path, 2)))
    settings = task.settings(SETTINGS, 8)
    Sweep(table_backend(), task.prompts, settings, Span(0.0, 1.0, (settings.gamma,)), empty / "a")
    (entry,) = list_sweeps(empty)
    monkeypatch.setattr(visitors, "may_name_paths", lambda: False)
    monkeypatch.setattr(harness, "loaded", lambda task: pytest.fail("it was loaded"))
    for task in ("x.YML", "/tmp/x.yaml", "x.yaml", "../x", "a\\b", "~/x.yaml"):
        with pytest.raises(SettingError, match="Name a task that lm-evaluation-harness has itself"):
            sweep_requests.task_prompts(task, None, None, None)
    with pytest.raises(SettingError, match="name paths"):
        sweep_requests.go_on(entry)


def test_visitors_name_no_path_and_none_is_looked_at(empty, monkeypatch):
    looked = []
    for name in ("stat", "exists", "is_file", "is_dir", "expanduser", "mkdir"):
        real = getattr(Path, name)
        seen = lambda path, *more, _real=real, **how: (looked.append(path), _real(path, *more, **how))[1]  # noqa: E731
        monkeypatch.setattr(Path, name, seen)
    names = ["../x", "a/b", "a\\b", "..", ".", ".hidden", "~", "~root", "a\x00b", "a\nb", "\u202eb", "x" * 81, "nul"]
    for text in [*names, "a.", str(ROOT / "app.py"), "/etc/passwd", "/etc", "/no/such/place"]:
        with pytest.raises(BadInput, match="without a path|folder's name"):
            sweep_requests.checked_folder(text)
    assert looked == [] and not os.path.exists(empty)


def test_folders_for_results_are_named(empty, tmp_path, monkeypatch):
    toy_sweep(empty / "swept", 2).finish()
    (empty / "notes.txt").write_text("")
    (empty / "mine").mkdir()
    for text, place in (("", ""), (" ", ""), (" Alice, 1 ", "Alice, 1"), ("mine", "mine")):
        assert sweep_requests.checked_folder(text) == (empty / place, empty)
    for taken in ("swept", "notes.txt"):
        with pytest.raises(BadInput, match="is a sweep or a file itself"):
            sweep_requests.checked_folder(taken)
    monkeypatch.setattr(visitors, "may_name_paths", lambda: True)
    elsewhere = tmp_path / "elsewhere"
    assert sweep_requests.checked_folder(f" {elsewhere}") == (elsewhere, elsewhere)
    assert sweep_requests.checked_folder("mine") == (empty / "mine", empty)
    for text in ("a/b", str(ROOT / "app.py"), "~nobody-here/x", "/a\x00b", "/" + "x" * 300):
        with pytest.raises(BadInput):
            sweep_requests.checked_folder(text)


def test_a_sweep_with_the_built_in_pair_from_the_form_to_the_clock(empty, pair, unmeasured, monkeypatch):
    """The only test that runs models: a bad line, a prompt that is too long, a sweep, and the wall-clock check."""
    own = Worker(Models(lambda choice, tell: pair))
    monkeypatch.setattr(tab_jobs, "shared_worker", lambda: own)
    long = json.dumps({"prompt": "word " * 2000})
    lines = ['{"prompt": "Add 1 and 2.", "answer": "3", "id": "<img src=x>"}', "nonsense", long, '{"prompt": "Hi"}']
    tab = own_file("\n".join(lines), "last-number")
    tab.checkbox(key="sweep-skip").check()
    tab.number_input(key="sweep-max_new_tokens").set_value(6)
    tab.number_input(key="sweep-gamma").set_value(2)
    assert "Line 2 is left out" in notes(press(settled(tab.run()), "sweep-begin"))
    (job,) = jobs_in(empty).values()
    until(lambda: job.progress.state.finished)
    assert (job.progress.error, job.progress.finished, job.progress.failed) == ("", 3, 1)
    (path,) = empty.iterdir()
    again = opened(sweep=path.name)
    assert "1 prompt without results" in notes(again) and "<img" not in notes(again)
    section(again, 3)
    again.number_input(key="clock-prompts").set_value(1)
    again.number_input(key="clock-repetitions").set_value(2)
    press(settled(again.run()), "clock-begin")
    result = load_sweep(path)
    check_job = again.session_state[f"task-clock-{path.name}"]
    until(lambda: check_job.progress.state.finished)
    assert check_job.progress.error == "" and check_job.progress.share == 1
    assert "Measured" in notes(settled(again.run()))
    (check,) = kept_checks(path, result.plan).found
    assert check.to_json() == check_job.progress.result.to_json() and check.created


def test_in_a_browser_the_figures_follow_the_dial_and_the_page_when_it_rests(page, app):
    folder = app.sweeps / "followed"
    shutil.rmtree(folder, ignore_errors=True)
    study = CachedSweep(toy_sweep(folder, 8).finish())

    def shows(value: float) -> None:
        tiles = page.locator(".setting > div")
        for tile, name in enumerate(name for name in KEY if name in study.measures):
            estimate = cell(study.measures[name], study.value(name, value)).partition(" (")[0]
            expect(tiles.nth(tile).locator("dd").first).to_have_text(estimate)

    page.goto(f"{app.address}/tune?sweep=followed&dial=0.9", wait_until="commit")
    sentence, slider = page.locator(".mv-lead"), page.get_by_role("slider", name="ratio threshold")
    names = page.locator(".js-plotly-plot .annotation-text")
    expect(names.get_by_text("θ = 0.90")).to_have_count(1)
    shows(0.9)
    box = slider.bounding_box()
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.9 * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.4 * box["width"], y, steps=4)
    held = slider.evaluate("range => range.valueAsNumber")
    assert held == pytest.approx(0.4, abs=0.02)
    shows(held)
    expect(names.get_by_text(f"θ = {held:.2f}")).to_have_count(1)
    expect(sentence).to_contain_text("MARS at θ = 0.90")  # until the mouse is released
    page.mouse.up()
    expect(sentence).to_contain_text(f"MARS at θ = {exactly(held)}")
    slider.press("Home")
    shows(0.0)
    expect(page).to_have_url(f"{app.address}/tune?sweep=followed&dial=0")
    expect(slider).to_be_focused()
    shutil.rmtree(folder)
