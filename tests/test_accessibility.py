"""Every page under axe-core, in both themes: nothing that it calls serious or critical."""

from __future__ import annotations

import ast
from collections.abc import Iterator
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
from tests.served import served

ROOT = Path(__file__).parents[1]
GRAVE = ("serious", "critical")
COLOURS = ("color-contrast", "link-in-text-block")
STREAMLITS_OWN: dict[str, str] = {}
"""Selectors of what Streamlit draws and the app cannot mend, each with the rule that it breaks and why."""


def pages_of_the_app() -> list[str]:
    """The address of every page that app.py registers, so that a new page is looked at without a word here."""
    found = []
    for node in ast.walk(ast.parse((ROOT / "app.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "Page":
            named = {keyword.arg: ast.literal_eval(keyword.value) for keyword in node.keywords}
            address = named.get("url_path") or Path(ast.literal_eval(node.args[0])).stem
            found.append("" if named.get("default") else str(address))
    return found


def calls(name: str) -> Iterator[tuple[str, ast.Call]]:
    """Every call of a Streamlit function of that name, with the file it stands in."""
    for path in [ROOT / "app.py", *ROOT.glob("pages/*.py"), *ROOT.glob("mars_viz/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name:
                yield str(path.relative_to(ROOT)), node


@pytest.mark.parametrize("drawn", ["plotly_chart", "dataframe"])
def test_every_figure_and_table_has_a_sentence_for_those_who_cannot_see_it(drawn: str) -> None:
    found = list(calls(drawn))
    assert found
    silent = [f"{path}:{call.lineno}" for path, call in found if "alt" not in {word.arg for word in call.keywords}]
    assert silent == []


def test_every_figure_is_shown_in_the_one_way() -> None:
    assert [path for path, _ in calls("plotly_chart")] == ["mars_viz/ui/theme.py"]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served(ROOT / "app.py") as found:
        yield found


def settled(tab: Page, address: str, scheme: str) -> Page:
    """The page once it stands still."""
    tab.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
    tab.goto(address)
    rests(tab)
    return tab


def rests(page: Page) -> None:
    """Wait until nothing moves, and until the figures are there of which a page says that they come after its text."""
    page.wait_for_function(STILL)
    if page.locator(".st-key-text-painted").count():
        page.wait_for_selector(".js-plotly-plot .main-svg")
        page.wait_for_function(STILL)


def violations(page: Page, *rules: str) -> list[dict[str, Any]]:
    """What axe finds grave, by all rules that it has switched on or by these."""
    page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text("utf-8"))
    found = page.evaluate(
        """([exclude, rules]) => axe.run({ exclude: exclude.map((selector) => [selector]) }, {
          resultTypes: ["violations"], ...(rules.length && { runOnly: { type: "rule", values: rules } }),
        })""",
        [list(STREAMLITS_OWN), list(rules)],
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


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", pages_of_the_app())
def test_no_page_has_a_serious_or_critical_violation(tab: Page, address: str, path: str, scheme: str) -> None:
    asked: list[str] = []
    tab.on("request", note := lambda request: asked.append(request.url))
    page = settled(tab, f"{address}/{path}", scheme)
    tab.remove_listener("request", note)
    found = violations(page, *(COLOURS if scheme == "dark" else ()))  # a theme changes colours and nothing else
    assert not found, in_words(found)
    # it may be served where there is no other host: Streamlit fetches a tab's named icons and emoji from elsewhere
    assert len(asked) > 10 and [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []


def test_explore_off_the_recorded_value_and_under_an_overlay(tab: Page, address: str) -> None:
    """Faded text, the divider and the shades are seen only there."""
    page = settled(tab, f"{address}/explore?run=1-story-mars&dial=0.2&overlay=ratio", "light")
    assert page.locator(".explorer .faded").count() and page.locator(".explorer .t[class*=' c']").count()
    found = violations(page, *COLOURS, "aria-prohibited-attr", "aria-required-attr")
    assert not found, in_words(found)


def test_what_the_buttons_of_explore_open(tab: Page, address: str) -> None:
    page = settled(tab, f"{address}/explore?run=1-story-mars", "light")
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


def test_what_scrolls_below_the_header_is_not_read_through_it(tab: Page, address: str) -> None:
    page = settled(tab, f"{address}/explore?run=1-story-mars", "dark")
    header, title = page.locator(".stAppHeader"), page.get_by_role("heading", name="Explore")
    ground, room = header.evaluate("e => getComputedStyle(e).backgroundColor"), header.bounding_box()
    assert ground == page.locator(".stApp").evaluate("e => getComputedStyle(e).backgroundColor")
    assert room["y"] + room["height"] <= title.bounding_box()["y"], "nor does it hide anything unscrolled"


def test_a_finger_on_a_figure_moves_the_page(browser: Browser, address: str) -> None:
    agent = "Mozilla/5.0 (Linux; Android 14; Tab S9) AppleWebKit/537.36 Chrome/140.0 Safari/537.36"  # no telephone
    with browser.new_context(
        viewport={"width": 375, "height": 800}, is_mobile=True, has_touch=True, user_agent=agent
    ) as context:
        page = context.new_page()
        page.add_init_script(path=SCRIPT)
        page.goto(f"{address}/explore?run=1-story-mars")
        rests(page)
        figure = page.locator(".js-plotly-plot").first
        figure.evaluate("element => element.scrollIntoView({ block: 'center' })")
        swipe_up(page, figure)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_about_one_run_and_the_choice_of_models(tab: Page, address: str, scheme: str) -> None:
    page = settled(tab, f"{address}/runs?run=1-story-mars", scheme)
    expect(page.locator(".mv-facts").first).to_be_visible()
    page.get_by_role("button", name="Models").click()
    expect(page.get_by_role("button", name="Load", exact=True)).to_be_visible()
    found = violations(page, *(COLOURS if scheme == "dark" else ()))
    assert not found, in_words(found)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_is_pinned_and_what_is_found(tab: Page, address: str, scheme: str) -> None:
    page = settled(tab, f"{address}/explore?run=1-story-mars&selected=24", scheme)
    page.get_by_role("button", name="Pin this setting", exact=True).click()
    page.get_by_role("button", name="Pin this token", exact=True).click()
    page.get_by_role("button", name="Find in the text", exact=True).click()
    page.keyboard.type("play")
    expect(page.locator(".stream .t.found").first).to_be_visible()
    expect(page.locator(".pin-side")).to_be_visible()
    found = violations(page, *(COLOURS if scheme == "dark" else ()))
    assert not found, in_words(found)


def test_a_lessons_figure_and_its_knob(tab: Page, address: str) -> None:
    """Drawn in the browser, with controls of its own."""
    page = settled(tab, f"{address}/learn?run=3-story-sampled-mars&lesson=3", "dark")
    expect(page.locator(".lesson svg[role=img]")).to_have_count(2)
    assert page.get_by_role("slider", name="Trials").count()
    found = violations(page)
    assert not found, in_words(found)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_choice_that_was_just_made_can_be_read(tab: Page, address: str, scheme: str) -> None:
    page = settled(tab, f"{address}/learn", scheme)
    page.get_by_role("radio", name="2 · Rollback").click()
    page.wait_for_selector("h2:has-text('2 ·')")
    page.wait_for_function(STILL)
    found = violations(page, *COLOURS)
    assert not found, in_words(found)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(report_html(load_run(samples.RUNS / "1-story-mars"), most_steps=2), encoding="utf-8")
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report(browser: Browser, report: Path, scheme: str) -> None:
    page = browser.new_page(color_scheme=scheme)
    page.goto(report.as_uri())
    page.wait_for_selector("#heat_map .main-svg")  # the last figure
    found = violations(page, *(COLOURS if scheme == "dark" else ()))
    page.locator(".stream .rejected").first.click()
    page.set_viewport_size({"width": 375, "height": 800})
    page.wait_for_function("() => document.documentElement.scrollWidth <= innerWidth")
    found += violations(page, *(COLOURS if scheme == "dark" else ()))
    levels = [int(found.evaluate("e => e.localName[1]")) for found in page.get_by_role("heading").all()]
    page.close()
    assert not found, in_words(found)
    assert levels[0] == 1 and max(levels) == 2, "a heading stands below another, and none is left out"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = {name: load_run(samples.RUNS / name) for name in ("1-story-mars", "2-story-strict")}
    return write_site(runs, tmp_path_factory.mktemp("site") / "site")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    ("path", "last"),
    [
        ("index.html", ".cards"),
        ("runs/1-story-mars.html#frame=2", "#heat_map .main-svg"),
        ("compare.html", ".lanes .text"),
        ("lessons/1.html", "#aside .main-svg"),
        ("runs/1-story-mars.html?embed=true", ".stream .t"),
    ],
)
def test_a_static_site(browser: Browser, site: Path, path: str, last: str, scheme: str) -> None:
    page = browser.new_page(color_scheme=scheme)
    page.goto(f"{site.as_uri()}/{path}")
    page.wait_for_selector(last)
    found = violations(page, *(COLOURS if scheme == "dark" else ()))
    page.close()
    assert not found, in_words(found)


def test_axe_is_at_work(browser: Browser) -> None:
    page = browser.new_page()
    page.set_content("<main><img src=x><p style='color:#ccc;background:#fff'>faint</p></main>")
    assert {one["id"] for one in violations(page)} >= {"image-alt", "color-contrast"}
    page.close()
