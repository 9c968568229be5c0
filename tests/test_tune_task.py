"""The Tune page's fields for a task of lm-evaluation-harness."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from harness_tasks import FLEXIBLE, STRICT, gsm8k_form
from streamlit.testing.v1 import AppTest
from sweep_cases import SETTINGS

from mars_viz import default_folders, samples
from mars_viz.dialmap import Span
from mars_viz.errors import SettingError
from mars_viz.prompts import harness, load_task
from mars_viz.sweep import Sweep
from mars_viz.sweep.store import list_sweeps
from mars_viz.ui import visitors
from mars_viz.ui.tune import form, sweep_requests
from mars_viz.ui.tune.sweep_requests import SweepRequest
from tests.tables import table_backend
from tests.test_tune_page import clicked, opened, said, settled


@pytest.fixture(autouse=True)
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(default_folders.SWEEPS, str(tmp_path / "results"))
    monkeypatch.setenv(samples.VARIABLE, "off")
    return tmp_path / "results"


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[SweepRequest]:
    """What was asked for, in place of the sweeps."""
    found: list[SweepRequest] = []
    monkeypatch.setattr(sweep_requests, "begin", lambda wish, results, into: (found.append(wish), ["none"])[1])
    return found


def on_tasks(**parameters: str) -> AppTest:
    tab = opened(**parameters)
    tab.segmented_control(key="sweep-source").set_value("Harness task")
    return settled(tab.run())


def test_a_task_is_swept_with_its_own_stop_strings_and_length(
    tmp_path: Path, begun: list[SweepRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visitors, "may_name_paths", lambda: True)
    path = gsm8k_form(tmp_path, 4, num_fewshot=1, generation_kwargs={"until": ["\n\n"], "max_gen_toks": 33})
    tab = on_tasks()
    assert form.OWN in [caption.value for caption in tab.caption]
    clicked(tab, "sweep-begin")
    assert "Name a task of lm-evaluation-harness first" in said(tab) and not begun
    tab.text_input(key="sweep-task").set_value(f" {path} ")
    tab.text_input(key="sweep-metric").set_value(FLEXIBLE)
    tab.number_input(key="sweep-fewshot").set_value(2)
    tab.number_input(key="sweep-task-limit").set_value(3)
    clicked(settled(tab.run()), "sweep-begin")
    (wish,) = begun
    assert wish.prompts == load_task(str(path), fewshot=2, metric=FLEXIBLE, limit=3).prompts
    assert wish.prompts.scores == (STRICT,) and len(wish.prompts) == 3
    assert wish.settings.stop == ("\n\n",) and wish.settings.max_new_tokens == 33


def test_visitors_name_no_file_of_a_task(begun: list[SweepRequest], monkeypatch: pytest.MonkeyPatch) -> None:
    """A task's file can run code."""
    monkeypatch.setattr(visitors, "may_name_paths", lambda: False)
    monkeypatch.setattr(harness, "loaded", lambda task: pytest.fail("it was loaded"))
    tab = on_tasks()
    tab.text_input(key="sweep-task").set_value("x.YML")
    clicked(settled(tab.run()), "sweep-begin")
    assert "Name a task that lm-evaluation-harness has itself" in said(tab) and not begun
    for task in ("/tmp/x.yaml", "x.yaml", "../x", "a\\b", "~/x.yaml"):
        with pytest.raises(SettingError, match="Name a task that"):
            sweep_requests.task_prompts(task, None, None, None)


def test_a_sweep_graded_by_a_file_is_gone_on_with_by_those_who_may_name_it(
    tmp_path: Path, empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = load_task(str(gsm8k_form(tmp_path, 2)))
    settings = task.settings(SETTINGS, 8)
    Sweep(table_backend(), task.prompts, settings, Span(0.0, 1.0, (settings.gamma,)), empty / "a")
    (entry,) = list_sweeps(empty)
    monkeypatch.setattr(visitors, "may_name_paths", lambda: False)
    with pytest.raises(SettingError, match="name paths"):
        sweep_requests.go_on(entry)


def test_no_link_chooses_a_task(tmp_path: Path) -> None:
    path = str(gsm8k_form(tmp_path, 1))
    parameters = {name: path for name in ("task", "sweep-task", "sweep_task", "sweep")}
    tab = on_tasks(**parameters, **{"sweep-source": "Harness task"})
    assert not tab.text_input(key="sweep-task").value
    assert opened(**{"sweep-source": "Harness task"}).segmented_control(key="sweep-source").value == "Built-in tasks"


def test_without_the_harness_the_page_says_how_to_get_it(
    begun: list[SweepRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    tab = on_tasks()
    assert "pip install mars-viz[eval]" in said(tab)
    assert "sweep-task" not in {each.key for each in tab.text_input}
    clicked(tab, "sweep-begin")
    assert not begun
