"""The app in Streamlit's own test tab: opening a page, reading it, and pressing its buttons."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from streamlit.runtime.pages_manager import PagesManager
from streamlit.testing.v1 import AppTest, app_test

from mars_viz.run import Run
from tests.factories import toy_run

ROOT = Path(__file__).resolve().parent.parent
APP = str(ROOT / "app.py")
PATIENCE = 240.0  # seconds; only a hanging test waits as long


def pages_manager(*arguments: Any, **keywords: Any) -> PagesManager:
    """One that runs app.py for every page from the start, as the server's; see `mars_viz.ui.startup`."""
    PagesManager.uses_pages_directory = False
    return PagesManager(*arguments, **keywords)


app_test.PagesManager = pages_manager  # type: ignore[misc, assignment]


def opened(page: str = "", theme: str | None = None, **parameters: str) -> AppTest:
    """A fresh tab on a link to a page, such as 'pages/rules.py'; the app's first where none is named."""
    tab = AppTest.from_file(APP, default_timeout=PATIENCE)
    tab.query_params = dict(parameters)
    if theme:
        tab.context = {"theme": theme}
    return settled((tab.switch_page(page) if page else tab).run())


def recorded(monkeypatch: pytest.MonkeyPatch, folder: Path, story: Run) -> None:
    """Save two runs and a broken one as all runs and samples of the server."""
    for name, run in {"a-story": story, "b-strict": replace(toy_run(rule="strict"), title="A strict story")}.items():
        run.save(folder / name)
    (replace(toy_run(), title="Broken").save(folder / "c-broken") / "nodes.parquet").unlink()
    for variable in ("MARS_VIZ_RUNS", "MARS_VIZ_SAMPLES"):
        monkeypatch.setenv(variable, str(folder))


def settled(tab: AppTest) -> AppTest:
    """The tab, which must not have met an exception."""
    assert not tab.exception, [problem.message for problem in tab.exception]
    return tab


def sent(tab: AppTest) -> list[Any]:
    """What the elements of the browser were sent that were sent anything."""
    return [json.loads(each.proto.json) for each in tab.get("bidi_component") if each.proto.json]


def titles(tab: AppTest) -> list[str]:
    """The figures' alternative texts, which are their titles."""
    return [chart.proto.alt for chart in tab.get("plotly_chart")]


def captions(tab: AppTest) -> str:
    return " ".join(caption.value for caption in tab.caption)


def notes(tab: AppTest) -> str:
    """All HTML of the page."""
    return " ".join(html.body for html in tab.html)


def said(tab: AppTest) -> str:
    """All HTML and Markdown of the page, its captions, and the words of its progress."""
    progress = [found.proto.text for found in tab.get("progress")]
    return " ".join([notes(tab), *(part.value for part in tab.markdown), captions(tab), *progress])


def address(tab: AppTest) -> dict[str, str]:
    return {name: "".join(value) for name, value in tab.query_params.items()}


def labels(tab: AppTest) -> list[str]:
    return [found.label for found in tab.button]


def keys(tab: AppTest) -> set[str]:
    """The keys of buttons and fields."""
    fields = (*tab.button, *tab.number_input, *tab.text_input, *tab.selectbox, *tab.segmented_control)
    return {each.key for each in fields if each.key}


def button(tab: AppTest, label: str) -> Any:
    """The first button whose label begins so, or which has this key."""
    return next(found for found in tab.button if found.label.startswith(label) or found.key == label)


def press(tab: AppTest, label: str) -> AppTest:
    return settled(button(tab, label).click().run())


def wait(tab: AppTest, gone: str = "Cancel") -> AppTest:
    """Rerun, as the page does by itself in a browser, until this button has gone."""
    end = time.monotonic() + PATIENCE
    while gone in labels(tab):
        assert time.monotonic() < end, "it never ended"
        time.sleep(0.02)
        settled(tab.run())
    return tab
