"""Every page under axe-core, in both themes: nothing that it calls serious or critical."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.served import served

ROOT = Path(__file__).parents[1]
PATIENCE = 120_000  # ms; a busy machine is no reason to fail
GRAVE = ("serious", "critical")
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


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served(ROOT / "app.py") as found:
        yield found


def settled(browser: Browser, address: str, scheme: str) -> Page:
    """The page once Streamlit has run it and nothing is a placeholder any more."""
    page = browser.new_page(viewport={"width": 1400, "height": 900}, color_scheme=scheme)
    page.set_default_timeout(PATIENCE)
    page.goto(address)
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning] [data-testid=stMainBlockContainer]")
    page.wait_for_function("() => !document.querySelector('[data-testid=stSkeleton], [data-testid=stSpinner]')")
    page.wait_for_timeout(1500)  # figures draw themselves after the script has ended
    return page


def violations(page: Page) -> list[dict[str, Any]]:
    page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text("utf-8"))
    found = page.evaluate(
        "exclude => axe.run({ exclude: exclude.map(s => [s]) }, { resultTypes: ['violations'] })",
        list(STREAMLITS_OWN),
    )
    return [violation for violation in found["violations"] if violation["impact"] in GRAVE]


def in_words(found: list[dict[str, Any]]) -> str:
    return "\n".join(
        f"{one['impact']} {one['id']}: {one['help']}\n"
        + "\n".join(f"    {node['target']} {node['html'][:160]}\n       {node['failureSummary']}" for node in one["nodes"][:8])
        for one in found
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", pages_of_the_app())
def test_no_page_has_a_serious_or_critical_violation(browser: Browser, address: str, path: str, scheme: str) -> None:
    page = settled(browser, f"{address}/{path}", scheme)
    found = violations(page)
    page.close()
    assert not found, in_words(found)
