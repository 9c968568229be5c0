"""The Compare page in AppTest, without models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from mars_viz.axis import RuleDial
from mars_viz.backend_choice import BackendChoice
from mars_viz.components import compare as component
from mars_viz.components.compare import Ask
from mars_viz.components.explorer.pins import Choice
from mars_viz.rules import RULES
from mars_viz.run import Piece
from mars_viz.sweep import Sweep
from mars_viz.ui import tab_jobs
from mars_viz.ui.compare.page_state import Across
from mars_viz.words import setting
from tests import tabs, test_pages
from tests.staged import changed, of_the_pair
from tests.sweep_cases import COSTS, SETTINGS, conversations, sweep_over, toy_prompts, toy_sweep
from tests.tables import table_backend
from tests.tabs import address as link
from tests.tabs import button, press, said, settled, wait
from tests.test_compare import charted

HOSTILE = Piece("\u202e<img src=x onerror=window.hacked=1>".encode())
recorded = test_pages.folder  # two runs, a broken one, and a worker without models


@pytest.fixture
def folder(recorded: Path) -> Path:
    """A run with its map, of the built-in pair and hostile in every word, before the others."""
    run = of_the_pair(charted())
    pieces = {token: piece if piece.special else HOSTILE for token, piece in run.pieces.items()}
    changed(run, pieces=pieces, title="0 mapped").save(recorded / "0-mapped")
    return recorded


def opened(**parameters: str) -> AppTest:
    return tabs.opened("pages/compare.py", **parameters)


def ask(monkeypatch: pytest.MonkeyPatch, tab: AppTest, what: Ask, choice: str) -> AppTest:
    """Let the browser ask, once, as its callback does before a rerun."""
    with monkeypatch.context() as patched:
        patched.setattr(component, "compare", lambda payload, *, key, on_ask: on_ask(what, choice))
        settled(tab.run())
    return settled(tab.run())


def test_the_page_opens_on_strict_and_the_runs_own_setting(folder):
    tab = opened()
    assert link(tab) == {"run": "0-mapped", "reference": "0-mapped~1~", "shown": "0-mapped"}
    words = said(tab)
    assert "<img" not in words and "\u202e" not in words and "&lt;img" in words and "U+202E" in words
    assert "θ = 0.90 writes" in words and "strict writes" in words and "τ (tokens per round): " in words
    assert 'class="mv-tag"' in words and "rolled back" in set(tab.dataframe[0].value["number"])
    tab = opened(run="b-strict")
    assert tab.selectbox(key="run").value == "b-strict" and link(tab) == {"run": "b-strict", "reference": "b-strict"}
    assert "Nothing else here to compare" in said(tab) and not tab.dataframe
    settled(tab.selectbox(key="run").select("a-story").run())
    assert tab.session_state["mars_viz_Comparison"].view.reference == Choice("a-story")


def test_a_link_opens_the_same_view(folder, monkeypatch):
    tab = opened()
    settled(tab.segmented_control(key="compare-gamma").set_value(2).run())
    key = tab.session_state["mars_viz_Comparison"].view.shown.key
    ask(monkeypatch, tab, Ask.SHOW, "0-mapped~1~2")
    assert link(tab)["reference"] == "0-mapped~1~" and "strict, γ = 2" in said(tab)
    for what, choice in ((Ask.SHOW, key), (Ask.PIN, key), (Ask.TOKEN, "right-3"), (Ask.COLOUR, "outcome")):
        ask(monkeypatch, tab, what, choice)
    found = link(tab)
    expected = {"reference": key, "gamma": "2", "colour": "outcome", "token": "right-3"}
    assert found == found | expected
    fresh = opened(**found)
    assert link(fresh) == found and said(fresh) == said(tab)
    assert fresh.session_state["mars_viz_Comparison"].view == tab.session_state["mars_viz_Comparison"].view


def test_links_that_ask_in_vain_say_so_and_show_something(folder):
    tab = opened(run="0-mapped", reference="gone", shown="0-mapped~0.1~", across="sideways", colour="red")
    assert "no run of that name" in said(tab) and "is not on the map" in said(tab)
    assert "sideways" in said(tab) and "red" in said(tab)
    assert link(tab) == {"run": "0-mapped", "reference": "0-mapped~1~", "shown": "0-mapped"}
    tab = opened(across="runs", run="a-story")  # all but the broken one, whatever they are
    assert link(tab)["reference"] == "a-story" and link(tab)["shown"] == "0-mapped"
    assert "compared by characters" in said(tab), "the words of their vocabularies differ"
    known = {choice.run for choice in tab.session_state["mars_viz_Comparison"].known}
    assert known == {"a-story", "0-mapped", "b-strict"}


def test_another_rule_is_decoded_if_the_models_are_here(folder):
    tab = opened(across="rules", run="0-mapped")
    settled(tab.selectbox(key="compare-rule").select("strict").run())
    wait(press(tab, "Decode with it"))
    assert link(tab)["run"] == link(tab)["reference"] == "0-mapped" and link(tab)["shown"].startswith("live-")
    assert tab.session_state["mars_viz"].runs[link(tab)["shown"]].settings.rule == "strict"
    tab = opened(across="rules", run="a-story")
    assert button(tab, "Decode with it").disabled and "other models are chosen" in said(tab)
    models = tab.session_state["mars_viz"].models = BackendChoice("/a/toy-target", "/a/toy-drafter", folders=True)
    wait(press(settled(tab.run()), "Decode with it"))
    assert tab_jobs.shared_worker().models.status.choice == models, said(tab)


def test_two_settings_of_a_sweep_and_its_own_link_to_the_end_of_what_was_swept(two_sweeps):
    tab = opened(across="sweep", sweep="a-mars", to="77")
    assert "θ = 77 is not among what this sweep covers, 0 to 1; the nearest value is shown" in said(tab)
    assert "Both are at strict, so nothing differs" in said(tab) and link(tab)["to"] == "1"
    assert "is not among" not in said(settled(tab.run()))
    (two_sweeps / "grid").mkdir()
    (two_sweeps / "b-margin").rename(two_sweeps / "grid" / "b-margin")
    tab = opened(across="sweep", sweep="grid/b-margin")
    assert link(tab)["sweep"] == "grid/b-margin"
    assert "τ (tokens per target pass) over 4 prompts: " in said(tab) and "modelled" in said(tab)
    settled(tab.number_input(key="compare-to_dial").set_value(0.5).run())
    assert link(tab)["to"] == "0.5" and said(opened(**link(tab))) == said(tab)
    low = 0.66666666671  # which ten digits would carry below
    span = RuleDial(RULES["mars"]).span(low, 1.0, (SETTINGS.gamma,))
    Sweep(table_backend(), toy_prompts(4), SETTINGS, span, two_sweeps / "thirds", costs=COSTS).finish()
    tab = opened(across="sweep", sweep="thirds", to="0.666666666")
    assert "is not among what this sweep covers" in said(tab) and link(tab)["to"] == "0.66666666671"
    fresh = opened(**link(tab))
    assert "is not among" not in said(fresh) and link(fresh) == link(tab)
    assert fresh.number_input(key="compare-to_dial").value == low


@pytest.fixture
def two_sweeps(folder, tmp_path, monkeypatch) -> Path:
    """MARS over six prompts, its margin over four of them."""
    sweeps = tmp_path / "sweeps"
    for name, rule, count in (("a-mars", "mars", 6), ("b-margin", "mars-margin", 4)):
        for _ in toy_sweep(sweeps / name, count, replace(SETTINGS, rule=rule)):
            pass
    monkeypatch.setenv("MARS_VIZ_SWEEPS", str(sweeps))
    return sweeps


def test_two_sweeps_are_paired_by_prompt_and_the_link_opens_the_same(two_sweeps, monkeypatch):
    asked, default = {"across": "sweep", "sweep": "a-mars", "beside": "b-margin"}, RULES["mars-margin"].dial.default
    tab = opened(**asked)
    assert link(tab) == asked | {"from": "0.9", "to": f"{default:g}"}
    assert "over 4 shared prompts" in said(tab) and "share 4 prompts of 6 and 4" in said(tab)
    assert f" wrong only with MARS by margin at {setting('m', default)}, and " in said(tab)
    assert "only with MARS at θ = 0.90." in said(tab) and "paired bootstrap over prompts" in said(tab)
    frame = tab.dataframe[1].value
    assert frame["prompt"].tolist() == ["p0", "p1", "p2", "p3"] and "τ, compared" in frame
    settled(tab.number_input(key="compare-from_dial").set_value(0.5).run())
    fresh = opened(**link(tab))
    assert link(fresh) == link(tab) and link(tab)["from"] == "0.5" and said(fresh) == said(tab)
    settled(tab.selectbox(key="compare-beside").select("").run())
    assert "beside" not in link(tab) and link(tab)["from"] == "1"
    tab = opened(across="sweep", sweep="a-mars", beside="gone")
    assert "no other sweep of the link" in said(tab) and "beside" not in link(tab)
    other = replace(toy_prompts(3), items=tuple(replace(item, id=f"z{item.id}") for item in toy_prompts(3).items))
    sweep_over(two_sweeps / "c-other", other)
    assert "share no prompt" in said(opened(across="sweep", sweep="a-mars", beside="c-other"))
    for name, rule in (("c-talks", "mars"), ("d-talks", "mars-margin")):
        sweep_over(two_sweeps / name, conversations(3, 2), replace(SETTINGS, rule=rule))
    tab = opened(across="sweep", sweep="c-talks", beside="d-talks")
    assert "paired bootstrap over questions, each with all of its turns" in said(tab)
    monkeypatch.delenv("MARS_VIZ_SAMPLES")
    assert "over 640 prompts" in said(opened(across="sweep", sweep="sample:4-turns-mars"))


def test_sweeps_that_cannot_be_read_or_listed_are_a_sentence(two_sweeps, tmp_path, monkeypatch):
    (two_sweeps / "b-margin" / "sweep.json").write_text("{}")
    text = said(opened(across="sweep", sweep="a-mars", beside="b-margin"))
    assert "is not that of a sweep" in text and "Two settings of one sweep are shown instead." in text
    assert "τ (tokens per target pass) over 6 prompts" in text
    (tmp_path / "file").write_text("")
    for name, words in (("file", "cannot be listed"), ("none", "mars-viz sweep")):
        monkeypatch.setenv("MARS_VIZ_SWEEPS", str(tmp_path / name))
        text = said(opened(across="sweep"))
        assert words in text and ("no saved sweep here yet" in text) == (name == "none")


def test_the_reference_and_its_side_stay_from_tab_to_tab(folder, monkeypatch):
    tab = opened(run="0-mapped")
    reference = {"run": "0-mapped", "reference": "0-mapped~1~", "shown": "0-mapped"}
    for across in (Across.RULES, Across.RUNS, Across.SETTINGS):
        settled(tab.segmented_control(key="across").set_value(across).run())
        assert link(tab) == link(tab) | reference and link(opened(**link(tab))) == link(tab), across
    tab = ask(monkeypatch, opened(run="0-mapped", across="runs", reference="0-mapped~1~"), Ask.SHOW, "b-strict")
    assert link(tab)["shown"] == "b-strict"
    settled(tab.segmented_control(key="across").set_value(Across.SETTINGS).run())
    assert link(tab) == reference
