"""What a tab that goes from run to run leaves in the server's memory: what it looks at, and no run before that.

Streamlit keeps what it was told of every widget for as long as a session lives, also of those long gone; so no widget
that is named for a run may hold anything large.
"""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from mars_viz.analysis.panel import Panel
from mars_viz.ui import library
from mars_viz.ui.bench import Bench, Known
from mars_viz.ui.rule_lab.panels import Panels
from mars_viz.ui.run_cache import RunCache
from tests import tabs
from tests.factories import toy_run

RUNS = 6


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


def made(kind: type, monkeypatch: pytest.MonkeyPatch) -> weakref.WeakSet[Any]:
    """Every object of that kind that is made from now on, as long as somebody holds it."""
    found: weakref.WeakSet[Any] = weakref.WeakSet()
    begin = kind.__init__

    def noted(self: Any, *given: Any, **named: Any) -> None:
        begin(self, *given, **named)
        found.add(self)

    monkeypatch.setattr(kind, "__init__", noted)
    return found


def walk_through(tab: AppTest) -> None:
    for seed in range(1, RUNS):
        tab.selectbox(key="run").set_value(f"run-{seed}")
        tabs.settled(tab.run())
    gc.collect()


def test_rules_forgets_what_the_rules_said_of_the_run_before(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    panels = made(Panel, monkeypatch)
    tab = tabs.opened("pages/rules.py", run="run-0")
    walk_through(tab)
    assert 1 <= len(panels) <= 2 and tab.query_params["run"] == "run-5"


def test_tabs_on_one_run_share_what_the_rules_say_of_it() -> None:
    run, panels = toy_run(), Panels()
    held = panels.of(run)
    assert panels.of(run) is held and panels.of(replace(run)) is not held
    gone = weakref.ref(held)
    del held
    gc.collect()
    assert gone() is None and panels.of(run).run is run


def test_a_tab_that_knows_more_of_a_run_does_not_share(folder: Path) -> None:
    run, one, other = toy_run(), Bench(), Bench()
    one.known["a"] = Known(run, {})
    assert other.panel_of("a", run) is Bench().panel_of("a", run)
    assert one.panel_of("a", run) is not other.panel_of("a", run)
