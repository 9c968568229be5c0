"""Fixtures that several test files share: the models, one browser and one server of the app per pytest worker."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

    from mars_viz.speculators.backend import Backend
    from tests.served import App

os.environ["HF_HUB_OFFLINE"] = "1"  # read when the library is first imported; the tests need no hub
os.environ["HF_DATASETS_CACHE"] = tempfile.mkdtemp(prefix="mars-viz-tests-")
os.environ["XDG_DATA_HOME"] = tempfile.mkdtemp(prefix="mars-viz-tests-")  # no test keeps runs in the user's home

settings.register_profile("untimed", deadline=None, max_examples=50)  # no deadline: the machine may be busy
settings.load_profile("untimed")

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 240_000  # ms; only a hanging test waits as long
OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--js-flags=--no-turbofan",  # pages are left too soon for optimized scripts to pay
)
MOST_SHOWN = 3000  # characters of a page that a failed test shows
FIRST = {"browser_explore", "browser_pages", "hostile_text", "permissions", "properties", "accessibility"}
"""Files that take longest run first, so that no worker is left with one of them at the end."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Move the longest files to the front, and rerun a failed browser test once."""
    items.sort(key=lambda item: item.path.stem.removeprefix("test_") not in FIRST)
    if config.pluginmanager.has_plugin("rerunfailures"):
        for item in items:
            if "chromium" in getattr(item, "fixturenames", ()) and item.get_closest_marker("flaky") is None:
                item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the text of its pages to the report of a failed browser test."""
    report = yield
    if report.failed and "chromium" in getattr(item, "fixturenames", ()):
        for page in _pages(getattr(item, "funcargs", {}).values()):
            with suppress(Exception):  # the page may be closed or hang
                shown = page.locator("body").inner_text(timeout=3000)
                report.sections.append((f"Page {page.url}", shown[:MOST_SHOWN]))
    return report


def _pages(values: Iterable[object]) -> Iterator[Page]:
    from playwright.sync_api import Page

    for value in values:
        if isinstance(value, Page):
            yield value
        elif isinstance(value, tuple):
            yield from _pages(value)


@pytest.fixture(scope="session")
def chromium() -> str:
    """The browser's path: $CHROMIUM or the system's; `make test` installs one if there is none."""
    names = (os.environ.get("CHROMIUM"), *BROWSERS)
    found = next(filter(None, map(shutil.which, filter(None, names))), None)
    return found or pytest.fail("There is no Chromium. Install it, or name it in the variable CHROMIUM.")


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator[Browser]:
    """Headless Chromium without network access."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=[*OPTIONS])
        launched.on("context", lambda opened: opened.set_default_timeout(PATIENCE))
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """One for all tests of a worker, so that Streamlit's own script is loaded once."""
    with browser.new_context(viewport={"width": 1400, "height": 900}) as found:
        yield found


@pytest.fixture(scope="module")
def tab(context: BrowserContext) -> Iterator[Page]:
    """One tab per file: a new one parses Streamlit's script for a second."""
    from tests.controls import SCRIPT

    with context.new_page() as opened:
        opened.add_init_script(path=SCRIPT)
        yield opened


@pytest.fixture(scope="session")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """The app with its samples, the built-in pair and a data folder of its own; shared by all tests of a worker."""
    from tests.served import app_server

    with app_server(tmp_path_factory.mktemp("app")) as found:
        yield found


@pytest.fixture
def page(tab: Page, app: App) -> Iterator[Page]:
    """The shared tab at its usual size, on an empty page. A script error in it or a contained one in the server fails
    the test."""
    from tests.served import CONTAINED

    errors: list[str] = []
    before = len(app.log())
    tab.goto("about:blank")
    tab.set_viewport_size({"width": 1400, "height": 900})
    tab.emulate_media(color_scheme="light", reduced_motion="reduce")
    tab.on("pageerror", note := lambda error: errors.append(str(error)))
    yield tab
    tab.remove_listener("pageerror", note)
    assert not errors
    assert CONTAINED not in app.log()[before:]


@pytest.fixture(scope="session")
def pair() -> Backend:
    """The built-in models on the CPU, loaded once per worker: decoding does not change them."""
    from mars_viz.speculators.loading import load_backend

    return load_backend(device="cpu", dtype="float32")


@pytest.fixture
def small_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports hold figures for 2 steps of the dial by default instead of 100, which take seconds."""
    from mars_viz.report import report_html

    monkeypatch.setitem(report_html.__kwdefaults__, "most_steps", 2)


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps with models do not measure the cost of a pass, which takes seconds."""
    monkeypatch.setattr("mars_viz.sweep.sweep.measured", lambda *_: None)


@pytest.fixture
def faults() -> Iterator[list[logging.LogRecord]]:
    """Log records of contained errors; see `mars_viz.errors.contained`."""
    kept: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = kept.append  # type: ignore[method-assign]
    log = logging.getLogger("mars_viz.errors")
    log.addHandler(handler)
    yield kept
    log.removeHandler(handler)


@pytest.fixture(autouse=True)
def no_faults(faults: list[logging.LogRecord]) -> Iterator[None]:
    """Fail a test during which an unexpected error was contained."""
    yield
    assert not faults, [record.getMessage() for record in faults]
