"""Memory of a tab that visits many runs and pages.

Streamlit keeps the arguments of every widget as long as a session lives, so no widget may hold anything large.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from mars_viz import default_folders
from mars_viz.analysis.all_rules import AllRules
from mars_viz.run import Run
from mars_viz.sweep import SweepResult
from mars_viz.ui import library, tab_jobs
from mars_viz.ui.library import RunCache
from mars_viz.ui.rule_lab.page_state import Known, Panels, RulesPageState
from tests import tabs
from tests.factories import toy_run
from tests.sweep_cases import SETTINGS, toy_sweep
from tests.tab_tools import keys

RUNS = 4


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Some short runs, and room in the server's memory for the one that was asked for last."""
    for seed in range(RUNS):
        replace(toy_run(temperature=1.0, seed=seed), title=f"Run {seed}").save(tmp_path / f"run-{seed}")
    monkeypatch.setenv("MARS_VIZ_RUNS", str(tmp_path))
    monkeypatch.setenv("MARS_VIZ_SAMPLES", "off")
    cache = RunCache(library.read, budget=1)
    monkeypatch.setattr(library, "_cache", lambda: cache)
    return tmp_path


def alive(kind: type, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Counts the objects of that class that are made from now on and still alive."""
    found: list[weakref.ref[Any]] = []
    begin = kind.__init__

    def noted(self: Any, *given: Any, **named: Any) -> None:
        begin(self, *given, **named)
        found.append(weakref.ref(self))

    monkeypatch.setattr(kind, "__init__", noted)
    return lambda: gc.collect() * 0 + len([each for each in found if each() is not None])


def left(tab: AppTest) -> None:
    """The tab has gone to another page, and the server's caches hold nothing."""
    tab.query_params = {}
    tabs.settled(tab.switch_page("pages/gallery.py").run())
    st.cache_resource.clear()


def walk_through(tab: AppTest) -> None:
    for seed in range(1, RUNS):
        tabs.settled(tab.selectbox(key="run").set_value(f"run-{seed}").run())
    assert tab.query_params["run"] == "run-3"


def test_rules_forgets_what_the_rules_said_of_the_run_before(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tab_jobs, "why_not_again", lambda session, run: "")
    panels = alive(AllRules, monkeypatch)
    tab = tabs.opened("pages/rules.py", run="run-0")
    assert not tab.button(key="lab-every-rule").disabled and panels() == 1
    walk_through(tab)
    assert 1 <= panels() <= 2
    tab.session_state["mars_viz_RulesPageState"].panel = None  # the tab's own, which it keeps for when it comes back
    left(tab)
    assert not panels()


def test_tabs_on_one_run_share_what_the_rules_say_of_it_unless_one_knows_more() -> None:
    run, panels = toy_run(), Panels()
    held = panels.of(run)
    assert panels.of(run) is held and panels.of(replace(run)) is not held
    gone = weakref.ref(held)
    del held
    gc.collect()
    assert gone() is None and panels.of(run).run is run
    one, other = RulesPageState(), RulesPageState()
    one.known["a"] = Known(run, {})
    assert other.panel_of("a", run) is RulesPageState().panel_of("a", run) is not one.panel_of("a", run)


def test_no_widget_of_compare_holds_a_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = alive(Run, monkeypatch)
    tab = tabs.opened("pages/compare.py", run="run-0", across="settings")
    first = runs()
    walk_through(tab)
    assert runs() <= first
    tab = tabs.opened("pages/compare.py", run="run-0", across="runs")
    assert runs() >= RUNS
    memory = tab.session_state["mars_viz_Comparison"]
    for kept in (memory.known, memory.alignments, memory.payloads):  # what the tab is to come back to
        kept.clear()
    left(tab)
    assert runs() <= 2, "one in the cache, and a card's"


@pytest.mark.parametrize(
    ("page", "asked"),
    [
        ("pages/compare.py", {"across": "sweep", "sweep": "k1", "beside": "k2"}),
        ("pages/tune.py", {"sweep": "k1"}),
    ],
)
def test_a_page_of_sweeps_is_left_without_them(folder, tmp_path_factory, monkeypatch, page, asked) -> None:
    made_in = tmp_path_factory.mktemp("sweeps")
    for k in (1, 2):
        toy_sweep(made_in / f"k{k}", 4, replace(SETTINGS, rule=f"vllm-thinking:k={k}")).finish()
    monkeypatch.setenv(default_folders.SWEEPS, str(made_in))
    results = alive(SweepResult, monkeypatch)
    tab = tabs.opened(page, **asked)
    if page == "pages/tune.py":
        tab.session_state["tune-section-0"] = tab.session_state["tune-section-6"] = True
        tabs.settled(tab.run())
    assert {"compare-prompt", "grid-figure"} & keys(tab) and results()
    left(tab)
    assert not results()
