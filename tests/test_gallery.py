"""The start page: cards made from runs, and their links."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from mars_viz import load_run, samples
from mars_viz.components import guide
from mars_viz.components.guide import CARDS
from mars_viz.ui import gallery, library
from mars_viz.ui.lessons import LESSONS
from mars_viz.ui.lessons.base import TEXTS, THETA_DIAL, lacking, mapped_gamma
from mars_viz.ui.session import Session
from tests.factories import toy_run
from tests.tabs import address, notes, opened, recorded, sent, settled
from tests.test_learn_page import with_map


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    recorded(monkeypatch, tmp_path, with_map("A story <b>bold</b>", temperature=0.0, dial=0.8))
    monkeypatch.setattr(samples, "RACES", tmp_path / "no-races")
    return tmp_path


def cards(tab: AppTest) -> list[str]:
    return [html.body for html in tab.html if "mv-card" in html.body and "<style>" not in html.body]


def picture(card: str) -> str:
    return base64.b64decode(re.search(r'src="data:image/svg\+xml;base64,([^"]+)"', card)[1]).decode()


def test_the_bare_address_opens_the_gallery_and_an_old_link_to_a_view_explore(folder):
    tab = opened()
    assert [found.label for found in tab.button if found.proto.type == "primary"] == ["Open this run in Explore"]
    (played,) = [each[0]["play"] for each in sent(tab) if isinstance(each, list) and "play" in each[0]]
    assert played[0] == 1 and played[2] == 0.9
    assert gallery.shown_first(library.shelf(Session())) == "a-story"
    asked = {"run": "a-story", "dial": "0.7", "overlay": "ratio", "selected": "3", "gamma": "2"}
    tab = opened(**asked)
    assert tab.selectbox(key="run").value == "a-story" and address(tab) == asked and not cards(tab)
    assert "a tab that is gone" in notes(opened(run="live-12345678"))


@pytest.mark.parametrize("name", ["1-story-mars", "9-story-tree"])
def test_the_played_dial_passes_another_text(monkeypatch, name):
    run = load_run(samples.RUNS / name)
    assert not lacking(run, (THETA_DIAL, TEXTS))
    assert gallery.played_values(run) == (1, 0.8, 0.9)
    monkeypatch.setattr(gallery, "LOOSE", 0.999)  # down to which nothing differs
    low = gallery.played_values(run)[1]
    passed = {each.token_ids for each in run.dial_map.segments_for(mapped_gamma(run)) if each.high > low}
    assert len(passed) > 1 and low < 0.999


def test_the_cards_of_the_guide_lead_to_every_lesson_with_one_action(monkeypatch):
    assert len({card["id"] for card in CARDS}) == len(CARDS)
    assert all(len({"select", "press", "turn"} & {*card["action"]}) == 1 for card in CARDS)
    assert {card["lesson"] for card in CARDS} - {0} == set(range(1, len(LESSONS) + 1))
    for asked, lesson in ((None, None), (99, None), ("2", None), ([], None), (2, 2)):
        monkeypatch.setattr(guide, "mount", lambda *_, asked=asked, **__: {"lesson": asked})
        assert guide.guide("key", (1, 0.8, 0.9), key="guide") == lesson


def test_every_run_is_a_card(folder):
    tab = opened()
    story, strict, broken = cards(tab)[:3]
    assert "A story &lt;b&gt;bold&lt;/b&gt;" in story and "<b>" not in story
    assert "MARS θ = 0.8 · T 0 · seed 0 · γ 6" in story and "only because the rule is relaxed" in story
    assert picture(story).count("<rect") > 20 and picture(story) != picture(strict)
    assert "Lossless: the text follows the target&#x27;s distribution" in strict
    assert "nodes.parquet" in broken and "<img" not in broken and tab.button(key="runs-c-broken").disabled
    found = cards(tab)[3 : 3 + len(LESSONS)]
    for number, (card, lesson) in enumerate(zip(found, LESSONS, strict=True), 1):
        assert f"{number} · " in card and lesson.point.split("'")[0] in card
    unserved = [gallery.UNSERVED in card for card in found]
    assert unserved == [number == 3 for number in range(1, len(LESSONS) + 1)], "no run here is sampled"
    replace(toy_run(), rounds=(), title="0 empty").save(folder / "0-empty")
    card = next(card for card in cards(opened()) if "0 empty" in card)
    assert "has no tokens" in card and "– tokens" not in card


def test_cards_open_their_run_and_their_lesson(folder, monkeypatch):
    tab = settled(opened("pages/gallery.py").button(key="runs-b-strict").click().run())
    assert tab.selectbox(key="run").value == "b-strict" and tab.session_state["mars_viz"].arrived
    tab = settled(opened("pages/gallery.py").button(key="lessons-6").click().run())
    assert tab.button_group(key="learn-lesson").value == 6 and address(tab)["lesson"] == "6"


def test_without_any_run_the_page_says_so(folder, monkeypatch, tmp_path_factory):
    monkeypatch.setenv("MARS_VIZ_SAMPLES", "off")
    monkeypatch.setenv("MARS_VIZ_RUNS", str(tmp_path_factory.mktemp("empty")))
    tab = opened()
    assert len(cards(tab)) == len(LESSONS)
    assert all(gallery.UNSERVED in card and "<img" not in card for card in cards(tab)), "they say why"
    assert "mars-viz map --prompt" in notes(tab)
    assert str(tmp_path_factory.getbasetemp()) not in notes(tab), "the server's own paths are not for visitors"
