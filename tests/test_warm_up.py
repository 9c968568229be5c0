"""Preparations before the first tab, and figures that wait for the text of a run."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.parse import urlencode

import pyarrow
import pytest
from playwright.sync_api import Browser
from streamlit.testing.v1 import AppTest

from mars_viz.components.explorer import element
from mars_viz.components.explorer.element import RunPayload
from mars_viz.exploration import mapped
from mars_viz.ui import warm_up
from mars_viz.ui.session import KEY
from tests import tabs
from tests.factories import toy_map, toy_run
from tests.served import App

NOTE_FIRST_TOKEN = """
window.firstToken = new Promise((seen) => {
  const look = () => {
    const parts = [...document.querySelectorAll("[data-testid=stBidiComponentIsolated]")];
    if (parts.some((part) => part.shadowRoot?.querySelector(".explorer .t"))) seen(performance.now());
    else setTimeout(look, 2);
  };
  look();
});
"""
ASKED_FOR_FIGURES = """performance.getEntriesByType("resource")
  .filter((entry) => entry.name.includes("PlotlyChart")).map((entry) => entry.startTime)"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    toy_run(seed=7).save(tmp_path / "a-run")
    monkeypatch.setenv("MARS_VIZ_RUNS", str(tmp_path))
    monkeypatch.setenv("MARS_VIZ_SAMPLES", str(tmp_path))
    return tmp_path


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Seeds of the runs whose payloads were made, and their draft lengths."""
    found, make = [], RunPayload.of
    monkeypatch.setattr(RunPayload, "of", lambda run, *at: found.append((run.settings.seed, at[0])) or make(run, *at))
    return found


def test_the_first_tab_shows_what_the_warm_up_made_and_figures_wait_for_the_text(folder, made):
    warming = warm_up.WarmUp()
    warming.run()
    assert warming.imported.is_set() and "pandas" in sys.modules
    assert pyarrow.default_memory_pool().backend_name == "system"
    tabs.opened("pages/explore.py")
    assert [seed for seed, _ in made] == [7]

    def first_look() -> AppTest:
        """A tab whose browser has not shown any text."""
        tab = AppTest.from_file(tabs.APP, default_timeout=tabs.PATIENCE)
        return tabs.settled(tab.switch_page("pages/explore.py").run())

    tab = first_look()
    assert not tab.get("plotly_chart")
    tab.session_state[KEY].shows_text = True  # the browser's word
    assert len(tabs.settled(tab.run()).get("plotly_chart")) == 4
    replace(toy_run(), rounds=()).save(folder / "0-empty")
    assert len(first_look().get("plotly_chart")) == 4  # a run without text


def test_a_warm_up_without_a_run_or_with_a_failing_import_ends(folder, monkeypatch):
    assert not warm_up._warm_up.cache_info().currsize
    warm_up.wait_for_imports()  # without a warm-up
    for path in (*(folder / "a-run").iterdir(), folder / "a-run"):  # a broken run, and none
        path.rmdir() if path.is_dir() else path.unlink()
        warming = warm_up.WarmUp()
        warming.run()
        assert warming.imported.is_set()
    monkeypatch.setitem(sys.modules, "mars_viz.ui.links", None)
    warming = warm_up.WarmUp()
    with pytest.raises(ImportError):
        warming.run()
    assert warming.imported.is_set()


def test_the_address_to_open_and_the_link_of_a_request(monkeypatch):
    usual = {"server.address": None, "server.port": 8501, "server.baseUrlPath": "", "server.sslCertFile": None}
    for options, address in (
        ({}, "http://localhost:8501/"),
        ({"server.address": "0.0.0.0", "server.port": 80}, "http://localhost:80/"),
        ({"server.address": "::1"}, "http://[::1]:8501/"),
        ({"server.address": "10.0.0.1", "server.baseUrlPath": "/mars/"}, "http://10.0.0.1:8501/mars"),
        ({"server.sslCertFile": "cert.pem"}, "https://localhost:8501/"),
    ):
        monkeypatch.setattr(warm_up.st, "get_option", (usual | options).__getitem__)
        assert warm_up.address() == address
    for scope, link in (
        (request("/explore", "run=a-run"), {"run": "a-run"}),
        (request("/explore/", "gamma=3&run=a%20run"), {"run": "a run", "gamma": "3"}),
        (request("/", "run=a-run"), {"run": "a-run"}),
        (request("/explore"), {}),
        (request("/explore", "run="), {}),
        (request("/compare", "run=a-run"), {}),
        (request("/static/js/index.js", "run=a-run"), {}),
        (request("/explore", "run=a-run", method="HEAD"), {}),
        (request("/explore", "run=a-run", "websocket"), {}),
        ({"type": "lifespan"}, {}),
    ):
        assert warm_up.asked_for(scope) == link
    monkeypatch.setattr(warm_up.st, "get_option", {"server.baseUrlPath": "under/"}.__getitem__)
    for path in ("/under", "/under/", "/under/explore", "/explore"):
        assert bool(warm_up.asked_for(request(path, "run=a-run"))) == path.startswith("/under")


@pytest.mark.parametrize("without", ["", "delete window.requestIdleCallback; delete window.cancelIdleCallback"])
def test_the_browser_requests_figures_after_the_text(browser: Browser, app: App, without: str):
    """Safari has no idle callbacks."""
    with browser.new_page() as page:
        page.add_init_script(NOTE_FIRST_TOKEN + without)
        page.goto(f"{app.address}/explore")
        page.wait_for_selector(".js-plotly-plot")
        (asked,) = page.evaluate(ASKED_FOR_FIGURES)
        assert page.evaluate("window.firstToken") < asked


def request(path: str, query: str = "", kind: str = "http", method: str = "GET") -> dict[str, Any]:
    return {"type": kind, "method": method, "path": path, "query_string": query.encode()}


heard: list[Any] = []
"""The requests that reached the application behind `ReadAhead`."""


async def behind(scope: Any, receive: Any, send: Any) -> None:
    heard.append(scope)


def asking(ahead: warm_up.ReadAhead, query: str) -> None:
    """Ask for a page, and wait for the run to be read; the request is passed on in any case."""
    heard.clear()
    with suppress(StopIteration):
        ahead(request("/explore", query), None, None).send(None)  # type: ignore[arg-type]
    for thread in threading.enumerate():
        if thread.name == "read-ahead":
            thread.join(60)
    assert heard == [request("/explore", query)]


@pytest.mark.parametrize(("more", "gamma"), [({}, None), ({"gamma": "3"}, 3), ({"gamma": "5"}, None)])
def test_the_run_of_a_link_is_read_ahead(folder, made, more, gamma):
    run = toy_run(seed=8, rule="mars", dial=0.9)
    mapped(run, toy_map(replace(run.settings, dial=None), 0.5, None, (3, run.settings.gamma))[0]).save(folder / "b-run")
    asking(warm_up.ReadAhead(behind), urlencode({"run": "b-run"} | more))
    assert made == [(8, gamma or run.settings.gamma)]
    tab = tabs.opened("pages/explore.py", run="b-run", **more)
    assert (tab.session_state[KEY].view.run, tab.session_state[KEY].view.gamma) == ("b-run", gamma)
    assert len(made) == 1


def test_links_to_broken_and_missing_runs_pass(folder, monkeypatch):
    (folder / "broken").mkdir()
    (folder / "broken" / "manifest.json").write_text("{}")
    opened: list[Any] = []
    monkeypatch.setattr(element, "cached_payload", lambda run, *at: opened.append(run.settings.seed))
    ahead = warm_up.ReadAhead(behind)
    asking(ahead, "run=broken")
    assert not opened
    for name in ("../a-run", "nowhere", "a-run"):  # the page shows the first run that there is
        asking(ahead, f"run={name}")
    assert opened == [7, 7, 7]
    with monkeypatch.context() as short:
        short.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError("can't start new thread")))
        asking(ahead, "run=a-run")
    asking(ahead, "run=a-run")
    assert opened == [7, 7, 7, 7]
