"""The census of controls (`make census`) reports a dead, an unlisted and a missing control, and no other."""

from __future__ import annotations

from playwright.sync_api import BrowserContext

from tests import controls
from tests.census.table import CONTROLS, SCENES, button, listed
from tests.controls import SCRIPT, Census, Scene

PAGE = """<div data-testid=stApp data-test-script-state=notRunning><main data-testid=stMainBlockContainer>
  <button onclick="this.nextElementSibling.textContent += '.'">Count 3</button><p></p>
  <button>Idle</button><button disabled>Off</button><button>Extra</button><button>Copy 1</button>
  <label>Size <input type=number value=2 onkeydown="location.hash ||= 'dial'"></label>
  <button aria-expanded=false onclick="this.ariaExpanded = 'true'; inner.hidden = false">More</button>
  <div id=inner hidden><button onclick="history.replaceState(0, '', '?dial=' + Math.random())">Turn</button></div>
</main></div>"""
TABLE = listed(button("Count # | Idle | Off", "text p"), button("Turn", "link dial"), button("Gone", fleeting=True))


def test_dead_unlisted_and_missing_controls_are_reported(context: BrowserContext, monkeypatch) -> None:
    monkeypatch.setattr(controls, "AT_FIRST", 2)
    monkeypatch.setattr(controls, "PATIENCE", 2)
    context.set_default_timeout(10_000)
    context.route("http://census.test/**", lambda route: route.fulfill(body=PAGE, content_type="text/html"))
    context.add_init_script(path=SCRIPT)
    census = Census(context, "http://census.test", "toy", TABLE, ({"button": "Copy #"},))
    extra, idle, off = sorted(census.go([Scene("one", "/", "button")]))
    assert "“Extra”" in extra and "does not change: page" in extra
    assert "“Idle”" in idle and "does not change: text p" in idle
    assert off == "toy: there is no button “Off” to click"


def test_the_table_has_every_page() -> None:
    assert CONTROLS.keys() == SCENES.keys() == {file.stem for file in (controls.SCRIPT.parents[1] / "pages").iterdir()}
