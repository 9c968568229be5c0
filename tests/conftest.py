"""What several test files share: no network, and a browser where a test asks for one."""

from __future__ import annotations

import logging
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

    from mars_viz.speculators.backend import Backend

os.environ["HF_HUB_OFFLINE"] = "1"  # read when the library is first imported; the tests need no hub
os.environ["HF_DATASETS_CACHE"] = tempfile.mkdtemp(prefix="mars-viz-tests-")  # nor data sets
os.environ["XDG_DATA_HOME"] = tempfile.mkdtemp(prefix="mars-viz-tests-")  # no test keeps runs in the user's home

settings.register_profile("untimed", deadline=None, max_examples=50)  # a busy machine is no reason to fail
settings.load_profile("untimed")

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 240_000  # ms; a busy machine is no reason to fail
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
HASTY = "--js-flags=--no-turbofan"
"""Scripts are made faster the cheap way only: the other costs more than pages that are soon left get back."""


AT_SECOND_TRY = "at the second try"
"""Under which name a test tells what failed once and then did not."""
MOST_SHOWN = 3000
"""Characters of a page that a failed test shows."""
LONGEST = ("controls", "controls_explore_live", "hostile_text")
"""Files that take minutes; they come first, or the last of them would keep one worker busy while the others have
nothing left to do."""
SLOW = re.compile(
    "accessibility|backend|batche[ds]|benchmarks|browser_.*|cli|contributing|controllers|decoding|dialmap|drafters"
    "|docs|drawn_trees|eagle3|exports|faults|golden|grid|harness|harness_model|hub|intervals"
    "|kills|library|loading|model_process|.*_page|pages|permissions|properties|ray_sweep|report|row_invariance|rule_lab"
    "|rules_sampling"
    "|runfiles|runstore|sessions|stops|sweep|sweep_result|terminal|threads|ties|trees|turns|ui_worker|upload_costs|warm_up"
    "|writer"
)
"""Files that take a quarter of a minute or more; they come next."""


def _turn(item: pytest.Item) -> int:
    """The lowest comes first."""
    name = item.path.stem.removeprefix("test_")
    return LONGEST.index(name) if name in LONGEST else len(LONGEST) + (SLOW.fullmatch(name) is None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slow files first; the order of tests within a file stays. A test with a browser that fails runs once more, since
    the browser is another's program; the summary tells of it, with what failed."""
    items.sort(key=_turn)
    if config.pluginmanager.has_plugin("rerunfailures"):
        for item in items:
            if "chromium" in getattr(item, "fixturenames", ()) and item.get_closest_marker("flaky") is None:
                item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where a test with a browser fails, say what its pages show."""
    report = yield
    if report.failed and "chromium" in getattr(item, "fixturenames", ()):
        for page in _pages(getattr(item, "funcargs", {}).values()):
            with suppress(Exception):  # a page that was closed, or that answers no more
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


@pytest.fixture
def second_tries(record_property: Callable[[str, object], None]) -> Callable[[object], None]:
    """Takes words on what failed once and then did not; the summary tells them."""
    return partial(record_property, AT_SECOND_TRY)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell what passed at the second try only."""
    reports = [each for kept in terminalreporter.stats.values() for each in kept]
    for each in reports:
        for name, words in getattr(each, "user_properties", ()) if getattr(each, "when", "") == "call" else ():
            if name == AT_SECOND_TRY:
                terminalreporter.write_line(f"{name}: {words}")


@pytest.fixture(scope="session")
def chromium() -> str:
    """The browser's path: $CHROMIUM, or the system's. `make test` installs one where there is none."""
    names = (os.environ.get("CHROMIUM"), *BROWSERS)
    found = next(filter(None, map(shutil.which, filter(None, names))), None)
    return found or pytest.fail("There is no Chromium. Install it, or name it in the variable CHROMIUM.")


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator[Browser]:
    """Headless Chromium that stays off the network; whatever waits for a page waits long."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=[*QUIET, HASTY])
        launched.on("context", lambda opened: opened.set_default_timeout(PATIENCE))
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """One for all tests of a file, so that Streamlit's own script is loaded once."""
    with browser.new_context(viewport={"width": 1400, "height": 900}) as found:
        yield found


@pytest.fixture(scope="module")
def tab(context: BrowserContext) -> Page:
    """One for all tests of a file that open one page after the other, with the script that tells when it stands still.
    A new tab reads Streamlit's own script anew, which takes a second of processor."""
    from tests.controls import SCRIPT

    opened = context.new_page()
    opened.add_init_script(path=SCRIPT)
    return opened


@pytest.fixture(scope="session")
def pair() -> Backend:
    """The built-in models on the CPU, loaded once for all files of a worker: nothing that decodes changes them."""
    from mars_viz.speculators.loading import load_backend

    return load_backend(device="cpu", dtype="float32")


@pytest.fixture
def small_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports have figures for two steps of the dial unless more are asked for, not for 100, which takes seconds."""
    from mars_viz.report import report_html

    monkeypatch.setitem(report_html.__kwdefaults__, "most_steps", 2)


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps with models do not measure what a pass costs, as on a busy machine; it takes seconds."""
    for module in ("sweep", "grid_sweep"):
        monkeypatch.setattr(f"mars_viz.sweep.{module}.measured", lambda *_: None)


@pytest.fixture
def faults() -> Iterator[list[logging.LogRecord]]:
    """What was contained meanwhile, as the log has it; see `mars_viz.errors.contained`."""
    kept: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = kept.append  # type: ignore[method-assign]
    log = logging.getLogger("mars_viz.errors")
    log.addHandler(handler)
    yield kept
    log.removeHandler(handler)


@pytest.fixture(autouse=True)
def no_faults(faults: list[logging.LogRecord]) -> Iterator[None]:
    """Nothing is contained that no test has put there, or a page would hide that it is broken."""
    yield
    assert not faults, [record.getMessage() for record in faults]
