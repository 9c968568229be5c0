"""Every page under axe-core, in both themes: no serious or critical violation."""

from __future__ import annotations

import ast
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from mars_viz import samples
from mars_viz.report import report_html
from mars_viz.runfiles import load_run
from mars_viz.site import write_site
from tests.controls import STILL
from tests.served import ROOT, App

COLOURS = ("color-contrast", "link-in-text-block")  # rules that a theme can break
PAGES = sorted(path.stem for path in ROOT.glob("pages/*.py"))


def test_every_figure_and_table_has_a_text_alternative() -> None:
    drawn = [
        (node.func.attr, path.name, {word.arg for word in node.keywords})
        for path in [*ROOT.glob("pages/*.py"), *ROOT.glob("mars_viz/ui/**/*.py")]
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("plotly_chart", "dataframe")
    ]
    assert [file for name, file, _ in drawn if name == "plotly_chart"] == ["theme.py"] and len(drawn) > 1
    assert [one for one in drawn if "alt" not in one[2]] == []


def rests(page: Page) -> None:
    """Wait until nothing moves and the figures that come after the text are drawn."""
    page.wait_for_function(STILL)
    if page.locator(".st-key-text-painted").count():
        page.wait_for_selector(".js-plotly-plot .main-svg")
        page.wait_for_function(STILL)


def violations(page: Page, *rules: str) -> list[dict[str, Any]]:
    """Grave violations of these rules, or of all that axe has switched on."""
    if not page.evaluate("() => Boolean(window.axe)"):
        page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text("utf-8"))
    found = page.evaluate(
        """(rules) => axe.run({
          resultTypes: ["violations"], ...(rules.length && { runOnly: { type: "rule", values: rules } }),
        })""",
        list(rules),
    )
    return [violation for violation in found["violations"] if violation["impact"] in ("serious", "critical")]


def in_words(found: list[dict[str, Any]]) -> str:
    return "\n".join(
        f"{one['id']}: {one['help']}\n"
        + "\n".join(f"    {node['target']} {node['html'][:160]}\n{node['failureSummary']}" for node in one["nodes"][:8])
        for one in found
    )


def in_both_themes(page: Page, still: Callable[[Page], object] = rests) -> None:
    """No violation in the light theme, and none of colours after a change to the dark one."""
    found = violations(page)
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    dark = "(app) => !app || getComputedStyle(app).colorScheme === 'dark'"
    page.wait_for_function(f"() => ({dark})(document.querySelector('.stApp'))")
    still(page)
    found += violations(page, *COLOURS)
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    assert not found, in_words(found)


@pytest.mark.parametrize("path", PAGES)
def test_no_page_has_a_grave_violation_in_either_theme(page: Page, app: App, path: str) -> None:
    requested: list[str] = []
    page.on("request", note := lambda request: requested.append(request.url))
    page.goto(f"{app.address}/{'' if path == 'gallery' else path}")
    rests(page)
    if path == "learn":  # the choice just made
        page.get_by_role("radio", name="3 · ").click()
        expect(page.locator(".lesson svg[role=img]")).to_have_count(2)
        rests(page)
    in_both_themes(page)
    page.remove_listener("request", note)
    # Streamlit would fetch a tab's named icon or emoji from another host
    assert len(requested) > 10
    assert [url for url in requested if not url.startswith((app.address, "data:", "blob:", "about:"))] == []


def test_explore_with_everything_open(page: Page, app: App) -> None:
    pins = "&pin_dial=0.9~6&pin_token=14~0.9~6&overlay=ratio"
    page.goto(f"{app.address}/explore?run=1-story-mars&selected=24&dial=0.2{pins}")
    rests(page)
    assert page.locator(".explorer .faded").count() and page.locator(".explorer .t[class*=' c']").count()
    found = []
    for opens, holds in (
        ("Share", "Report, one HTML file"),
        ("Open or save", "Save this run as a zip"),
        ("New prompt", "Settings"),
        ("Models", "Load"),
    ):
        page.get_by_role("button", name=opens).click()
        page.get_by_text(holds, exact=True).first.wait_for()
        page.wait_for_function(STILL)  # it fades in
        found += violations(page)
        page.keyboard.press("Escape")
        page.get_by_text(holds, exact=True).first.wait_for(state="hidden")
    assert not found, in_words(found)
    page.get_by_role("button", name="Find in the text", exact=True).click()
    page.keyboard.type("play")
    expect(page.locator(".stream .t.found").first).to_be_visible()
    expect(page.locator(".pin-side")).to_be_visible()
    in_both_themes(page)


def test_the_report_and_a_static_site(browser: Browser, tmp_path: Path) -> None:
    runs = {name: load_run(samples.RUNS / name) for name in ("1-story-mars", "2-story-strict")}
    (tmp_path / "report.html").write_text(report_html(runs["1-story-mars"], most_steps=2), "utf-8")
    write_site(runs, tmp_path / "site")
    with browser.new_page(color_scheme="light") as page:
        for path, last in (
            ("report.html", "#heat_map .main-svg"),
            ("site/index.html", ".cards"),
            ("site/runs/1-story-mars.html#frame=2", "#heat_map .main-svg"),
            ("site/compare.html", ".lanes .text"),
            ("site/lessons/1.html", "#aside .main-svg"),
        ):
            page.goto(f"{tmp_path.as_uri()}/{path}")
            page.wait_for_selector(last)
            if path == "report.html":
                page.set_viewport_size({"width": 375, "height": 800})
                page.locator(".stream .rejected").first.click()
                page.wait_for_function("() => document.documentElement.scrollWidth <= innerWidth")
            in_both_themes(page, lambda page, last=last: page.wait_for_selector(last))
