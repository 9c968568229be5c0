"""The Live page in AppTest, without models: decodes, races, and loading of models."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from mars_viz.backend_choice import BackendChoice
from mars_viz.errors import BadInput, TooLarge
from mars_viz.race import RECORDED, Race, RaceLane, RaceStep, RaceStore, RaceTexts, save_race
from mars_viz.run import Settings
from mars_viz.runstore import RunStatus, RunStore
from mars_viz.ui import live, models_form, tab_jobs, visitors
from mars_viz.ui.jobs import models as job_models
from mars_viz.ui.jobs import tasks
from mars_viz.ui.jobs.models import Device, Events, Job, JobState, Models, Progress, Rank, Status
from mars_viz.ui.jobs.tasks import Decoded, Raced, Ways, race_job
from mars_viz.ui.jobs.worker import Worker
from tests.factories import until
from tests.sweep_cases import COSTS
from tests.tabs import APP, PATIENCE, captions, labels, notes, press, said, sent, settled, wait
from tests.test_pages import Script
from tests.test_race import toy_race

LIVE = "mars_viz_LivePageState"  # key of the page's state


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
    models = Models(
        lambda choice, tell: object(),
        lambda pair: Device("A toy device", "float32", 5_000_000, notes=("<img> without graphs",)),
    )
    worker = Worker(models)
    monkeypatch.setattr(tab_jobs, "shared_worker", lambda: worker)
    ways = Ways(lambda pair, prompt, settings: Script(prompt, settings), store=RunStore(tmp_path))
    monkeypatch.setattr(tab_jobs, "saved_ways", lambda request, name, **_: replace(ways, name=name))
    monkeypatch.setattr("mars_viz.ui.live.Racing", lambda *asked, **how: ToyRacer())
    for held in (Script, ToyRacer):
        monkeypatch.setattr(held, "held", threading.Event())
    yield tmp_path
    Script.held.set()
    ToyRacer.held.set()


def opened(**parameters: str) -> AppTest:
    tab = AppTest.from_file(APP, default_timeout=PATIENCE)
    tab.query_params = dict(parameters)
    tab.session_state[models_form.OPEN] = True
    return settled(tab.switch_page("pages/live.py").run())


def held_decode(tab: AppTest, prompt: str = "hold it") -> Job[Decoded]:
    """A decode that was asked for in this tab, once it is held after its second round."""
    tab.text_area(key="prompt").set_value(prompt)
    press(tab, "Decode now")
    job: Job[Decoded] = tab.session_state[LIVE].job
    until(lambda: job.progress.rounds == 2)
    return job


def held_race(tab: AppTest) -> Job[Raced]:
    press(tab, "Race now")
    job: Job[Raced] = tab.session_state[LIVE].race
    until(lambda: job.progress.step is not None)
    return job


def show(tab: AppTest, view: live.Show) -> AppTest:
    tab.session_state["live-view"] = view
    return settled(tab.run())


def test_decodes_stream_are_cancelled_stored_and_open_in_explore(folder):
    tab = opened()
    job = held_decode(tab, "hold <b>this</b>")
    assert "Cancel" in labels(settled(tab.run()))
    press(tab, "Decode now")
    assert "One thing at a time" in notes(tab) and tab.session_state[LIVE].job is job
    assert "<b>this" not in notes(tab)
    Script.held.set()
    wait(tab)
    assert "Rolled back" in notes(tab) and "A toy device" in notes(tab)
    assert "&lt;img&gt; without graphs" in notes(tab) and "<img" not in notes(tab)
    (entry,) = RunStore(folder).list()
    assert (entry.standing, entry.heading) == (RunStatus.WHOLE, "hold <b>this</b>")
    Script.held.clear()
    job = held_decode(tab)
    press(settled(tab.run()), "Cancel")
    Script.held.set()
    wait(tab)
    assert (job.progress.state, job.progress.rounds) == (JobState.CANCELLED, 3) and "Decode now" in labels(tab)
    cut = next(each for each in RunStore(folder).list() if each.name != entry.name)
    assert cut.facts.tokens == job.progress.tokens
    assert press(tab, "Explore").selectbox(key="run").value == cut.name
    settled(tab.switch_page("pages/live.py").run())
    press(tab, "Unload")
    until(lambda: tab_jobs.shared_worker().models.status.choice is None)


def test_the_page_plays_the_recorded_race_without_loading_models(folder):
    plays = lambda: bool(next(data[0]["play"] for data in sent(tab) if "play" in data[0]))  # noqa: E731
    save_race(toy_race(), folder / "races" / "mine")
    tab = opened()
    assert tab.selectbox(key="race").value == "1-story" and plays() and "A recorded example" in captions(tab)
    assert tab_jobs.shared_worker().models.status == Status()
    settled(tab.selectbox(key="race").set_value("mine").run())
    assert not plays() and "A recorded example" not in captions(tab)
    (save_race(toy_race(), folder / "races" / "zz") / "relaxed" / "rows.parquet").unlink()
    assert "rows.parquet" in notes(opened(view="race", race="zz"))


class Toy(str):
    """A pair, which can be watched."""


class Room:
    """A device with so many bytes, and the names of what lies on it."""

    def __init__(self, size: int, **sizes: int) -> None:
        self.size, self.sizes, self.loads = size, sizes, 0
        self.on_it: weakref.WeakSet[Toy] = weakref.WeakSet()
        self.models = Models(self.load, lambda pair: Device("toy", "", weights=sizes[pair]))

    @property
    def names(self) -> list[str]:
        return sorted(self.on_it)

    def load(self, choice: BackendChoice, tell: Any) -> Toy:
        need, free = self.sizes[choice.target], self.size - sum(self.sizes[name] for name in self.names)
        if need > free:
            raise TooLarge(f"It needs {need}, and {free} are free.", need, free)
        self.loads += 1
        self.on_it.add(made := Toy(choice.target))
        return made


def sweeps(steps: int = 3, fail: bool = False) -> Job[Progress]:
    def work(pair: Any) -> Events:
        for _ in range(steps):
            yield {}
            assert pair == "swept"
        if fail:
            raise BadInput("It went wrong.")
        return None

    return Job(Progress(), work, SWEPT, Rank.LONG)


SWEPT, OTHER, THIRD = (BackendChoice(name, "x") for name in ("swept", "other", "third"))


@pytest.mark.parametrize("how", ["done", "cancelled", "failed"])
def test_a_pair_that_a_sweep_holds_is_never_loaded_twice_and_goes_with_it(how, monkeypatch):
    monkeypatch.setattr(job_models, "TURN", 0.0)
    room = Room(10, swept=5, other=4)
    models, sweep = room.models, sweeps(fail=how == "failed")
    models.serve(sweep)
    models.pair(OTHER)
    assert room.names == ["other", "swept"]  # both fit
    models.serve(sweep)
    models.pair(SWEPT)  # a decode with the sweep's pair between two of its steps
    assert (room.names, room.loads, models.status.choice) == (["swept"], 2, SWEPT)
    models.pair(OTHER)
    if how == "cancelled":
        sweep.cancel()
    while not sweep.progress.state.finished:
        models.serve(sweep)
    assert sweep.progress.state.value == how
    assert (room.names, models.status.choice) == (["other"], OTHER)


def test_what_does_not_fit_beside_a_sweep_says_so_and_leaves_every_pair_usable(monkeypatch):
    monkeypatch.setattr(job_models, "TURN", 0.0)
    room = Room(10, swept=6, other=5, third=4, fourth=3)
    models, sweep = room.models, sweeps(steps=9)
    models.serve(sweep)
    for _ in range(2):
        with pytest.raises(TooLarge, match="It needs 5, and 4 are free. A sweep that is under way holds swept"):
            models.pair(OTHER)
        models.serve(sweep)
        assert (room.names, models.status.choice, models.pair(SWEPT)) == (["swept"], SWEPT, "swept")
    models.pair(THIRD)
    with pytest.raises(TooLarge, match="sweep"):
        models.pair(OTHER)
    assert room.names == ["swept", "third"]
    with pytest.raises(KeyError):
        models.pair(BackendChoice("broken", "x"))
    assert models.status.choice == THIRD
    models.pair(BackendChoice("fourth", "x"))  # fits in the place of the third, which nobody needs
    assert room.names == ["fourth", "swept"] and room.loads == 3
    sweep.cancel()
    models.serve(sweep)
    assert models.pair(OTHER) == "other"


def test_a_decode_that_fails_shows_its_error_and_loading_stops_when_it_is_cancelled(folder):
    tab = opened()
    tab.text_area(key="prompt").set_value("fail")
    wait(press(tab, "Decode now"))
    assert "shorten it" in notes(tab) and "failed before the first token" in said(tab) and "Done" not in said(tab)
    assert "Rolled back" not in notes(tab) and RunStore(folder).list() == []
    models = Models(lambda choice, tell: [tell("Reading", share) for share in (0.1, 0.2)])
    step = Raced(JobState.DECODING, step=RaceStep(RaceLane.STRICT, 4, 2))
    share, sentence = live.race_words(step)
    assert sentence == "Race, turn 2 of 5 by the clock: strict, 4 tokens" and share == pytest.approx(7 / 18)
    job = race_job(lambda pair: pytest.fail("there is no pair"), "Once", Settings())
    job.begin()
    job.cancel()
    models.serve(job)
    assert (job.progress.state, models.status) == (JobState.CANCELLED, Status())


def test_a_waiting_job_has_a_sentence(monkeypatch):
    job, status = race_job(lambda pair: None, "Once", Settings()), Status(doing="Reading", share=0.5)
    worker = SimpleNamespace(ahead=lambda job: 2, models=SimpleNamespace(status=status))
    monkeypatch.setattr(tab_jobs, "shared_worker", lambda: worker)
    assert tab_jobs.going(job, 0, "Doing") == (0, "Waiting for 2 other jobs on this server …")
    job.begin()
    assert tab_jobs.going(job, 0, "Doing") == (0.5, "Reading …")
    job.tell(state=JobState.DECODING)
    assert tab_jobs.going(job, 0, "Doing") == (0, "Doing")
    job.cancel()
    assert tab_jobs.going(job, 0, "Doing") == (0, "Stopping after this step …")


def test_a_cancelled_race_is_not_saved_and_the_shown_one_stays(folder):
    save_race(toy_race(), folder / "races" / "one")
    tab = opened(view="race", race="one")
    held_race(tab)
    press(settled(tab.run()), "Cancel")
    ToyRacer.held.set()
    wait(tab)
    assert "an unfinished race is not saved" in notes(tab) and "no race of that name" not in notes(tab)
    assert tab.selectbox(key="race").value == "one" and len(list((folder / "races").iterdir())) == 1


def test_a_race_is_renamed_deleted_and_restored(folder, monkeypatch):
    monkeypatch.setattr(visitors, "mark", lambda: "mine")
    stored = RaceStore(folder / "races").folder / "lesson"
    RaceStore(folder / "races").save(toy_race(title="<img src=x>"), "lesson", "mine")
    tab, race = opened(view="race", race="lesson"), lambda: tab.selectbox(key="race")

    for title, shown in (("\u202eevil", "control character"), ("My race", "")):
        tab.text_input(key="title-race-lesson").set_value(title)
        press(tab, "rename-race-lesson")
        assert shown in notes(tab)
    assert race().value == "lesson" and race().options[0].startswith("My race")
    press(tab, "delete-race-lesson")
    assert race().value == "1-story" and "Deleted: My race" in notes(tab) and not stored.exists()
    press(tab, "undo-race-lesson")
    assert race().options[0].startswith("My race") and "Deleted" not in notes(tab)
    settled(race().set_value("lesson").run())
    monkeypatch.setattr(visitors, "mark", lambda: "other")
    settled(tab.run())
    tab.button(key="delete-race-lesson").proto.disabled = False
    press(tab, "delete-race-lesson")
    assert "Only the browser that made it" in notes(tab) and stored.is_dir()


def test_costs_are_measured_and_shown(folder, monkeypatch):
    monkeypatch.setattr(tasks, "measure", lambda settings, pair: iter([(0.5, None), (1.0, COSTS)]))
    tab = press(opened(drafter="ngram:n=3", controller="svip"), "Measure costs")
    assert "drafts without probabilities" in notes(tab) and tab_jobs.shared_worker().models.status == Status()
    tab = wait(press(opened(), "Measure costs"), "Stop")
    assert "Verifying one more position costs 0.10" in notes(tab) and "Break-even" in notes(tab)
    assert tab_jobs.shared_worker().models.status.costs == COSTS and "Measure again" in labels(tab)
