"""Every page under axe-core, in both themes: no serious or critical violation."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from mars_viz import samples
from mars_viz.report import report_html
from mars_viz.runfiles import load_run
from mars_viz.site import write_site
from tests.controls import SCRIPT, STILL
from tests.fingers import swipe_up
from tests.served import ROOT, App

GRAVE = ("serious", "critical")
COLOURS = ("color-contrast", "link-in-text-block")
"""Rules that a theme can break."""
DARK = """() => {
  const app = document.querySelector(".stApp");
  return !app || getComputedStyle(app).colorScheme === "dark";
}"""


def pages_of_the_app() -> list[str]:
    """The address of every page that app.py registers."""
    found = []
    for node in ast.walk(ast.parse((ROOT / "app.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "Page":
            named = {keyword.arg: ast.literal_eval(keyword.value) for keyword in node.keywords}
            address = named.get("url_path") or Path(ast.literal_eval(node.args[0])).stem
            found.append("" if named.get("default") else str(address))
    return found


def calls(name: str) -> Iterator[tuple[str, ast.Call]]:
    """Every call of a Streamlit function of that name, and its file."""
    for path in [ROOT / "app.py", *ROOT.glob("pages/*.py"), *ROOT.glob("mars_viz/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name:
                yield str(path.relative_to(ROOT)), node


def test_every_figure_and_table_has_a_text_alternative() -> None:
    for drawn in ("plotly_chart", "dataframe"):
        found = list(calls(drawn))
        assert found
        without = [f"{path}:{call.lineno}" for path, call in found if "alt" not in {word.arg for word in call.keywords}]
        assert without == []
    assert [path for path, _ in calls("plotly_chart")] == ["mars_viz/ui/theme.py"]


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
    return [violation for violation in found["violations"] if violation["impact"] in GRAVE]


def in_words(found: list[dict[str, Any]]) -> str:
    return "\n".join(
        f"{one['impact']} {one['id']}: {one['help']}\n"
        + "\n".join(
            f"    {node['target']} {node['html'][:160]}\n       {node['failureSummary']}" for node in one["nodes"][:8]
        )
        for one in found
    )


def in_both_themes(page: Page, still: Callable[[Page], object] = rests) -> None:
    """No violation in the light theme, and none of colours after a change to the dark one."""
    found = violations(page)
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    page.wait_for_function(DARK)
    still(page)
    found += violations(page, *COLOURS)
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    assert not found, in_words(found)


@pytest.mark.parametrize("path", pages_of_the_app())
def test_no_page_has_a_grave_violation_in_either_theme(page: Page, app: App, path: str) -> None:
    requested: list[str] = []
    page.on("request", note := lambda request: requested.append(request.url))
    page.goto(f"{app.address}/{path}")
    rests(page)
    if path == "learn":  # the choice just made
        page.get_by_role("radio", name="2 · Rollback").click()
        page.wait_for_selector("h2:has-text('2 ·')")
        rests(page)
    in_both_themes(page)
    page.remove_listener("request", note)
    # Streamlit would fetch a tab's named icon or emoji from another host
    assert len(requested) > 10
    assert [url for url in requested if not url.startswith((app.address, "data:", "blob:", "about:"))] == []


def test_explore_with_everything_open(page: Page, app: App) -> None:
    page.goto(f"{app.address}/explore?run=1-story-mars&dial=0.2&overlay=ratio")
    rests(page)
    assert page.locator(".explorer .faded").count() and page.locator(".explorer .t[class*=' c']").count()
    found = []
    for opens, holds in (
        ("Share", "Report, one HTML file"),
        ("Open or save", "Save this run as a zip"),
        ("New prompt", "Settings"),
    ):
        page.get_by_role("button", name=opens).click()
        page.get_by_text(holds, exact=True).first.wait_for()
        page.wait_for_function(STILL)  # it fades in
        found += violations(page)
        page.keyboard.press("Escape")
        page.get_by_text(holds, exact=True).first.wait_for(state="hidden")
    assert not found, in_words(found)
    page.goto(f"{app.address}/explore?run=1-story-mars&selected=24&dial=0.75&pin_dial=0.9~6&pin_token=14~0.9~6")
    rests(page)
    page.get_by_role("button", name="Find in the text", exact=True).click()
    page.keyboard.type("play")
    expect(page.locator(".stream .t.found").first).to_be_visible()
    expect(page.locator(".pin-side")).to_be_visible()
    in_both_themes(page)
    header, title = page.locator(".stAppHeader"), page.get_by_role("heading", name="Explore")
    ground = header.evaluate("e => getComputedStyle(e).backgroundColor")
    assert ground == page.locator(".stApp").evaluate("e => getComputedStyle(e).backgroundColor"), (
        "nothing shines through"
    )
    room, words = header.bounding_box(), title.bounding_box()
    assert room and words and room["y"] + room["height"] <= words["y"]


def test_details_of_a_run_the_choice_of_models_and_a_lessons_figure(page: Page, app: App) -> None:
    page.goto(f"{app.address}/runs?run=1-story-mars")
    rests(page)
    expect(page.locator(".mv-facts").first).to_be_visible()
    page.get_by_role("button", name="Models").click()
    expect(page.get_by_role("button", name="Load", exact=True)).to_be_visible()
    page.wait_for_function(STILL)
    in_both_themes(page)
    page.goto(f"{app.address}/learn?run=3-story-sampled-mars&lesson=3")
    rests(page)
    expect(page.locator(".lesson svg[role=img]")).to_have_count(2)
    assert page.get_by_role("slider", name="Trials").count()
    in_both_themes(page)


def test_a_finger_on_a_figure_moves_the_page(browser: Browser, app: App) -> None:
    agent = "Mozilla/5.0 (Linux; Android 14; Tab S9) AppleWebKit/537.36 Chrome/140.0 Safari/537.36"  # no telephone
    view: Any = {"width": 375, "height": 800}
    with browser.new_context(viewport=view, is_mobile=True, has_touch=True, user_agent=agent) as context:
        page = context.new_page()
        page.add_init_script(path=SCRIPT)
        page.goto(f"{app.address}/explore?run=1-story-mars")
        rests(page)
        figure = page.locator(".js-plotly-plot").first
        figure.evaluate("element => element.scrollIntoView({ block: 'center' })")
        swipe_up(page, figure)


def test_the_report(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(report_html(load_run(samples.RUNS / "1-story-mars"), most_steps=2), encoding="utf-8")
    with browser.new_page(color_scheme="light") as page:
        page.goto(path.as_uri())
        last = "#heat_map .main-svg"
        page.wait_for_selector(last)
        page.locator(".stream .rejected").first.click()
        in_both_themes(page, lambda page: page.wait_for_selector(last))
        page.set_viewport_size({"width": 375, "height": 800})
        page.wait_for_function("() => document.documentElement.scrollWidth <= innerWidth")
        in_both_themes(page, lambda page: page.wait_for_selector(last))
        levels = [int(found.evaluate("e => e.localName[1]")) for found in page.get_by_role("heading").all()]
        assert levels[0] == 1 and max(levels) == 2


def test_a_static_site(browser: Browser, tmp_path: Path) -> None:
    runs = {name: load_run(samples.RUNS / name) for name in ("1-story-mars", "2-story-strict")}
    site = write_site(runs, tmp_path / "site")
    with browser.new_page(color_scheme="light") as page:
        for path, last in (
            ("index.html", ".cards"),
            ("runs/1-story-mars.html#frame=2", "#heat_map .main-svg"),
            ("compare.html", ".lanes .text"),
            ("lessons/1.html", "#aside .main-svg"),
            ("runs/1-story-mars.html?embed=true", ".stream .t"),
        ):
            page.goto(f"{site.as_uri()}/{path}")
            page.wait_for_selector(last)
            in_both_themes(page, lambda page, last=last: page.wait_for_selector(last))


def test_axe_is_at_work(browser: Browser) -> None:
    with browser.new_page() as page:
        page.set_content("<main><img src=x><p style='color:#ccc;background:#fff'>faint</p></main>")
        assert {one["id"] for one in violations(page)} >= {"image-alt", "color-contrast"}
