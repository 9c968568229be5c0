"""Saved runs in a real browser: two visitors rename, delete and bring back, on a server with several runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

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
    """The visitor who made them, on the saved runs."""
    stranger: Page
    """Another visitor, likewise."""
    address: str
    """The server's."""

    def row(self, name: str) -> Locator:
        """A line of the visitor's list."""
        return self.page.locator(f".st-key-saved-{name}")

    def gone(self, name: str) -> Locator:
        """The line where a run stood."""
        return self.page.locator(f".st-key-deleted-run-{name}")

    def open(self, name: str) -> Locator:
        """Open what can be changed of a run."""
        self.row(name).get_by_role("button", name="Rename or delete").click()
        form = self.page.get_by_test_id("stPopoverBody")
        expect(form).to_have_count(1)
        expect(form).to_be_visible()
        return form

    @property
    def names(self) -> list[str]:
        """What is kept."""
        return [entry.name for entry in self.store.list()]


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
            page.goto(f"{address}/live?view=saved")
            expect(page.get_by_text("Story 4")).to_be_visible()
        (cookie,) = (each for each in contexts[0].cookies() if each["name"] == visitors.COOKIE)
        assert cookie["httpOnly"]
        for entry in store.list():
            store.makers.note(entry.name, visitors.mark_of(cookie["value"]))
        pages[0].reload()
        yield Shelf(store, *pages, address)
        for context in contexts:
            context.close()


def test_saved_runs_are_renamed_deleted_and_brought_back_by_the_browser_that_made_them(shelf: Shelf) -> None:
    # a refused title stays on its row, with what is wrong beside it
    form = shelf.open("live-3")
    title = form.get_by_role("textbox", name="Title")
    expect(title).to_have_value("Story 3")
    title.fill("  ")
    form.get_by_role("button", name="Rename").click()
    expect(form.get_by_text("The title is empty")).to_be_visible()
    expect(shelf.page.get_by_test_id("stPopoverBody")).to_have_count(1)
    assert shelf.store.find("live-3").title == "Story 3"
    title.fill("<b>Fox</b>")
    form.get_by_role("button", name="Rename").click()
    expect(shelf.row("live-3").get_by_text("<b>Fox</b>")).to_be_visible()
    expect(form).to_be_hidden()
    assert shelf.store.find("live-3").title == "<b>Fox</b>" and len(shelf.names) == 5

    # two clicks on one place delete one run, as soon as the first is done and as fast as can be
    for name, at_once in (("live-3", False), ("live-1", True), ("live-4", False)):
        before = set(shelf.names)
        box = shelf.open(name).get_by_role("button", name="Delete").bounding_box()
        assert box is not None
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        shelf.page.mouse.click(x, y)
        if not at_once:
            expect(shelf.gone(name).get_by_role("button", name="Undo")).to_be_enabled()
        shelf.page.mouse.click(x, y)
        expect(shelf.gone(name).get_by_role("button", name="Undo")).to_be_enabled()
        expect(shelf.page.get_by_test_id("stApp")).to_have_attribute("data-test-script-state", "notRunning")
        assert before - set(shelf.names) == {name}
        shelf.page.keyboard.press("Escape")
        expect(shelf.page.get_by_test_id("stPopoverBody")).to_have_count(0)

    # brought back where it stood, under its name
    shelf.gone("live-3").get_by_role("button", name="Undo").click()
    expect(shelf.row("live-3").get_by_text("<b>Fox</b>")).to_be_visible()
    assert shelf.names == ["live-3", "live-2", "live-0"]
    lines = shelf.page.locator("[class*=st-key-saved-], [class*=st-key-deleted-run-]")
    texts = [text.split("\n")[0] for text in lines.all_inner_texts()]
    assert texts == ["Deleted: Story 4", "<b>Fox</b>", "Story 2", "Deleted: Story 1", "Story 0"]

    # nor is the second of two clicks one on Undo, which on a phone is where Delete was
    shelf.page.set_viewport_size({"width": 375, "height": 700})
    paused = "[class*=st-key-deleted-] button { animation-play-state: paused !important; }"
    held = shelf.page.add_style_tag(content=paused)
    shelf.open("live-2").get_by_role("button", name="Delete").click()
    undo = shelf.gone("live-2").get_by_role("button", name="Undo")
    expect(undo).to_be_enabled()
    undo.scroll_into_view_if_needed()
    box = undo.bounding_box()
    assert box is not None
    shelf.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(shelf.page.get_by_test_id("stApp")).to_have_attribute("data-test-script-state", "notRunning")
    assert shelf.names == ["live-3", "live-0"]
    held.evaluate("style => style.remove()")
    undo.click()
    expect(shelf.row("live-2")).to_be_visible()
    assert shelf.names == ["live-3", "live-2", "live-0"]
    shelf.page.set_viewport_size({"width": 1400, "height": 900})

    # a visitor who did not make them sees them, and can change none
    shelf.stranger.goto(f"{shelf.address}/live?view=saved")
    expect(shelf.stranger.get_by_text("<b>Fox</b>")).to_be_visible()
    changes = shelf.stranger.get_by_role("button", name="Rename or delete")
    expect(changes).to_have_count(3)
    assert all(change.is_disabled() for change in changes.all())
    assert shelf.stranger.get_by_text("Deleted").count() == 0 and shelf.stranger.get_by_text("Bin (").count() == 0

    # loaded anew, the bin holds the rest; the link of a renamed run opens it, with its title
    shelf.page.reload()
    shelf.page.get_by_text("Bin (2)").click()
    shelf.gone("live-1").get_by_role("button", name="Undo").click()
    expect(shelf.row("live-1")).to_be_visible()
    shelf.page.goto(f"{shelf.address}/explore?run=live-3")
    expect(shelf.page.get_by_role("combobox", name="Run")).to_be_visible()
    expect(
        shelf.page.get_by_text("<b>Fox</b>").or_(shelf.page.locator("input[value='<b>Fox</b>']")).first
    ).to_be_visible()
