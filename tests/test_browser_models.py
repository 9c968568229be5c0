"""The one choice of models, by hand in a browser: every page follows it, and so does the link."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from mars_viz.runstore import RunStore, read
from tests.served import ROOT, served
from tests.waiting import until

HEAD = "Built-in target with its EAGLE-3 head"


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The app, and where it keeps runs."""
    folder = tmp_path_factory.mktemp("kept")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("MARS_VIZ_RUNS", str(folder))
        environment.delenv("MARS_VIZ_BACKEND", raising=False)
        with served(ROOT / "app.py") as address:
            yield address, folder


def chosen(page: Page) -> Locator:
    """What is said beside the button."""
    return page.locator(".st-key-models .mv-small").first


def choose(page: Page, named: str) -> None:
    page.get_by_role("button", name="Models", exact=True).click()
    page.get_by_role("combobox", name="Pair").click()
    page.get_by_role("option", name=named, exact=True).click()
    expect(chosen(page)).to_have_text(named)


def test_what_is_chosen_on_one_page_decodes_on_all(app: tuple[str, Path], tab: Page) -> None:
    address, folder = app
    tab.goto(f"{address}/explore")
    expect(chosen(tab)).to_have_text("Built-in pair")
    choose(tab, HEAD)
    tab.get_by_role("button", name="Load", exact=True).click()
    expect(tab.get_by_text(f"Loaded: {HEAD}.")).to_be_visible()
    expect(tab.get_by_role("button", name="Load", exact=True)).to_be_disabled()
    tab.keyboard.press("Escape")

    tab.get_by_role("button", name="New prompt").click()
    prompt = tab.get_by_role("textbox", name="Prompt")
    expect(prompt).to_have_attribute("placeholder", f"Write a prompt for {HEAD} to continue")
    prompt.fill("Once upon a time")
    tab.get_by_role("button", name="Decode", exact=True).click()
    until(lambda: RunStore(folder).list() and RunStore(folder).list()[0].standing.value == "whole", 0.1)
    (kept,) = RunStore(folder).list()
    assert read(kept.path).provenance.drafter == "eagle3"
    expect(tab.locator(".explorer .t").first).to_be_visible()

    for page in ("Live", "Rules", "Gallery", "Learn", "Explore"):
        tab.get_by_role("link", name=page, exact=True).click()
        expect(chosen(tab)).to_have_text(HEAD)
        expect(tab).to_have_url(re.compile("drafter=eagle3"))
    tab.reload()
    expect(chosen(tab)).to_have_text(HEAD)


def test_models_are_unloaded_and_a_typed_name_that_cannot_be_is_a_sentence(app: tuple[str, Path], tab: Page) -> None:
    tab.goto(f"{app[0]}/live?drafter=ngram%3An%3D3")
    expect(chosen(tab)).to_have_text("Built-in target with prompt lookup")
    tab.get_by_role("button", name="Models", exact=True).click()
    tab.get_by_role("button", name="Load", exact=True).click()
    expect(tab.get_by_text("Loaded: Built-in target with prompt lookup.")).to_be_visible()
    tab.get_by_role("button", name="Unload", exact=True).click()
    expect(tab.get_by_text("No models are loaded; the first decode loads them.")).to_be_visible()
    tab.get_by_role("combobox", name="Pair").click()
    tab.get_by_role("option", name="Another pair …").click()
    target = tab.get_by_role("textbox", name="Target")
    target.fill("/no/such/folder")
    target.press("Enter")
    expect(tab.get_by_text("is no model's id on the hub")).to_be_visible()  # none may name folders of this server
    expect(chosen(tab)).to_have_text("Built-in target with prompt lookup")
