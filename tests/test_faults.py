"""A fault in a run, race or sweep is shown in its place, with the traceback in the log.

A fault is raised at the n-th access of a page to a record, for several n: in loading, at first and while drawing.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from mars_viz import default_folders, samples
from mars_viz.errors import BadInput, contained
from mars_viz.race import load_race, save_race
from mars_viz.runfiles import folders, load_run
from mars_viz.sweep import load_sweep
from mars_viz.ui import library
from mars_viz.ui.library import RunCache
from mars_viz.ui.live import page_state
from mars_viz.ui.tune import catalogue as tune_shelf
from mars_viz.ui.tune.cached_sweep import CachedSweep
from tests.sweep_cases import toy_sweep
from tests.tabs import opened
from tests.test_learn_page import with_map
from tests.test_race import toy_race

ERRORS = (OverflowError, KeyError, MemoryError, RecursionError, ZeroDivisionError, IndexError, AssertionError, OSError)
PLACES = 3


@dataclass
class Fault:
    """Raised at an access to a record; 0 for never."""

    at: int = 0
    error: type[Exception] = KeyError
    looks: int = 0

    def look(self) -> None:
        self.looks += 1
        if self.looks == self.at:
            raise self.error("a fault that was put here")


def watched(record: Any, fault: Fault) -> Any:
    """The same record, which counts how often somebody looks at its parts, and raises the fault."""
    kind = type(record)
    parts = {field.name for field in fields(record)} if is_dataclass(record) else set()
    parts |= {name for name in vars(kind) if not name.startswith("_")}

    class Watched(kind):
        def __getattribute__(self, name: str) -> Any:
            if name in parts:
                fault.look()
            return super().__getattribute__(name)

    copy = object.__new__(Watched)
    held = {each.name: getattr(record, each.name) for each in fields(record)} if is_dataclass(record) else {}
    for name, value in {**held, **getattr(record, "__dict__", {})}.items():
        object.__setattr__(copy, name, value)
    return copy


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    for name in ("a-good", "b-bad"):
        title = f"A {name[2:]} story"
        with_map(title, temperature=0.0, dial=0.8).save(folder / "runs" / name)
    save_race(toy_race(), folder / "races" / "1-race")
    toy_sweep(folder / "sweeps" / "a-mars", 4).finish()
    return folder


@pytest.fixture
def folder(made, monkeypatch):
    monkeypatch.setenv("MARS_VIZ_RUNS", str(made / "runs"))
    monkeypatch.setenv("MARS_VIZ_SAMPLES", str(made / "runs"))
    monkeypatch.setenv(default_folders.SWEEPS, str(made / "sweeps"))
    monkeypatch.setattr(samples, "RACES", made / "races")
    return made


def put(fault: Fault, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a fault in the bad run, the race and the sweep, and empty the caches."""

    def read(path):
        run = load_run(path)
        return watched(run, fault) if path.name == "b-bad" else run

    cache = RunCache(read)
    monkeypatch.setattr(library, "_cache", lambda: cache)
    race = watched(load_race(folder / "races" / "1-race"), fault)
    monkeypatch.setattr(page_state, "_loaded", lambda path, changed: race)
    study = watched(CachedSweep(load_sweep(folder / "sweeps" / "a-mars")), fault)
    monkeypatch.setattr(tune_shelf, "_study", lambda path, finished, changed: study)


def sentences(tab: AppTest) -> str:
    return " ".join(html.body for html in tab.html)


PAGES: dict[str, tuple[str, dict[str, str]]] = {
    "Gallery": ("pages/gallery.py", {}),
    "Learn": ("pages/learn.py", {"run": "b-bad"}),
    "Compare": ("pages/compare.py", {"run": "b-bad"}),
    "Compare with others": ("pages/compare.py", {"run": "a-good", "across": "runs"}),
    "Explore": ("pages/explore.py", {"run": "b-bad"}),
    "Rules": ("pages/rules.py", {"run": "b-bad"}),
    "Live, races": ("pages/live.py", {"view": "race"}),
    "Tune": ("pages/tune.py", {}),
}


@pytest.mark.parametrize("page", PAGES)
def test_a_fault_in_a_record_stays_where_it_is_drawn(faults, folder, monkeypatch, page):
    path, link = PAGES[page]
    untouched = Fault()
    put(untouched, folder, monkeypatch)
    text = sentences(opened(path, **link))
    assert untouched.looks and "cannot be shown" not in text and not faults
    met = 0
    places = [1, *(round(1 + untouched.looks * n / PLACES) for n in range(1, PLACES))]
    for at, error in zip(places, cycle(ERRORS), strict=False):
        fault = Fault(at, error)
        put(fault, folder, monkeypatch)
        tab = opened(path, **link)  # asserts that the page does not fail
        if fault.looks < at:
            continue  # drawn from what is still cached
        met += 1
        assert error.__name__ in sentences(tab) or page in ("Gallery", "Compare with others"), at
        assert [one.exc_info[0] for one in faults if one.exc_info] == [error] * len(faults) and faults, at
        if page == "Gallery":
            good = [html.body for html in tab.html if "A good story" in html.body]
            assert good and "<img" in good[0]
        faults.clear()
    assert met > 1


def test_a_run_that_cannot_be_listed_is_a_card(faults, folder, monkeypatch):
    real, error = folders._about, KeyError

    def about(data):
        if b"A bad story" in data:
            raise error("a fault that was put here")
        return real(data)

    monkeypatch.setattr(folders, "_about", about)
    for error in (OSError, RecursionError, KeyError):
        good, bad = folders.list_runs(folder / "runs")
        assert good.error is None and bad.error is not None and (error.__name__ in bad.error or error is OSError)
    for page, link in (("gallery", {}), ("explore", {}), ("live", {"view": "saved"})):
        tab = opened(f"pages/{page}.py", **link)
        text = sentences(tab) + str([list(box.options) for box in tab.selectbox])
        text += "".join(table.value.to_string() for table in tab.dataframe)
        assert "b-bad" in text and "A good story" in text
    faults.clear()


def test_what_is_contained_is_in_the_log_with_its_traceback(faults):
    with pytest.raises(BadInput, match="^This run cannot be shown .KeyError;"), contained("This run"):
        {}["missing"]
    (record,) = faults
    assert record.exc_info is not None and record.exc_info[0] is KeyError
    with pytest.raises(BadInput, match=r"^as it is$"), contained("This run"):
        raise BadInput("as it is")
    with pytest.raises(KeyboardInterrupt), contained("This run"):
        raise KeyboardInterrupt
    assert len(faults) == 1
    faults.clear()
