"""The Tune page as a person meets it: without a browser, once with the built-in pair, and once in Chromium."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import os
import pickle
import re
import shutil
import time
import zipfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from playwright.sync_api import Locator, TimeoutError, expect
from streamlit.testing.v1 import AppTest
from sweep_cases import SETTINGS, sweep_over, timing, toy_prompts, toy_sweep

from mars_viz import default_folders, locks, samples
from mars_viz.analysis.engine_counts import parse_counts
from mars_viz.analysis.intervals import Bootstrap, Method
from mars_viz.analysis.recommendation import two_digits
from mars_viz.demo.tasks import Task
from mars_viz.dialmap import Span
from mars_viz.errors import BadInput
from mars_viz.prompts import (
    GRADERS,
    PromptItem,
    PromptSet,
    Turns,
    builtin_prompts,
    kinds_named,
    load_prompts,
    per_task,
    to_jsonl,
)
from mars_viz.records import Policy
from mars_viz.run import Settings
from mars_viz.sweep import Sweep, load_sweep, measures, value_at
from mars_viz.sweep.evidence_pack import evidence_zip
from mars_viz.sweep.figure_words import cell
from mars_viz.sweep.store import open_store
from mars_viz.sweep.timing import keep_check, kept_checks
from mars_viz.ui import navigation, tab_jobs, visitors
from mars_viz.ui.jobs.job import JobState
from mars_viz.ui.jobs.worker import Worker
from mars_viz.ui.links import Opened, from_parameters, to_parameters
from mars_viz.ui.tune import cached_sweep as study_module
from mars_viz.ui.tune import detail, sweep_requests
from mars_viz.ui.tune.cached_sweep import KEY, CachedSweep
from mars_viz.ui.tune.catalogue import jobs_in, sample_sweeps, shelf
from mars_viz.ui.tune.detail import readings
from mars_viz.ui.tune.jobs import SweepJob
from mars_viz.ui.tune.page_state import ShownResults, TuneView
from mars_viz.words import counted, exactly, number
from tests.served import served
from tests.tables import table_backend
from tests.tabs import sent
from tests.test_accessibility import in_words, violations
from tests.waiting import until

ROOT = Path(__file__).parents[1]
PATIENCE = 400.0  # seconds; only a hanging test waits as long
MARGIN = Settings(rule="mars-margin", gamma=3, max_new_tokens=16)
SECTIONS = 6
NAMES_STAND_APART = """() => {
  const boxes = [...document.querySelectorAll('.js-plotly-plot .annotation-text')].map(e => e.getBoundingClientRect());
  const apart = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) < 2
    || Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) < 2;
  return boxes.length > 4 && boxes.every((a, i) => boxes.every((b, j) => i === j || apart(a, b)));
}"""
"""True once the names in a figure are there and none lies on another."""


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two finished sweeps that can be compared, an ungraded one, one that is not finished, and a broken one."""
    folder = tmp_path_factory.mktemp("sweeps")
    toy_sweep(folder / "a-mars", 8).finish()
    toy_sweep(folder / "b-margin", 8, MARGIN).finish()
    toy_sweep(folder / "c-ungraded", 3, graded=False).finish()
    half = toy_sweep(folder / "d-half", 5)
    for progress in half:
        if progress.finished == 2:
            break
    (folder / "e-broken").mkdir()
    (folder / "e-broken" / "sweep.json").write_text("{}")
    return folder


@pytest.fixture
def folder(swept: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(default_folders.SWEEPS, str(swept))
    return swept


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for results that is not there yet, and no samples."""
    monkeypatch.setenv(default_folders.SWEEPS, str(tmp_path / "results"))
    monkeypatch.setenv(samples.VARIABLE, "off")
    return tmp_path / "results"


def opened(**parameters: str) -> AppTest:
    """A fresh tab on a link to the page."""
    tab = AppTest.from_file(str(ROOT / "app.py"), default_timeout=PATIENCE)
    tab.query_params = dict(parameters)
    return settled(tab.switch_page("pages/tune.py").run())


def settled(tab: AppTest) -> AppTest:
    """The tab, which must not have met an exception."""
    assert not tab.exception, [problem.message for problem in tab.exception]
    return tab


def said(tab: AppTest) -> str:
    """Every sentence that the page shows as HTML."""
    return " ".join(html.body for html in tab.html)


def titles(tab: AppTest) -> list[str]:
    return [chart.proto.alt for chart in tab.get("plotly_chart")]


def clicked(tab: AppTest, key: str) -> AppTest:
    """The tab with a button pressed. Here every rerun goes through app.py once more, where the press would be lost; a
    real server knows from its first page on that app.py leads to all of them."""
    with patch.object(navigation, "through_app"):
        return settled(tab.button(key=key).click().run())


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


def uploaded(tab: AppTest, lines: str, **choices: Any) -> AppTest:
    """The form with a file of prompts, and Sweep pressed."""
    tab.segmented_control(key="sweep-source").set_value("My own file")
    settled(tab.run())
    tab.file_uploader(key="sweep-file").set_value(("prompts.jsonl", lines.encode(), "application/json"))
    if "grader" in choices:
        tab.selectbox(key="sweep-grader").select(choices["grader"])
    if choices.get("skip"):
        tab.checkbox(key="sweep-skip").check()
    return clicked(tab, "sweep-begin")


def test_the_first_visit_is_one_button_with_an_estimate(empty):
    tab = opened()
    assert [button.label for button in tab.button if button.key == "sweep-first"] == [
        "Sweep 300 built-in exercises with MARS"
    ]
    assert "seconds on two processor cores" in said(tab) and "keeps its results on the server" in said(tab)
    assert not titles(tab) and not empty.exists()


def test_only_those_who_may_name_paths_see_where_results_lie(empty, monkeypatch):
    for may in (True, False):
        monkeypatch.setattr(visitors, "may_name_paths", lambda may=may: may)
        tab = opened()
        assert (str(empty) in said(tab)) == (tab.text_input(key="sweep-folder").placeholder == str(empty)) == may
        assert ("sweep-ray" in [field.key for field in tab.text_input]) == may


def test_opens_the_sweep_at_the_setting_that_it_speaks_for(folder):
    tab = opened(sweep="a-mars")
    study = CachedSweep(load_sweep(folder / "a-mars"))
    found = study.recommendation(1.0, 0.95)
    assert found is not None and found.sentence in said(tab)
    assert element(tab)["position"] == {"dial": study.dial(None, 1.0, 0.95)} == {"dial": 0.9}
    assert "MARS at θ = 0.90 is" in said(tab) and "as fast as strict" in said(tab)
    assert len(titles(tab)) == 1 and "MARS" in titles(tab)[0]
    assert tab.query_params == {"sweep": "a-mars"}
    titles_of = [row["title"] for row in element(tab)["figure"]["rows"]]
    assert titles_of[:2] == ["accuracy", "accuracy change vs strict"]
    assert set(frames(section(tab, 0))[0].value["is"]) == {"exact", "modelled"}


def test_the_dial_moves_everything_and_the_link(folder, monkeypatch):
    tab = opened(sweep="a-mars")
    before, element_before = said(tab), element(tab)
    tab = dialled(tab, monkeypatch, 0.3)
    assert "MARS at θ = 0.30" in said(tab) and said(tab) != before and "MARS at θ = 0.30" in titles(tab)[0]
    assert tab.query_params == {"sweep": "a-mars", "dial": "0.3"}
    assert element(tab)["id"] == element_before["id"], "what the hand holds is not made anew when it rests"
    assert "is strict" in said(dialled(tab, monkeypatch, 1.0))


def test_a_link_to_a_value_between_two_steps_is_taken_at_its_word(folder):
    tab = opened(sweep="a-mars", dial="0.87654321")
    assert element(tab)["position"] == {"dial": 0.87654321} and "MARS at θ = 0.87654321" in said(tab)
    assert tab.query_params == {"sweep": "a-mars", "dial": "0.87654321"}


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("name", ["a-mars", "b-margin", "c-ungraded"])
def test_what_the_dial_reads_under_the_hand_is_what_python_says_of_it(folder, name, paired):
    """At every stretch's ends and inside: the key figures with their intervals, and the frontier's mark."""
    study = CachedSweep(load_sweep(folder / name))
    told = readings(study, study.plan.strict, paired=paired)
    names = [each for each in KEY if each in study.measures]
    lows = [place["low"] for place in told["places"]]
    assert lows == sorted(set(lows)) and len(lows) > 2 and not told["thinned"]
    inside = [low + 0.5 * (high - low) for low, high in itertools.pairwise(lows)]
    for value in (*lows, *inside, study.plan.strict):
        here = next(place for place in reversed(told["places"]) if place["low"] <= value)
        assert here["cells"] == [cell(study.measures[each], study.value(each, value)) for each in names]
        if study.graded:
            path = study.path(value, paired=paired)
            place = path.near(value)
            assert here["x"] == 100 * path.accuracy.estimate[place] and here["y"] == path.speed_up.estimate[place]
    assert [row["strict"] for row in told["rows"]] == told["places"][-1 if study.plan.rule.strict_is_high else 0][
        "cells"
    ]


def test_of_very_many_stretches_the_dial_says_that_it_reads_some(folder, monkeypatch):
    monkeypatch.setattr(study_module, "BANDS", 3)
    monkeypatch.setattr(detail, "BANDS", 3)
    study = CachedSweep(load_sweep(folder / "a-mars"))
    told = readings(study, study.plan.strict, paired=True)
    assert told["thinned"] and len(told["places"]) == 3


@pytest.mark.parametrize("paired", [True, False])
def test_of_very_many_stretches_the_one_that_the_sweep_speaks_for_is_read_as_it_is(folder, monkeypatch, paired):
    monkeypatch.setattr(study_module, "BANDS", 3)
    monkeypatch.setattr(detail, "BANDS", 3)
    study, home = CachedSweep(load_sweep(folder / "a-mars")), 0.8512
    told = readings(study, home, paired=paired)
    lows = [place["low"] for place in told["places"]]
    assert len(lows) == 4 and lows == sorted(lows)
    here = told["places"][lows.index(home)]
    names = [each for each in KEY if each in study.measures]
    assert here["cells"] == [cell(study.measures[each], study.value(each, home)) for each in names]
    path = study.path(home, paired=paired)
    assert here["x"] == 100 * path.accuracy.estimate[path.near(home)]


def test_a_setting_that_changes_no_text_says_so(empty):
    """Beside strict nothing changes on these prompts, and the interval says how little that proves."""
    toy_sweep(empty / "graded", 3).finish()
    toy_sweep(empty / "ungraded", 3, graded=False).finish()
    for name, ending in (
        ("graded", "no prompt's grade changes (−71 to 71 points)."),
        ("ungraded", "on every prompt."),
    ):
        text = said(opened(sweep=name, dial="0.999999")).replace("&#x27;", "'")
        assert "MARS at θ = 0.999999 writes the same text as strict on every prompt" in text
        assert ending in text


def test_the_limits_change_the_recommendation(folder):
    tab = opened(sweep="a-mars")
    tab.number_input(key="tune-points").set_value(60.0)
    settled(tab.number_input(key="tune-confidence").set_value(60.0).run())
    found = CachedSweep(load_sweep(folder / "a-mars")).recommendation(60.0, 0.6)
    assert found is not None and found.dial is not None and found.sentence in said(tab)
    assert tab.query_params == {"sweep": "a-mars", "loss": "60", "confidence": "0.6"}
    assert element(tab)["position"] == {"dial": found.dial}


def test_rules_are_laid_over_one_another_where_they_can_be_compared(folder):
    tab = opened(sweep="a-mars")
    assert len(tab.multiselect(key="tune-others").options) == 1  # not the ungraded one, whose prompts are others
    settled(tab.multiselect(key="tune-others").select("b-margin").run())
    assert tab.query_params == {"sweep": "a-mars", "with": "b-margin"}
    assert "is fastest" in titles(tab)[0] and "Fastest settings that lose at most 1 point" in said(tab)
    assert "is fastest" in titles(opened(sweep="a-mars", **{"with": "b-margin"}))[0]


def test_an_ungraded_sweep_shows_speed_and_says_why_nothing_is_recommended(folder):
    tab = opened(sweep="c-ungraded")
    assert "No prompt of this set is graded" in said(tab) and len(titles(tab)) == 1
    assert tab.multiselect(key="tune-others").disabled


@pytest.mark.parametrize("place", range(SECTIONS))
def test_every_folded_part_opens(folder, place):
    tab = section(opened(sweep="a-mars"), place)
    charts, tables = [(2, 1), (3, 0), (1, 1), (1, 0), (1, 2), (1, 0)][place]
    assert (len(titles(tab)), len(frames(tab))) == (charts, tables)
    if place == 4:
        engines = frames(tab)[0].value
        assert list(engines["engine"])[:3] == ["vLLM", "SGLang, scheduler", "SGLang, per request"]
        assert len(engines) == 9 and "accepted / (verify count × (draft tokens - 1))" in set(engines["rate is"])
    if place == 5:
        assert "For throughput only" in said(tab) and "does not exist there" in said(tab)
        assert any("synthetic_acceptance_rates" in code.value for code in tab.code)


def test_the_pack_and_the_metrics_hold_what_the_page_shows(folder):
    study = CachedSweep(load_sweep(folder / "a-mars"))
    data = evidence_zip(study.result, dial=0.9, recommendation=study.recommendation(1.0, 0.95))
    assert data == evidence_zip(study.result, dial=0.9, recommendation=study.recommendation(1.0, 0.95))
    with zipfile.ZipFile(io.BytesIO(data)) as pack:
        names = ["evidence.md", "evidence.json", "summary.csv", "grid.csv", "stretches.csv", "engines.csv"]
        names += ["prompts.csv", "tasks.csv"]
        assert pack.namelist() == [f"evidence/{name}" for name in names]
        assert json.loads(pack.read("evidence/evidence.json"))["settings"]["chosen"] == 0.9
    requests = [each.counts for each in parse_counts(detail.exported(study, 0.9))]
    assert [request.name for request in requests] == [f"p{i}" for i in range(8)]
    for ours, theirs in zip(study.result.acceptance(0.9), requests, strict=True):
        assert sorted(ours.accepted) == sorted(theirs.accepted)
        assert ours.completion_tokens == theirs.completion_tokens


def test_metrics_of_another_engine_are_read_and_said_to_be_counts(folder):
    tab = opened(sweep="a-mars")
    tab.session_state["tune-import"] = True
    settled(tab.run())
    text = detail.exported(CachedSweep(load_sweep(folder / "a-mars")), 0.9)
    tab.file_uploader(key="vllm-import").set_value(("metrics.json", text.encode(), "application/json"))
    settled(tab.run())
    assert "counts only" in said(tab) and "need the logits" in said(tab)
    assert len(frames(tab)[0].value) == 9
    tab.file_uploader(key="vllm-import").set_value(("metrics.json", b'{"num_spec_steps": 3}', "application/json"))
    settled(tab.run())
    assert "cannot be used" in said(tab) and "Export it again" in said(tab)


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"sweep": "../../etc"}, "no sweep “../../etc” in the folder for results; the newest is shown"),
        ({"sweep": "a-mars", "dial": "<b>lots</b>"}, "is no number"),
        ({"sweep": "a-mars", "dial": "7"}, "outside what was swept"),
        ({"sweep": "a-mars", "loss": "-3"}, "must be from 0.001 to 100"),
        ({"sweep": "a-mars", "confidence": "2"}, "from 0.5 to 0.9999"),
    ],
)
def test_a_bad_link_is_a_sentence_and_the_page(folder, parameters, sentence):
    tab = opened(**parameters)
    assert sentence in said(tab) and "<b>lots" not in said(tab)
    assert len(titles(tab)) == 1


def test_a_broken_sweep_says_what_to_do(folder):
    tab = opened(sweep="e-broken")
    assert "cannot be opened" in said(tab) and not titles(tab)


def test_an_unfinished_sweep_is_shown_as_far_as_it_is_and_can_be_continued(folder, monkeypatch):
    tab = opened(sweep="d-half")
    assert "2 of 5 prompts are done" in said(tab) and len(titles(tab)) == 1
    assert "So far, from the first 2 of 5 prompts: " in said(tab)
    asked = []
    monkeypatch.setattr(sweep_requests, "go_on", lambda entry, beside: asked.append(entry.path.name))
    clicked(tab, "sweep-continue")
    assert asked == ["d-half"]


def test_a_sweep_that_another_process_works_on_is_left_to_it(folder):
    with locks.held(folder / "d-half"):
        tab = opened(sweep="d-half")
    assert "under way elsewhere: this very process" in said(tab) and "2 of 5 prompts are done" in said(tab)
    assert not [button for button in tab.button if button.key == "sweep-continue"]
    clicked(tab, "sweep-again")
    assert "under way elsewhere" not in said(tab) and tab.button(key="sweep-continue")


def test_the_button_adds_as_many_prompts_as_the_next_test_needs(empty, monkeypatch):
    sweep_over(empty / "a", builtin_prompts(2))
    found = CachedSweep(load_sweep(empty / "a")).recommendation(1.0, 0.95)
    needed, each = found.prompts_needed, per_task(12 + two_digits(found.more), 6)
    tab, asked = opened(sweep="a"), []
    monkeypatch.setattr(
        sweep_requests, "go_on", lambda entry, beside, prompts: asked.append((entry.path.name, prompts))
    )
    assert tab.button(key="add-prompts").label == f"Add {counted(6 * each - 12, 'prompt')}"
    clicked(tab, "add-prompts")
    ((name, prompts),) = asked
    assert name == "a" and prompts.items[:12] == builtin_prompts(2).items and len(prompts) == 6 * each >= needed
    with locks.held(empty / "a"):
        monkeypatch.undo()
        monkeypatch.setenv(default_folders.SWEEPS, str(empty))
        assert "is in use: this very process" in said(clicked(opened(sweep="a"), "add-prompts"))


def test_a_need_beyond_the_built_in_tasks_says_how_many_they_have(empty):
    sweep_over(empty / "a", builtin_prompts(2))
    tab = opened(sweep="a", loss="0.001")
    assert "The built-in tasks have 12\u202f000 prompts, and about " in said(tab)
    assert tab.button(key="add-prompts").label == "Add 11\u202f988 prompts"


def test_another_number_of_prompts_is_added_a_few_more_where_tasks_would_differ(empty, monkeypatch):
    sweep_over(empty / "a", builtin_prompts(2))
    tab, asked = opened(sweep="a"), []
    monkeypatch.setattr(sweep_requests, "go_on", lambda entry, beside, prompts: asked.append(prompts))
    (count,) = [each for each in tab.number_input if each.key.startswith("add-count")]
    settled(count.set_value(25).run())
    assert tab.button(key="add-prompts").label == "Add 30 prompts"
    clicked(tab, "add-prompts")
    assert len(asked[0]) == 42 and len({item.id for item in asked[0].items}) == 42


def test_what_a_limit_left_out_of_a_file_is_added_in_one_click(empty, monkeypatch):
    path = empty.parent / "mine.jsonl"
    path.write_bytes(to_jsonl(toy_prompts(20)))
    sweep_over(empty / "a", load_prompts(path, limit=6))
    tab, asked = opened(sweep="a"), []
    monkeypatch.setattr(sweep_requests, "go_on", lambda entry, beside, prompts: asked.append(prompts))
    assert "mine.jsonl has 14 prompts besides those that were swept; about " in said(tab)
    (count,) = [each for each in tab.number_input if each.key.startswith("add-count")]
    settled(count.set_value(5).run())
    clicked(tab, "add-prompts")
    whole = load_prompts(path).items
    assert asked[0].items == whole[:11] and asked[0].rest == whole[11:]
    monkeypatch.undo()
    monkeypatch.setenv(default_folders.SWEEPS, str(empty))
    again = Sweep(table_backend(), asked[0], SETTINGS, Span(0.0, 1.0, (3,)), empty / "a", resume=True).finish()
    assert again.complete and open_store(empty / "a").rest() == whole[11:]
    (empty / "a" / "rest.jsonl").write_text("{")
    assert not [each for each in opened(sweep="a").button if each.key == "add-prompts"], "a damaged file has none"


def test_the_terms_are_said_in_one_place_and_changed_there(folder):
    tab = opened(sweep="a-mars")
    assert said(tab).count("95 %") == 2 and said(tab).count("Safe: accuracy falls by at most 1 point") == 1
    settled(tab.number_input(key="tune-confidence").set_value(80.0).run())
    settled(tab.segmented_control(key="tune-intervals").set_value("percentile").run())
    assert tab.query_params == {"sweep": "a-mars", "confidence": "0.8", "intervals": "percentile"}
    text = said(tab)
    assert "95 %" not in text and "80 % intervals, percentile bootstrap over prompts" in text
    how = Bootstrap(0.8, Method.PERCENTILE)
    tau = value_at(load_sweep(folder / "a-mars"), measures(load_sweep(folder / "a-mars"))["tau"], 0.9, how)
    read = [row["cells"] for row in element(tab)["figure"]["places"]]
    assert any(f"{number(tau.estimate)} ({number(tau.low)} to {number(tau.high)})" in cells for cells in read)
    assert "none of bca and percentile" in said(opened(sweep="a-mars", intervals="guessed"))


def test_two_prompts_are_shown_without_absurd_intervals_and_with_what_to_do(empty):
    sweep_over(empty / "a", builtin_prompts(1, kinds=kinds_named("counting,turns")))
    tab = opened(sweep="a")
    assert "Of 2 prompts a bootstrap says nothing: shares alone have one." in said(tab)
    assert "there are 2, about 620 more would tell" in said(tab)
    assert tab.button(key="add-prompts").label == "Add 620 prompts"
    cells = [cell for place in element(tab)["figure"]["places"] for cell in place["cells"]]
    assert any("(no interval)" in cell for cell in cells) and "nan" not in "".join(cells) + said(tab)


def test_results_are_shown_task_by_task(folder):
    (table,) = [each.value for each in opened(sweep="a-mars").dataframe if "task" in each.value.columns]
    assert table["task"].tolist() == ["even", "odd", "together"] and table["prompts"].tolist() == ["4", "4", "8"]
    assert table.columns[2] == "accuracy vs strict"


def test_of_a_sweep_of_some_tasks_more_of_these_are_added(empty, monkeypatch):
    kinds = kinds_named("counting,turns")
    sweep_over(empty / "a", builtin_prompts(2, kinds=kinds))
    asked = []
    monkeypatch.setattr(sweep_requests, "go_on", lambda entry, beside, prompts: asked.append(prompts))
    clicked(opened(sweep="a"), "add-prompts")
    assert {item.category for item in asked[0].items} == {"counting", "turns"} and len(asked[0]) % 2 == 0


def test_the_form_sweeps_the_tasks_that_are_chosen_and_says_where_none_is(empty, monkeypatch):
    begun = []
    monkeypatch.setattr(sweep_requests, "begin", lambda wish, *_: begun.append(wish) or ["a"])
    tab = opened()
    tab.multiselect(key="sweep-tasks").set_value([Task.TURNS]).run()
    clicked(tab, "sweep-begin")
    assert begun[0].prompts.name == "built-in tasks: turns"
    tab = opened()
    tab.multiselect(key="sweep-tasks").set_value([]).run()
    assert "Choose at least one task." in [caption.value for caption in tab.caption]
    clicked(tab, "sweep-begin")
    assert len(begun) == 1 and "make no set" in said(tab)


@pytest.fixture
def sampled(swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No sweeps of one's own, and two that come with the product, in a folder of that name."""
    shipped = tmp_path / "sample_sweeps"
    sweep_over(shipped / "a-mars", builtin_prompts(2))
    shutil.copytree(swept / "b-margin", shipped / "b-margin")
    monkeypatch.setattr(samples, "SWEEPS", shipped)
    monkeypatch.setenv(default_folders.SWEEPS, str(tmp_path / "results"))
    monkeypatch.delenv(samples.VARIABLE, raising=False)
    sample_sweeps.cache_clear()
    yield shipped
    sample_sweeps.cache_clear()


def test_a_newcomer_sees_a_sample_of_which_nothing_is_changed(sampled, monkeypatch):
    before = {path: path.read_bytes() for path in sampled.rglob("*") if path.is_file()}
    tab = opened()
    (picker,) = [each for each in tab.selectbox if each.key == "sweep"]
    assert [option.partition(" · ")[0] for option in picker.options] == ["Sample", "Sample"]
    assert picker.value == "sample:a-mars" and titles(tab)
    assert not [button for button in tab.button if button.key in ("add-prompts", "sweep-first")]
    assert "nothing is added to it" in said(tab)
    monkeypatch.setattr(study_module.CachedSweep, "shipped", False)
    assert [button for button in opened().button if button.key == "add-prompts"]  # else the page would offer it
    assert {path: path.read_bytes() for path in sampled.rglob("*") if path.is_file()} == before


def test_ones_own_sweeps_stand_before_the_samples(sampled, tmp_path):
    toy_sweep(tmp_path / "results" / "mine", 3).finish()
    assert list(shelf(tmp_path / "results").labels) == ["mine", "sample:a-mars", "sample:b-margin"]


def test_a_check_by_the_clock_of_a_sample_is_kept_in_memory_alone(sampled, monkeypatch):
    jobs = []
    monkeypatch.setattr(tab_jobs.shared_worker(), "begin", lambda job, *names: jobs.append(job))
    sweep_requests.check_clock(load_sweep(sampled / "a-mars"), 0.9, 1, 1)
    job = pickle.loads(pickle.dumps(jobs[0]))  # as it comes to the process that has the models
    job._keep(timing())
    assert not (sampled / "a-mars" / "checks").exists()
    job.tell(check=timing())
    monkeypatch.setattr(detail, "_check", lambda *_: job)
    assert len(detail.all_checks(CachedSweep(load_sweep(sampled / "a-mars")), 0.9).found) == 1


def test_a_files_further_prompts_are_added_and_another_file_is_refused(empty, monkeypatch):
    def file(count: int, word: str = "w3") -> bytes:
        lines = [{"id": f"p{i}", "prompt": f"prompt {i}", "answer": word, "grader": "contains"} for i in range(count)]
        return "\n".join(map(json.dumps, lines)).encode()

    swept = [PromptItem(f"p{i}", "general", f"prompt {i}", "w3", "contains") for i in range(4)]
    sweep_over(empty / "a", PromptSet("mine.jsonl", tuple(swept)))
    tab, asked = opened(sweep="a"), []
    monkeypatch.setattr(sweep_requests, "go_on", lambda entry, beside, prompts: asked.append(prompts))
    key = next(each.key for each in tab.file_uploader if each.key.startswith("more-file"))

    def offered(data: bytes) -> AppTest:
        tab.file_uploader(key=key).set_value(("mine.jsonl", data, "application/json"))
        return settled(tab.run())

    assert "p0 reads otherwise there" in said(offered(file(9, "w4")))
    assert "p3 is not among them" in said(offered(file(3)))
    assert "mine.jsonl has 9 that are graded; about " in said(offered(file(9)))
    assert tab.button(key="add-file-prompts").label == "Add 5 prompts of the file"
    clicked(tab, "add-file-prompts")
    assert [item.id for item in asked[0].items] == [f"p{i}" for i in range(9)]


def test_what_is_not_overlaid_is_said(folder):
    tab = opened(sweep="a-mars", **{"with": "gone,c-ungraded,e-broken,b-margin"})
    text = said(tab)
    assert "Not here any more, so not overlaid: gone." in text
    for name in ("c-ungraded", "e-broken"):
        assert f"{name} is not overlaid: it is unfinished, cannot be read, or has other prompts" in text
    assert "is fastest" in titles(tab)[0]


def test_two_sweeps_that_read_alike_can_both_be_chosen(empty):
    for name in ("a", "b"):
        toy_sweep(empty / name, 3).finish()
    for name in ("a", "b", "a"):
        tab = opened(sweep="b" if name == "a" else "a")
        settled(tab.selectbox(key="sweep").select(name).run())
        assert tab.query_params["sweep"] == name
    assert (
        len(set(shelf(empty).labels.values())) == 2 and len(set(opened(sweep="a").selectbox(key="sweep").options)) == 2
    )


def test_a_sweep_that_vanishes_while_it_is_opened_is_a_sentence(empty):
    toy_sweep(empty / "a", 3).finish()
    found = shelf(empty)
    shutil.rmtree(empty / "a")
    with pytest.raises(BadInput, match="cannot be read .*Choose another"):
        found.opened("a")


def test_what_a_sweep_under_way_has_finished_is_drawn_while_it_goes_on(empty, monkeypatch):
    """A prompt of five more on disk, and the job that says so: the page is drawn again without a hand on it."""
    sweep = toy_sweep(empty / "a", 5)
    going = iter(sweep)
    next(now for now in going if now.finished == 2)
    job = SweepJob(empty / "a", lambda pair: sweep, "a")
    job.tell(state=JobState.DECODING, prompts=5, finished=2)
    tab_jobs.shared_worker().name(job, empty / "a")
    tab = opened(sweep="a")
    assert "So far, from the first 2 of 5 prompts: " in said(tab) and element(tab)["figure"]["rows"]
    asked = []

    def outdated(drawn: ShownResults, sweep: str, finished: int, now: float) -> bool:
        asked.append((drawn.sweep, drawn.finished, finished))
        if len(asked) == 1:
            next(now for now in going if now.finished == 3)
            job.tell(finished=3)
        return len(asked) == 1

    monkeypatch.setattr(ShownResults, "outdated", outdated)
    settled(tab.run())
    assert asked == [("a", 2, 2), ("a", 3, 3)], "drawn with two, and at once again with three"
    assert "So far, from the first 3 of 5 prompts: " in said(tab)


def test_a_sweep_under_way_without_results_is_drawn_anew_only_when_more_has_finished(empty, monkeypatch):
    (empty / "a").mkdir(parents=True)
    (empty / "a" / "sweep.json").write_text("{}")
    job = SweepJob(empty / "a", lambda pair: None, "a")
    job.tell(state=JobState.DECODING, prompts=5, finished=2)
    tab_jobs.shared_worker().name(job, empty / "a")
    tab = opened(sweep="a")
    drawn = tab.session_state["mars_viz_TunePageState"].drawn
    later = drawn.ended + 1000
    assert "cannot be opened" in said(tab) and not drawn.outdated("a", 2, later) and drawn.outdated("a", 3, later)


def test_the_more_there_is_to_draw_the_less_often_a_growing_sweep_is_drawn():
    quick, slow = ShownResults("a", 2, 100.0, 100.1), ShownResults("a", 2, 100.0, 103.0)
    assert not quick.outdated("a", 3, 101.9) and quick.outdated("a", 3, 102.2)
    assert not slow.outdated("a", 3, 117.9) and slow.outdated("a", 3, 118.1)
    assert not quick.outdated("a", 2, 1000.0) and not quick.outdated("b", 3, 1000.0)


def test_a_wall_clock_check_is_shown_again_when_the_server_knows_nothing_of_it(empty):
    result = toy_sweep(empty / "a", 3).finish()
    check = timing()
    keep_check(result.folder, replace(check, created="2026-01-01T10:00:00+00:00"))
    keep_check(result.folder, replace(check, dial=0.5, created="2026-01-02T10:00:00+00:00"))
    (result.folder / "checks" / "broken.json").write_text("{")
    tab = section(opened(sweep="a", dial="0.9"), 3)
    assert "Measured 2× (2 to 2) as fast as strict (modelled 1.50×)" in said(tab).replace("2.00", "2")
    assert list(frames(tab)[0].value["measured, UTC"]) == ["2026-01-02 10:00", "2026-01-01 10:00"]
    assert "broken.json" in said(tab) and "Remove it" in said(tab)
    assert "with the wall-clock check" in said(section(opened(sweep="a", dial="0.9"), 5))
    assert "without a wall-clock check" in said(section(opened(sweep="a", dial="0.7"), 5))


def test_a_sweep_of_a_hostile_name_opens_like_any_other(empty):
    name = "<img src=x onerror=alert(1)> 'q' \u202e"
    toy_sweep(empty / name, 3).finish()
    tab = opened(sweep=name)
    assert "MARS at θ = " in said(tab) and "<img" not in said(tab) and element(tab)["figure"]["rows"]
    assert tab.query_params["sweep"] == name


def test_a_sweep_of_strict_alone_opens(empty):
    """As `mars-viz sweep --low 1` makes it: there is no way to move the dial."""
    prompts, span = toy_prompts(3), Span(1.0, 1.0, (3,))
    Sweep(table_backend(), prompts, SETTINGS, span, empty / "a").finish()
    tab = opened(sweep="a")
    knob = element(tab)["knobs"][0]
    assert knob["low"] == knob["high"] == 1.0 and "is strict" in said(tab)


@pytest.mark.parametrize("parameters", [{"loss": "0.001"}, {"confidence": "0.9999"}, {"loss": "100"}])
def test_limits_at_the_ends_of_what_is_allowed_open(folder, parameters):
    assert "prompts" in said(opened(sweep="a-mars", **parameters))


def test_the_range_of_every_rules_dial_can_be_narrowed(empty, monkeypatch):
    begun = []
    monkeypatch.setattr(
        sweep_requests, "_begin", lambda wish, names, span, into: begun.append((*names, span)) or [into / "a"]
    )
    tab = opened()
    settled(tab.multiselect(key="sweep-rules").set_value(["mars", "tensorrt-llm", "top-k-set"]).run())
    for name, strict, value in (("mars", 1.0, 0.8), ("tensorrt-llm", 0.0, 0.25), ("top-k-set", 1.0, 5.0)):
        end = tab.number_input(key=f"sweep-strict-{name}")
        assert end.disabled and end.value == strict
        tab.number_input(key=f"sweep-loosest-{name}").set_value(value)
    clicked(tab, "sweep-begin")
    assert begun == [
        ("mars", Span(0.8, 1.0, (6,))),
        ("tensorrt-llm", Span(0.0, 0.25, (6,))),
        ("top-k-set", Span(1.0, 5.0, (6,))),
    ]


def test_a_range_that_leaves_nothing_to_sweep_is_a_sentence_and_nothing_is_begun(empty):
    tab = opened()
    tab.number_input(key="sweep-loosest-mars").set_value(1.0)
    clicked(tab, "sweep-begin")
    assert "MARS: θ = 1.00 is strict itself" in said(tab) and not empty.exists()
    for loosest, why in ((1.5, "must lie between"), (float("nan"), "must lie between")):
        with pytest.raises(BadInput, match=why):
            sweep_requests.span_to("mars", loosest, 4)


@pytest.mark.parametrize(
    ("lines", "choices", "sentence"),
    [
        ('{"prompt": "a", "answer": "1", "grader": "exact"}\nnonsense\n', {}, "prompts.jsonl, line 2: it is no JSON"),
        ("\n\n", {}, "holds no prompt"),
        ('{"prompt": "a", "answer": "1"}', {}, "no grader was named"),
        ('{"prompt": "a", "answer": "1", "grader": "vibes"}', {}, "There is no grader"),
        ('{"question_id": 1, "category": "x", "turns": []}', {}, "is no list of texts"),
        ('{"question_id": 1, "category": "x", "turns": ["Hi", ""]}', {}, "a later turn of 'turns' is blank"),
        ('{"question_id": 1, "category": "x", "turns": ["Hi"]}', {"grader": "contains"}, "holds no answers to grade"),
    ],
)
def test_bad_input_is_a_sentence_on_the_page_and_nothing_is_begun(empty, lines, choices, sentence):
    tab = uploaded(opened(), lines, **choices)
    assert sentence in said(tab).replace("&#x27;", "'") and "/tmp" not in said(tab)
    assert not jobs_in(empty) and not empty.exists()


@pytest.mark.parametrize("packed", [bytes, gzip.compress], ids=["text", "gzip"])
def test_a_file_of_text_is_swept_line_by_line_and_system_messages_are_told(empty, monkeypatch, packed):
    begun = []
    monkeypatch.setattr(sweep_requests, "begin", lambda wish, results, into: (begun.append(wish.prompts), ["none"])[1])
    talk = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]}
    for data, asked in (
        (b"Once\n\nTwice\r\n", [("", "Once"), ("", "Twice")]),
        (json.dumps(talk), [("Be brief.", "Hi")]),
    ):
        tab = opened()
        tab.segmented_control(key="sweep-source").set_value("My own file")
        settled(tab.run())
        contents = packed(data if isinstance(data, bytes) else data.encode())
        tab.file_uploader(key="sweep-file").set_value(("question.jsonl.gz", contents, "application/gzip"))
        clicked(tab, "sweep-begin")
        assert [(item.system, item.prompt) for item in begun[-1].items] == asked
        assert ("System messages go through" in said(tab)) == bool(asked[0][0])


@pytest.mark.parametrize(("choice", "ids"), [(Turns.ALL, ["q/1", "q/2", "r"]), (Turns.FIRST, ["q", "r"])])
def test_conversations_are_swept_as_chosen_and_the_page_says_what_later_turns_follow(empty, monkeypatch, choice, ids):
    begun = []
    monkeypatch.setattr(sweep_requests, "begin", lambda wish, results, into: (begun.append(wish.prompts), ["none"])[1])
    lines = '{"question_id": "q", "turns": ["Hi", "And?"]}\n{"question_id": "r", "turns": ["Bye"]}'
    tab = opened()
    tab.segmented_control(key="sweep-source").set_value("My own file")
    settled(tab.run())
    assert tab.segmented_control(key="sweep-turns").value == Turns.ALL
    tab.segmented_control(key="sweep-turns").set_value(choice)
    tab.file_uploader(key="sweep-file").set_value(("prompts.jsonl", lines.encode(), "application/json"))
    settled(tab.run())
    captions = " ".join(caption.value for caption in tab.caption)
    follows = "later turns follow the target's own answers, the same at every setting"
    assert (follows in captions) == (choice is Turns.ALL)
    assert f"{len(ids)} prompts: at most" in captions
    clicked(tab, "sweep-begin")
    (prompts,) = begun
    assert [item.id for item in prompts.items] == ids
    left_out = "1 later turn is left out"
    assert (follows if choice is Turns.ALL else left_out) in said(tab).replace("&#x27;", "'")


def test_a_sweep_of_conversations_says_what_is_resampled(empty):
    items = [
        PromptItem(f"q{n}/{turn}", "talk", f"{n} {turn}", "w3", "contains", question=f"q{n}", turn=turn)
        for n in range(4)
        for turn in (1, 2)
    ]
    Sweep(table_backend(), PromptSet("talks", tuple(items)), SETTINGS, Span(0.0, 1.0, (3,)), empty / "talks").finish()
    tab = opened(sweep="talks")
    assert "later turns follow the target's own answers" in said(tab).replace("&#x27;", "'")
    assert "8 prompts of talks, turns of 4 questions" in said(tab)
    assert "bootstrap (corrected for bias and skew) over questions" in said(tab)
    tab = section(tab, 4)
    engines = frames(tab)[0].value.set_index("engine")
    assert re.fullmatch(r"[0-9.]+ \([0-9.]+ to [0-9.]+\)", engines.loc["vLLM", "length"])
    assert engines.loc["LM Studio", "length"] == "–"


def test_the_form_s_tree_and_choice_among_siblings_are_swept(empty, monkeypatch):
    begun: list[SweepJob] = []
    monkeypatch.setattr(Worker, "submit", lambda worker, job: begun.append(job))
    tab = opened()
    assert "sweep-depth" not in {each.key for each in tab.number_input}
    settled(tab.multiselect(key="sweep-rules").set_value(["mars", "lenience"]).run())
    settled(tab.segmented_control(key="sweep-draft").set_value("Tree").run())
    assert "sweep-gamma" not in {each.key for each in tab.number_input}
    tab.number_input(key="sweep-nodes").set_value(8)
    tab.selectbox(key="sweep-siblings").set_value(Policy.LONGEST)
    settled(tab.number_input(key="sweep-temperature").set_value(1.0).run())
    clicked(tab, "sweep-begin")
    assert "does not judge draft trees above temperature 0" in said(tab) and not begun
    tab.multiselect(key="sweep-rules").set_value(["mars", "sglang-acc"])
    settled(tab.number_input(key="sweep-temperature").set_value(0.0).run())
    clicked(tab, "sweep-begin")
    tree = "tree of 8 nodes, depth 6, branching 4"
    assert [job.label.partition(" ·")[0] for job in begun] == [
        f"MARS, siblings longest, {tree}",
        f"SGLang, accumulated threshold, {tree}",
    ]


def test_the_form_says_what_is_missing(empty):
    tab = opened()
    settled(tab.multiselect(key="sweep-rules").set_value([]).run())
    clicked(tab, "sweep-begin")
    assert "Choose at least one rule" in said(tab)
    tab.segmented_control(key="sweep-source").set_value("My own file")
    settled(tab.run())
    clicked(tab, "sweep-begin")
    assert "Choose a file of prompts first" in said(tab)


NO_NAMES = ["../x", "a/b", "a\\b", "..", ".", ".hidden", "~", "~root"]
NO_NAMES += ["a\x00b", "a\nb", "\u202eb", "x" * 81, "nul", "a."]


@pytest.mark.parametrize("text", [*NO_NAMES, str(ROOT / "app.py"), "/etc/passwd", "/etc", "/no/such/place"])
def test_visitors_choose_a_name_and_the_server_where(empty, monkeypatch, text):
    """Nothing is looked at outside of the server's folder: what is there and what is not are one sentence."""
    looked = []
    for name in ("stat", "exists", "is_file", "is_dir", "expanduser", "mkdir"):
        real = getattr(Path, name)
        seen = lambda path, *more, _real=real, **how: (looked.append(path), _real(path, *more, **how))[1]  # noqa: E731
        monkeypatch.setattr(Path, name, seen)
    with pytest.raises(BadInput, match="without a path|folder's name"):
        sweep_requests.checked_folder(text)
    assert looked == [] and not os.path.exists(empty)


def test_a_name_is_a_folder_in_the_server_s(empty):
    assert sweep_requests.checked_folder("") == sweep_requests.checked_folder(" ") == (empty, empty)
    assert sweep_requests.checked_folder(" Alice, 1 ") == (empty / "Alice, 1", empty)
    toy_sweep(empty / "swept", 2).finish()
    (empty / "notes.txt").write_text("")
    for taken in ("swept", "notes.txt"):
        with pytest.raises(BadInput, match="is a sweep or a file itself"):
            sweep_requests.checked_folder(taken)
    (empty / "mine").mkdir()
    assert sweep_requests.checked_folder("mine") == (empty / "mine", empty)


def test_whoever_may_name_paths_can_have_another_folder(empty, tmp_path, monkeypatch):
    monkeypatch.setattr(visitors, "may_name_paths", lambda: True)
    elsewhere = tmp_path / "elsewhere"
    assert sweep_requests.checked_folder(f" {elsewhere}") == (elsewhere, elsewhere)
    assert sweep_requests.checked_folder("mine") == (empty / "mine", empty)
    for text in ("a/b", str(ROOT / "app.py"), "~nobody-here/x", "/a\x00b", "/" + "x" * 300):
        with pytest.raises(BadInput):
            sweep_requests.checked_folder(text)


def test_a_sweep_in_a_folder_with_a_name_is_found_and_opened(empty, monkeypatch):
    begun: list[SweepJob] = []
    monkeypatch.setattr(Worker, "submit", lambda worker, job: begun.append(job))
    tab = opened()
    tab.text_input(key="sweep-folder").set_value("mine")
    clicked(tab, "sweep-begin")
    (job,) = begun
    assert job.folder.parent == empty / "mine"
    toy_sweep(job.folder, 3).finish()
    again = opened(sweep=f"mine/{job.folder.name}")
    assert again.query_params["sweep"] in (f"mine/{job.folder.name}", [f"mine/{job.folder.name}"])
    assert len(titles(again)) == 1
    (entry,) = shelf(empty).entries
    assert entry == f"mine/{job.folder.name}"


def test_no_more_folders_are_made_than_are_listed(empty):
    wish = sweep_requests.first_wish()
    for place in range(100):
        (empty / f"other-{place:03}").mkdir(parents=True)
    with pytest.raises(BadInput, match="no more are listed. Choose one of them"):
        sweep_requests.begin(wish, empty, empty / "mine")
    for place in range(100):
        (empty / "other-007" / f"{place}").mkdir()
    with pytest.raises(BadInput, match="The folder other-007 is full"):
        sweep_requests.begin(wish, empty, empty / "other-007")


def finished(results: Path) -> Any:
    """The one job on this folder of results, at its end."""
    (job,) = jobs_in(results).values()
    end = time.monotonic() + PATIENCE
    while not job.progress.state.finished:
        assert time.monotonic() < end, job.progress
        time.sleep(0.05)
    return job.progress


def test_a_sweep_with_the_built_in_pair_from_the_form_to_the_clock(empty):
    """The one test that runs models: bad lines left out, a prompt over the context, a sweep, the wall-clock check."""
    tab = opened()
    tab.number_input(key="sweep-tokens").set_value(6)
    tab.number_input(key="sweep-gamma").set_value(2)
    long = json.dumps({"prompt": "word " * 2000})
    lines = ['{"prompt": "Add 1 and 2.", "answer": "3", "id": "<img src=x>"}', "nonsense", long, '{"prompt": "Hi"}']
    tab = uploaded(tab, "\n".join(lines), grader="last-number", skip=True)
    assert "Line 2 is left out" in said(tab)
    progress = finished(empty)
    assert (progress.error, progress.finished, progress.failed) == ("", 3, 1)
    (path,) = empty.iterdir()
    again = opened(sweep=path.name)
    assert "1 prompt without results" in said(again) and "<img" not in said(again)
    again = section(again, 3)
    again.number_input(key="clock-prompts").set_value(1)
    again.number_input(key="clock-repetitions").set_value(2)
    settled(again.run())
    clicked(again, "clock-begin")
    result = load_sweep(path)
    dial = CachedSweep(result).dial(None, 1.0, 0.95)
    end = time.monotonic() + PATIENCE
    while (job := tab_jobs.shared_worker().find((path, dial))) is None or not job.progress.state.finished:
        assert time.monotonic() < end
        time.sleep(0.05)
    assert job.progress.error == "" and job.progress.done == job.progress.decodes == 6
    assert "Measured" in said(settled(again.run()))
    (check,) = kept_checks(path, result.plan).found
    assert check.to_json() == job.progress.check.to_json() and check.created


def test_links_round_trip():
    views = [
        TuneView(),
        TuneView("a", 0.25, ("b", "c"), 2.0, 0.9),
        replace(TuneView("x"), points=0.5),
    ]
    for view in views:
        assert from_parameters(TuneView, to_parameters(view)) == Opened(view)


def test_every_grader_can_be_chosen(empty):
    tab = opened()
    tab.segmented_control(key="sweep-source").set_value("My own file")
    options = settled(tab.run()).selectbox(key="sweep-grader").options
    assert all(any(option.startswith(f"{name}:") for option in options) for name in GRADERS)


def place_of(mark: Locator) -> tuple[float, float]:
    """Where it is on the page; a figure that is being drawn anew has none for a moment."""
    end = time.monotonic() + PATIENCE
    while (box := mark.bounding_box() if mark.count() == 1 else None) is None:
        assert time.monotonic() < end, "the mark never came back"
        time.sleep(0.05)
    return box["x"], box["y"]


def test_in_a_browser_the_dial_answers_under_the_hand_and_the_page_when_it_rests(folder, browser):
    """The one test with Chromium: a finished sweep, its dial by hand and by keys, and what a screen reader is told."""
    study = CachedSweep(load_sweep(folder / "a-mars"))

    def shows(value: float) -> None:
        tiles = page.locator(".setting > div")
        for tile, name in enumerate(name for name in KEY if name in study.measures):
            estimate = cell(study.measures[name], study.value(name, value)).partition(" (")[0]
            expect(tiles.nth(tile).locator("dd").first).to_have_text(estimate)

    with served(ROOT / "app.py") as address, browser.new_page() as page:
        page.goto(f"{address}/tune?sweep=a-mars&dial=0.9", wait_until="commit")
        sentence, slider = page.locator(".mv-lead"), page.get_by_role("slider", name="ratio threshold")
        expect(sentence).to_contain_text("MARS at θ = 0.90")
        expect(page.locator(".js-plotly-plot .annotation-text").get_by_text("θ = 0.90")).to_have_count(1)
        shows(0.9)
        box = slider.bounding_box()
        y = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + 0.9 * box["width"], y)
        page.mouse.down()
        page.mouse.move(box["x"] + 0.4 * box["width"], y, steps=4)
        held = slider.evaluate("range => range.valueAsNumber")
        assert held == pytest.approx(0.4, abs=0.02)
        shows(held)
        expect(page.locator(".js-plotly-plot .annotation-text").get_by_text(f"θ = {held:.2f}")).to_have_count(1)
        mark = page.locator(
            ".js-plotly-plot .annotation[data-index]", has_text=f"θ = {held:.2f}"
        ).first  # two for a moment, while it is drawn anew
        moved = place_of(mark)
        expect(sentence).to_contain_text("MARS at θ = 0.90")  # the hand has not rested
        page.mouse.up()
        expect(sentence).to_contain_text(f"MARS at θ = {exactly(held)}")
        page.wait_for_function(
            "() => ![...document.querySelectorAll('.js-plotly-plot *')].some(e => e.style.translate)"
        )
        now = place_of(mark)
        assert now == pytest.approx(moved, abs=8)  # drawn where it was moved to
        expect(page.get_by_role("status").filter(has_text="tokens per target pass")).to_have_count(1)
        slider.press("Home")
        shows(0.0)
        expect(page).to_have_url(f"{address}/tune?sweep=a-mars&dial=0")
        expect(slider).to_be_focused()
        assert not (found := violations(page)), in_words(found)
        for width in (1400, 375):
            page.set_viewport_size({"width": width, "height": 900})
            page.goto(f"{address}/tune?sweep=a-mars&with=b-margin", wait_until="commit")
            expect(page.locator(".js-plotly-plot .gtitle")).to_contain_text("is fastest")
            page.wait_for_function(NAMES_STAND_APART)


def test_in_a_browser_trees_are_swept_and_named(empty, browser):
    with served(ROOT / "app.py") as address, browser.new_page() as page:
        page.goto(f"{address}/tune", wait_until="commit")
        page.get_by_role("button", name="New sweep").click()
        count = page.get_by_role("spinbutton", name="Prompts of each task")
        count.fill("1")
        count.press("Enter")
        page.get_by_text("Dial range, settings and folder").click()
        page.get_by_role("radio", name="Tree").click()
        for name, value in (("Depth", "2"), ("Nodes", "4")):
            box = page.get_by_role("spinbutton", name=name)
            box.fill(value)
            box.press("Enter")
        page.get_by_role("button", name="Sweep", exact=True).click()
        expect(page.get_by_text("tree of 4 nodes, depth 2, branching 4, temperature 0")).to_be_visible()
    (path,) = empty.iterdir()
    assert load_sweep(path).plan.settings.tree == "dynamic:depth=2,topk=4"


def test_in_a_browser_the_form_closes_and_prompts_are_added_and_stopped(empty, browser):
    """With the built-in pair: a sweep of six prompts, then as many more as its test needs, stopped and kept."""
    with served(ROOT / "app.py") as address, browser.new_page() as page:
        page.goto(f"{address}/tune", wait_until="commit")
        page.get_by_role("button", name="New sweep").click()
        count = page.get_by_role("spinbutton", name="Prompts of each task")
        count.fill("1")
        count.press("Enter")
        expect(page.get_by_text("6 prompts: about")).to_be_visible()
        page.get_by_role("button", name="Sweep", exact=True).click()
        expect(count).to_have_count(0)
        page.get_by_role("button", name=re.compile("^Add .* prompts$")).click()
        (path,) = empty.iterdir()
        stop = page.get_by_test_id("stMainBlockContainer").get_by_role("button", name="Stop")
        until(lambda: stop.is_visible() or load_sweep(path).finished > 6, pause=0.05)
        with suppress(TimeoutError):  # beside other work it may be done before it can be stopped
            stop.click(timeout=20_000)
        page.get_by_role("button", name="Continue").or_(page.get_by_role("button", name=re.compile("^Add "))).wait_for()
        kept = load_sweep(path)
        assert kept.finished >= 6 and list(kept.prompts["id"][:6]) == [item.id for item in builtin_prompts(1).items]
