"""The gallery as a person meets it: cards made from runs, a way to each, and sentences where there is nothing."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from mars_viz.ui import gallery, navigation
from tests.factories import toy_run

ROOT = Path(__file__).parents[1]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    replace(toy_run(temperature=0.0, dial=0.8), title="A story <b>bold</b>").save(tmp_path / "a-story")
    replace(toy_run(rule="strict"), title="A strict story").save(tmp_path / "b-strict")
    replace(toy_run(), title="Broken").save(tmp_path / "c-broken")
    (tmp_path / "c-broken" / "nodes.parquet").unlink()
    monkeypatch.setenv("MARS_VIZ_RUNS", str(tmp_path))
    return tmp_path


def opened() -> AppTest:
    tab = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
    tab.run()
    tab.switch_page("pages/gallery.py").run()
    return settled(tab)


def settled(tab: AppTest) -> AppTest:
    assert not tab.exception, [problem.message for problem in tab.exception]
    return tab


def cards(tab: AppTest) -> list[str]:
    return [html.body for html in tab.html if "mv-card" in html.body and "<style>" not in html.body]


def picture(card: str) -> str:
    found = re.search(r'src="data:image/svg\+xml;base64,([^"]+)"', card)
    assert found is not None
    return base64.b64decode(found[1]).decode()


def test_every_run_is_a_card_of_its_own_tokens(folder):
    story, strict, broken = cards(opened())
    assert "A story &lt;b&gt;bold&lt;/b&gt;" in story and "<b>" not in story
    assert "τ = " in story and "only because the rule is relaxed" in story
    assert picture(story).count("<rect") > 30 and picture(story) != picture(strict)
    assert "none of them" in strict or "lossless" in strict
    assert "nodes.parquet" in broken and "<img" not in broken


def test_a_card_opens_its_run_on_explore(folder, monkeypatch):
    tab = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
    tab = settled(tab.switch_page("pages/gallery.py").run())  # a tab that has not seen Explore
    monkeypatch.setattr(navigation, "through_app", lambda: None)  # which here reruns every time, and forgets the click
    button = next(found for found in tab.button if found.key == "open-b-strict")
    settled(button.click().run())
    assert tab.selectbox(key="run").value == "b-strict"
    assert tab.session_state["mars_viz"].view.run == "b-strict"
    assert tab.session_state["mars_viz"].arrived


def test_a_broken_run_cannot_be_opened(folder):
    assert next(found for found in opened().button if found.key == "open-c-broken").disabled


def test_without_runs_the_page_says_what_to_do(folder, monkeypatch, tmp_path_factory):
    monkeypatch.setenv("MARS_VIZ_RUNS", str(tmp_path_factory.mktemp("empty")))
    tab = opened()
    assert cards(tab) == []
    assert any("press Decode" in html.body for html in tab.html)


def test_every_other_page_of_the_app_is_named():
    app = (ROOT / "app.py").read_text("utf-8")
    for other in gallery.ELSEWHERE:
        assert f'"{other.page}", title="{other.name}"' in app
    assert app.count("st.Page(") == len(gallery.ELSEWHERE) + 1
