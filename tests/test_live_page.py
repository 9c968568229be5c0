"""The Live page in AppTest, without models: decodes, races, and loading of models."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from mars_viz.backend_choice import BackendChoice
from mars_viz.errors import BadInput, TooLarge
from mars_viz.race import Race, files, save_race
from mars_viz.race.making import RECORDED, RaceStep, RaceTexts
from mars_viz.race.records import RaceLane
from mars_viz.race.store import RaceStore
from mars_viz.run import Settings
from mars_viz.runfiles import write_zip
from mars_viz.runstore import RunStatus, RunStore
from mars_viz.ui import models_form, navigation, tab_jobs, visitors
from mars_viz.ui.jobs import tasks
from mars_viz.ui.jobs.decode_job import DecodeJob, Raced, RaceJob, Ways
from mars_viz.ui.jobs.job import JobState, LongJob, Progress
from mars_viz.ui.jobs.models import Device, Models, Status
from mars_viz.ui.jobs.worker import Worker
from mars_viz.ui.live import live_words
from tests.factories import toy_run
from tests.tabs import ROOT, captions, sent, settled
from tests.test_pages import Script, button, notes
from tests.test_race import toy_race
from tests.test_ui_worker import until

PATIENCE = 240.0


class ToyRacer:
    """Races a recorded race, held after the first step."""

    held = threading.Event()

    def __iter__(self) -> Iterator[RaceStep]:
        yield RaceStep(RaceLane.ALONE, 1, RECORDED)
        assert self.held.wait(PATIENCE)
        yield RaceStep(RaceLane.RELAXED, 9, 2)

    def texts(self) -> RaceTexts:
        return RaceTexts(("Once", " upon"))

    def race(self) -> Race:
        return toy_race()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty store and a worker without models."""
    monkeypatch.setenv("MARS_VIZ_RUNS", str(tmp_path))
    monkeypatch.setenv("MARS_VIZ_SAMPLES", "off")
    models = Models(lambda choice, tell: object(), lambda pair: Device("A toy device", "float32", 5_000_000, None))
    worker = Worker(models)
    monkeypatch.setattr(tab_jobs, "shared_worker", lambda: worker)
    ways = Ways(lambda pair, prompt, settings: Script(prompt, settings), store=RunStore(tmp_path))
    monkeypatch.setattr(tab_jobs, "streamed", lambda chat, history, name: replace(ways, name=name))
    monkeypatch.setattr(tasks, "race", lambda *asked: ToyRacer())
    # AppTest forgets before every run that app.py was run; going through it would lose the click (see navigation).
    monkeypatch.setattr(navigation, "through_app", models_form.draw)
    for held in (Script, ToyRacer):
        monkeypatch.setattr(held, "held", threading.Event())
    yield tmp_path
    Script.held.set()
    ToyRacer.held.set()


def opened(**parameters: str) -> AppTest:
    tab = AppTest.from_file(str(ROOT / "app.py"), default_timeout=PATIENCE)
    tab.query_params = dict(parameters)
    tab.session_state[models_form.OPEN] = True
    return settled(tab.switch_page("pages/live.py").run())


def press(tab: AppTest, label: str) -> AppTest:
    return settled(button(tab, label).click().run())


def held_decode(tab: AppTest) -> DecodeJob:
    """A decode that was asked for in this tab, once it is held after its second round."""
    tab.text_area(key="prompt").set_value("hold it")
    press(tab, "Decode now")
    job: DecodeJob = tab.session_state["mars_viz_live"].job
    until(lambda: job.progress.rounds == 2)
    return job


def labels(tab: AppTest) -> list[str]:
    return [found.label for found in tab.button]


def wait(tab: AppTest, gone: str = "Cancel") -> AppTest:
    end = time.monotonic() + PATIENCE
    while gone in labels(tab):
        assert time.monotonic() < end, "it never ended"
        time.sleep(0.02)
        settled(tab.run())
    return tab


def show(tab: AppTest, view: str) -> AppTest:
    tab.session_state["live-view"] = view
    return settled(tab.run())


def test_decodes_stream_are_cancelled_stored_and_open_in_explore(folder):
    tab = opened()
    assert [found.label for found in tab.button if found.proto.type == "primary"] == ["Decode now"]
    tab.text_area(key="prompt").set_value("hold <b>this</b>")
    press(tab, "Decode now")
    job = tab.session_state["mars_viz_live"].job
    until(lambda: job.progress.rounds == 2)
    settled(tab.run())
    assert "Cancel" in labels(tab)
    press(tab, "Decode now")
    assert "One thing at a time" in notes(tab) and tab.session_state["mars_viz_live"].job is job
    assert "<b>this" not in notes(tab)
    Script.held.set()
    wait(tab)
    assert "Rolled back" in notes(tab) and "A toy device" in notes(tab)
    (entry,) = RunStore(folder).list()
    assert (entry.standing, entry.title) == (RunStatus.WHOLE, "hold <b>this</b>")
    Script.held.clear()
    job = held_decode(tab)
    press(settled(tab.run()), "Cancel")
    Script.held.set()
    wait(tab)
    assert (job.progress.state, job.progress.rounds) == (JobState.CANCELLED, 3) and "Decode now" in labels(tab)
    cut = next(each for each in RunStore(folder).list() if each.name != entry.name)
    assert cut.tokens == job.progress.tokens
    press(tab, "Explore")
    assert tab.selectbox(key="run").value == cut.name


def test_a_race_is_run_kept_and_replayed(folder):
    tab = opened()
    tab.text_area(key="prompt").set_value("Once")
    press(tab, "Race now")
    job = tab.session_state["mars_viz_live"].race
    until(lambda: job.progress.step is not None)
    settled(tab.run())
    assert "Cancel" in labels(tab)
    step = Raced(JobState.DECODING, step=RaceStep(RaceLane.STRICT, 4, 2))
    assert live_words.racing(step, False) == "Race, turn 2 of 5 by the clock: strict, 4 tokens"
    ToyRacer.held.set()
    wait(tab)
    (path,) = (folder / "races").iterdir()
    assert path.name.startswith("race-") and tab.selectbox(key="race").value == path.name
    assert button(tab, "Explore")


def test_the_page_plays_the_recorded_race_without_loading_models(folder):
    save_race(toy_race(), folder / "races" / "mine")
    tab = opened()
    assert tab.selectbox(key="race").value == "1-story" and plays(tab)
    assert "A recorded example" in captions(tab)
    assert tab_jobs.shared_worker().models.status == Status()
    settled(tab.selectbox(key="race").set_value("mine").run())
    assert not plays(tab) and "A recorded example" not in captions(tab)
    (save_race(toy_race(), folder / "races" / "zz") / "relaxed" / "rows.parquet").unlink()
    tab = opened()
    tab.session_state["mars_viz_live"].shown = "zz"
    assert "rows.parquet" in notes(show(tab, "Races"))


def plays(tab: AppTest) -> bool:
    """True if the page asks the browser to play the race by itself."""
    return bool(next(data[0]["play"] for data in sent(tab) if "play" in data[0]))


def test_the_models_are_unloaded_on_demand(folder):
    tab = opened()
    tab.text_area(key="prompt").set_value("Once")
    wait(press(tab, "Decode now"))
    assert tab_jobs.shared_worker().models.status.choice == BackendChoice()
    press(tab, "Unload")
    until(lambda: tab_jobs.shared_worker().models.status.choice is None)


class Toy:
    """A pair whose life can be watched."""

    def __init__(self, name: str) -> None:
        self.name = name


class Room:
    """A device with so many bytes, and what lies on it."""

    def __init__(self, size: int, sizes: dict[str, int]) -> None:
        self.size, self.sizes, self.loads = size, sizes, 0
        self.on_it: weakref.WeakSet[Toy] = weakref.WeakSet()

    @property
    def names(self) -> list[str]:
        return sorted(pair.name for pair in self.on_it)

    def load(self, choice: BackendChoice, tell: Any) -> Toy:
        need, free = self.sizes[choice.target], self.size - sum(self.sizes[name] for name in self.names)
        if need > free:
            raise TooLarge(f"It needs {need}, and {free} are free.", need, free)
        self.loads += 1
        made = Toy(choice.target)
        self.on_it.add(made)
        return made

    def models(self) -> Models[Toy]:
        return Models(self.load, lambda pair: Device("toy", "", weights=self.sizes[pair.name]))


class Sweeps(LongJob[Progress]):
    """Keeps its pair between its steps, as a sweep does."""

    def __init__(self, choice: BackendChoice, steps: int = 3, fail: bool = False) -> None:
        super().__init__(Progress(JobState.QUEUED))
        self.choice, self.count, self.fails = choice, steps, fail

    def steps(self, models: Models[Any]) -> Iterator[None]:
        pair = models.pair(self.choice, holder=self)
        for _ in range(self.count):
            yield
            assert pair.name == self.choice.target
        if self.fails:
            raise BadInput("It went wrong.")


SWEPT, OTHER, HUGE = BackendChoice("swept", "x"), BackendChoice("other", "x"), BackendChoice("huge", "x")


@pytest.mark.parametrize("how", ["done", "cancelled", "failed"])
def test_a_pair_that_a_sweep_holds_is_never_loaded_twice_and_goes_with_it(how):
    room = Room(10, {"swept": 5, "other": 4, "huge": 11})
    models, sweep = room.models(), Sweeps(SWEPT, fail=how == "failed")
    sweep.run(models)
    models.pair(OTHER)
    assert room.names == ["other", "swept"]  # both fit
    sweep.run(models)
    models.pair(SWEPT)  # a decode with the sweep's pair between two of its steps
    assert (room.names, room.loads, models.status.choice) == (["swept"], 2, SWEPT)
    models.pair(OTHER)
    if how == "cancelled":
        sweep.cancel()
    while not sweep.progress.state.finished:
        sweep.run(models)
    assert sweep.progress.state.value == how
    assert (room.names, models.status.choice) == (["other"], OTHER)


def test_what_does_not_fit_beside_a_sweep_says_so_and_leaves_every_pair_usable():
    room = Room(10, {"swept": 6, "other": 5, "third": 4, "fourth": 3})
    models, sweep = room.models(), Sweeps(SWEPT, steps=9)
    sweep.run(models)
    for _ in range(2):
        with pytest.raises(TooLarge, match="It needs 5, and 4 are free. A sweep that is under way holds swept"):
            models.pair(OTHER)
        sweep.run(models)
        assert (room.names, models.status.choice, models.pair(SWEPT).name) == (["swept"], SWEPT, "swept")
    models.pair(BackendChoice("third", "x"))
    with pytest.raises(TooLarge, match="sweep"):
        models.pair(OTHER)
    assert room.names == ["swept", "third"]
    with pytest.raises(KeyError):
        models.pair(BackendChoice("broken", "x"))
    assert models.status.choice == BackendChoice("third", "x") == models.recent[0]
    models.pair(BackendChoice("fourth", "x"))  # fits in the place of the third, which nobody needs
    assert room.names == ["fourth", "swept"] and room.loads == 3
    sweep.cancel()
    sweep.run(models)
    assert models.pair(OTHER).name == "other"


def test_what_slows_the_models_down_and_their_names_are_text(folder, monkeypatch):
    note = "<img onerror=x> runs without CUDA graphs"
    worker = Worker(Models(lambda choice, tell: object(), lambda pair: Device("toy", "float32", notes=(note,))))
    monkeypatch.setattr(tab_jobs, "shared_worker", lambda: worker)
    tab = opened()
    assert "CUDA graphs" not in notes(tab)
    worker.models.pair(BackendChoice("![x](http://e.vil/x)", "<img src=x>"))
    settled(tab.run())
    assert "![x](http://e.vil/x) with &lt;img src=x&gt;" in notes(tab) and "<img" not in notes(tab)
    assert "&lt;img onerror=x&gt; runs without CUDA graphs" in notes(tab) and "e.vil" not in captions(tab)


def test_a_decode_that_fails_shows_its_error_and_no_numbers(folder):
    tab = opened()
    tab.text_area(key="prompt").set_value("fail")
    wait(press(tab, "Decode now"))
    said = " ".join(found.proto.text for found in tab.get("progress"))
    assert "shorten it" in notes(tab) and "failed before the first token" in said and "Done" not in said
    assert "Rolled back" not in notes(tab) and RunStore(folder).list() == []


def test_a_cancelled_race_is_not_saved_and_the_shown_one_stays(folder):
    for name in ("one", "other"):
        save_race(toy_race(title="Twice"), folder / "races" / name)
    tab = show(opened(), "Races")
    options = tab.selectbox(key="race").options
    assert len(set(options)) == len(options) == 3
    for name in ("other", "one"):
        settled(tab.selectbox(key="race").set_value(name).run())
        assert tab.session_state["mars_viz_live"].shown == name
    press(tab, "Race now")
    job = tab.session_state["mars_viz_live"].race
    until(lambda: job.progress.step is not None)
    press(settled(tab.run()), "Cancel")
    ToyRacer.held.set()
    wait(tab)
    assert "an unfinished race is not saved" in notes(tab) and "no race of that name" not in notes(tab)
    assert tab.selectbox(key="race").value == "one" and len(list((folder / "races").iterdir())) == 2


def test_a_race_is_uploaded_renamed_deleted_restored_and_uploaded_again(folder, tmp_path_factory, monkeypatch):
    monkeypatch.setattr(visitors, "mark", lambda: "mine")
    path = save_race(toy_race(title="<img src=x>"), tmp_path_factory.mktemp("elsewhere") / "brought")
    upload = ("lesson.zip", files.write_zip(path), "application/zip")
    tab = show(opened(), "Races")
    uploader, race = (lambda: tab.file_uploader(key="race-zip")), (lambda: tab.selectbox(key="race"))
    settled(uploader().set_value(("x.zip", write_zip(toy_run()), "application/zip")).run())
    assert "no part of a race" in notes(tab) and race().value == "1-story" and not (folder / "races").exists()
    (folder / "races").write_text("no folder")
    settled(uploader().set_value(upload).run())
    assert race().value == "1-story" and "races" in notes(tab)
    (folder / "races").unlink()
    assert settled(tab.run()).selectbox(key="race").value == "1-story"
    settled(uploader().set_value(upload).run())
    assert race().value == "lesson" and (folder / "races" / "lesson").is_dir()
    tab.text_input(key="title-race-lesson").set_value("\u202eevil")
    settled(tab.button(key="rename-race-lesson").click().run())
    assert "control character" in notes(tab)
    tab.text_input(key="title-race-lesson").set_value("My race")
    settled(tab.button(key="rename-race-lesson").click().run())
    assert race().value == "lesson" and race().options[0].startswith("My race")
    settled(tab.button(key="delete-race-lesson").click().run())
    assert race().value == "1-story" and "Deleted: My race" in notes(tab)
    assert RaceStore(folder / "races").list() == []
    settled(tab.button(key="undo-race-lesson").click().run())
    assert race().options[0].startswith("My race") and "Deleted" not in notes(tab)
    settled(race().set_value("lesson").run())
    monkeypatch.setattr(visitors, "mark", lambda: "other")
    settled(tab.run())
    tab.button(key="delete-race-lesson").proto.disabled = False
    settled(tab.button(key="delete-race-lesson").click().run())
    assert "Only the browser that made it" in notes(tab) and (folder / "races" / "lesson").is_dir()
    monkeypatch.setattr(visitors, "mark", lambda: "mine")
    settled(settled(tab.run()).button(key="delete-race-lesson").click().run())
    assert RaceStore(folder / "races").list() == []  # the upload that is still there is not read again
    settled(uploader().set_value(upload).run())
    assert race().value == "lesson" and (folder / "races" / "lesson").is_dir()


def test_loading_stops_when_its_job_is_cancelled():
    models = Models(lambda choice, tell: [tell("Reading", share) for share in (0.1, 0.2)])
    job = RaceJob(lambda pair: pytest.fail("there is no pair"), "Once", Settings())
    job._progress = Raced(JobState.LOADING)
    job._stop.set()
    job.run(models)
    assert (job.progress.state, models.status) == (JobState.CANCELLED, Status())
    reading = Status(doing="Reading org/name", share=0.5)
    assert "Reading org/name" in live_words.waiting(Raced(JobState.LOADING), reading, 0)
    assert "2 other jobs" in live_words.waiting(Raced(JobState.QUEUED), reading, 2)
