"""The Runs page in a real browser: two visitors find, tag, delete and bring back runs, by hand and by keyboard."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from mars_viz.runstore import RunStore
from mars_viz.ui import visitors
from tests.factories import toy_run
from tests.served import ROOT, served


@dataclass(frozen=True, slots=True)
class Shelf:
    """A server with runs that a visitor made."""

    store: RunStore
    """Its runs: live-0 to live-4, the last one the newest."""
    page: Page
    """The visitor who made them, on the list."""
    stranger: Page
    """Another visitor, likewise."""
    address: str
    """The server's."""

    def tick(self, *rows: int) -> None:
        """Click the boxes of these rows of the visitor's table, counted from 0."""
        for row in rows:
            box = self.page.get_by_test_id("data-grid-canvas").bounding_box()
            assert box is not None
            self.page.mouse.click(box["x"] + 15, box["y"] + 38 + 35 * row + 17)
            settles(self.page)

    @property
    def names(self) -> list[str]:
        """What is kept."""
        return [entry.name for entry in self.store.list()]

    def tags(self, name: str) -> tuple[str, ...]:
        """Of a run."""
        about = self.store.find(name).manifest
        assert about is not None
        return about.tags


def settles(page: Page) -> None:
    """Wait until the script has run."""
    page.wait_for_timeout(300)
    expect(page.get_by_test_id("stApp")).to_have_attribute("data-test-script-state", "notRunning")


@pytest.fixture
def shelf(browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shelf]:
    monkeypatch.setenv("MARS_VIZ_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("MARS_VIZ_SAMPLES", "off")
    monkeypatch.delenv("MARS_VIZ_DELETE", raising=False)
    store, run = RunStore(tmp_path / "runs"), toy_run()
    for day in range(5):
        made = replace(run.provenance, created=f"2026-01-0{day + 1}T00:00:00+00:00")
        store.finish(store.begin(f"live-{day}"), replace(run, title=f"Story {day}", provenance=made))
    contexts = [browser.new_context(viewport={"width": 1400, "height": 900}) for _ in range(2)]
    with served(ROOT / "app.py") as address:
        pages = [context.new_page() for context in contexts]
        for page in pages:
            page.goto(f"{address}/live?view=saved")  # an old link
            expect(page.get_by_text("5 of 5 runs")).to_be_visible()
            expect(page).to_have_url(f"{address}/runs")
        (cookie,) = (each for each in contexts[0].cookies() if each["name"] == visitors.COOKIE)
        assert cookie["httpOnly"]
        for entry in store.list():
            store.makers.note(entry.name, visitors.mark_of(cookie["value"]))
        pages[0].reload()
        expect(pages[0].get_by_text("5 of 5 runs")).to_be_visible()
        settles(pages[0])
        yield Shelf(store, *pages, address)
        for context in contexts:
            context.close()


def test_runs_are_found_as_one_types_and_changed_by_the_browser_that_made_them(shelf: Shelf) -> None:
    page = shelf.page
    # each letter finds, without Enter; what was ticked in another list is not ticked in this one
    shelf.tick(0)
    expect(page.get_by_role("button", name="Show details")).to_be_enabled()
    page.get_by_role("searchbox").press_sequentially("story 4")
    expect(page.get_by_text("1 of 5 runs")).to_be_visible()
    expect(page.get_by_role("button", name="Show details")).to_be_disabled()
    page.get_by_role("searchbox").fill("")
    expect(page.get_by_text("5 of 5 runs")).to_be_visible()
    settles(page)

    # sorted by a column's head, rows are still the runs that they show
    box = page.get_by_test_id("data-grid-canvas").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + 80, box["y"] + 18)
    page.wait_for_timeout(500)
    shelf.tick(0)
    page.get_by_role("button", name="Show details").click()
    expect(page).to_have_url(re.compile("run=live-0"))
    title = page.get_by_role("textbox", name="Title")
    title.fill("<b>Fox</b>")
    title.press("Tab")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("heading", name="<b>Fox</b>")).to_be_visible()
    assert shelf.store.find("live-0").title == "<b>Fox</b>"
    page.get_by_role("button", name="Show all runs").click()
    expect(page.get_by_text("5 of 5 runs")).to_be_visible()
    settles(page)

    # a tag that is written, for two at once
    shelf.tick(0, 1)
    page.get_by_role("button", name="Tag").click()
    page.get_by_role("combobox", name="Add").fill("paper")
    page.keyboard.press("Enter")
    settles(page)
    page.get_by_role("button", name="Tag 2 runs").click()
    expect(page.get_by_role("button", name="Tag 2 runs")).to_be_hidden()
    assert shelf.tags("live-4") == shelf.tags("live-3") == ("paper",) and shelf.tags("live-2") == ()

    # one zip of both
    with page.expect_download() as caught:
        page.get_by_role("button", name="Download").click()
    with zipfile.ZipFile(io.BytesIO(Path(caught.value.path()).read_bytes())) as archive:
        assert sorted(archive.namelist()) == ["live-3.zip", "live-4.zip"]

    # two clicks on one place delete those that were ticked, and bring none back
    button = page.get_by_role("button", name="Delete 2")
    spot = button.bounding_box()
    assert spot is not None
    for _ in range(2):
        page.mouse.click(spot["x"] + spot["width"] / 2, spot["y"] + spot["height"] / 2)
    expect(page.get_by_role("button", name="Undo all")).to_be_enabled()
    settles(page)
    assert shelf.names == ["live-2", "live-1", "live-0"]
    page.wait_for_timeout(1200)
    page.get_by_role("button", name="Undo all").click()
    expect(page.get_by_text("5 of 5 runs")).to_be_visible()
    assert len(shelf.names) == 5 and shelf.tags("live-4") == ("paper",)

    # a visitor who did not make them sees them, and can change none
    stranger = shelf.stranger
    stranger.goto(f"{shelf.address}/runs?run=live-0")
    expect(stranger.get_by_role("heading", name="<b>Fox</b>")).to_be_visible()
    expect(stranger.get_by_text("Only the browser that made it may rename or delete it.")).to_be_visible()
    expect(stranger.get_by_role("button", name="Delete", exact=True)).to_be_disabled()
    expect(stranger.get_by_role("textbox", name="Title")).to_have_count(0)
    expect(stranger.get_by_role("button", name="Save", exact=True)).to_have_count(0)
    assert stranger.get_by_text("Bin (").count() == 0


def test_a_row_is_ticked_and_opened_with_the_keyboard_alone(shelf: Shelf) -> None:
    page = shelf.page
    grid = page.get_by_test_id("data-grid-canvas")
    page.get_by_role("combobox", name="Sort").focus()
    for _ in range(8):
        page.keyboard.press("Tab")
        if grid.evaluate("grid => grid === document.activeElement || grid.contains(document.activeElement)"):
            break
    else:
        pytest.fail("the table is not reached with Tab")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Shift+Space")
    details = page.get_by_role("button", name="Show details")
    expect(details).to_be_enabled()
    details.focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("run=live-"))
    # what screen readers get of the table: its name, its rows and cells
    page.get_by_role("button", name="Show all runs").press("Enter")
    expect(page.get_by_text("5 of 5 runs")).to_be_visible()
    cells = grid.locator("[role=gridcell]")
    expect(cells.filter(has_text="Story 2")).to_have_count(1)
    expect(grid.locator("[role=columnheader]").filter(has_text="rule and dial")).to_have_count(1)
