"""A fault in a run, race or sweep is shown in its place, with the traceback in the log.

A fault is raised at the n-th access of a page to a record: at the first one and while the page is drawn.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
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
from mars_viz.ui.tune import catalogue
from mars_viz.ui.tune.cached_sweep import CachedSweep
from tests.sweep_cases import toy_sweep
from tests.tabs import opened
from tests.test_learn_page import with_map
from tests.test_race import toy_race


@dataclass
class Fault:
    at: int  # the access at which it is raised
    error: type[Exception]
    accesses: int = 0

    def put(self, record: Any) -> Any:
        """Return the same record, which raises the fault."""
        fault, kind = self, type(record)

        class Watched(kind):
            __slots__ = ()

            def __getattribute__(self, name: str) -> Any:
                fault.accesses += not name.startswith("_")
                if fault.accesses == fault.at and not name.startswith("_"):
                    raise fault.error("a fault that was put here")
                return super().__getattribute__(name)

        watched = copy(record)
        object.__setattr__(watched, "__class__", Watched)
        return watched


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    for name in ("a-good", "b-bad"):
        with_map(f"A {name[2:]} story", temperature=0.0, dial=0.8).save(folder / "runs" / name)
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
    cache = RunCache(lambda path: fault.put(load_run(path)) if path.name == "b-bad" else load_run(path))
    monkeypatch.setattr(library, "_cache", lambda: cache)
    race = fault.put(load_race(folder / "races" / "1-race"))
    monkeypatch.setattr(page_state, "_loaded", lambda path, changed: race)
    study = fault.put(CachedSweep(load_sweep(folder / "sweeps" / "a-mars")))
    monkeypatch.setattr(catalogue, "_study", lambda path, finished, changed: study)


def sentences(tab: AppTest) -> str:
    return " ".join(html.body for html in tab.html)


@pytest.mark.parametrize(
    ("page", "link"),
    [
        ("gallery", {}),
        ("learn", {"run": "b-bad"}),
        ("compare", {"run": "b-bad"}),
        ("compare", {"run": "a-good", "across": "runs"}),
        ("explore", {"run": "b-bad"}),
        ("rules", {"run": "b-bad"}),
        ("live", {"view": "race"}),
        ("tune", {}),
    ],
)
def test_a_fault_in_a_record_stays_where_it_is_drawn(faults, folder, monkeypatch, page, link):
    for at, error in ((1, OverflowError), (12, MemoryError)):
        fault = Fault(at, error)
        put(fault, folder, monkeypatch)
        tab = opened(f"pages/{page}.py", **link)  # asserts that the page does not fail
        assert fault.accesses >= at
        assert error.__name__ in sentences(tab) or page == "gallery" or "across" in link, at
        assert [one.exc_info[0] for one in faults if one.exc_info] == [error] * len(faults) and faults, at
        if page == "gallery":
            assert any("A good story" in html.body and "<img" in html.body for html in tab.html)
        faults.clear()


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
    text = sentences(opened("pages/gallery.py"))
    assert "b-bad" in text and "A good story" in text
    faults.clear()


def test_what_is_contained_is_in_the_log_with_its_traceback(faults):
    with pytest.raises(BadInput, match="^This run cannot be shown .KeyError;"), contained("This run"):
        {}["missing"]
    for error in (BadInput("as it is"), KeyboardInterrupt("as it is")):
        with pytest.raises(type(error), match="^as it is$"), contained("This run"):
            raise error
    (record,) = faults
    assert record.exc_info is not None and record.exc_info[0] is KeyError
    faults.clear()
