"""The decode worker: what an asker sees of a job, how it is stopped, and that failures stay where they belong."""

from __future__ import annotations

import gc
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from mars_viz.backend_choice import BackendChoice
from mars_viz.dialmap import DialMap
from mars_viz.dialmap import MapProgress as Mapped
from mars_viz.errors import BadInput
from mars_viz.run import Run, Settings
from mars_viz.runstore import RunStatus, RunStore, read
from mars_viz.ui import tab_jobs
from mars_viz.ui.jobs import decode_job
from mars_viz.ui.jobs.decode_job import Decoded, DecodeJob, Ways
from mars_viz.ui.jobs.job import FAULT, Job, JobState, LongJob, Progress
from mars_viz.ui.jobs.models import Models, Tell
from mars_viz.ui.jobs.worker import LEFT, OrphanReaper, Worker
from mars_viz.ui.links import View
from mars_viz.ui.live import live_words
from mars_viz.ui.session import Filling, Session
from tests.factories import toy_map, toy_run
from tests.recorders import ToyRecorder
from tests.waiting import PATIENCE, until


class Script(ToyRecorder):
    """A recorder that makes a round each time it is allowed to."""

    def __init__(self, prompt: str, *, steps: int = 10_000, fail: Exception | None = None) -> None:
        super().__init__(toy_run(temperature=1.0, max_new_tokens=60), prompt)
        self._fail = fail
        self._allowed = threading.Semaphore(steps)

    def allow(self, steps: int = 1) -> None:
        self._allowed.release(steps)

    def before(self) -> None:
        assert self._allowed.acquire(timeout=PATIENCE)
        if self._fail is not None and self.made == 1:
            raise self._fail


def finished(job: DecodeJob) -> Decoded:
    until(lambda: job.progress.state.finished)
    return job.progress


class Asked:
    """A worker and the ways that its jobs decode."""

    def __init__(self, ways: Ways, load: Callable[[], object] = object) -> None:
        self.worker, self._ways = Worker(Models(lambda choice, tell: load())), ways

    def submit(self, prompt: str) -> DecodeJob:
        job = DecodeJob(prompt, Settings(), self._ways)
        self.worker.submit(job)
        return job

    def ahead(self, job: DecodeJob) -> int:
        return self.worker.ahead(job)


def worker_of(*scripts: Script, load: Callable[[], object] = object) -> Asked:
    queue = list(scripts)
    return Asked(Ways(lambda pair, prompt, settings: queue.pop(0)), load)


def test_a_job_runs_to_its_end():
    script = Script("Hello")
    progress = finished(worker_of(script).submit("Hello"))
    assert progress.state is JobState.DONE
    assert progress.run is not None and progress.run.prompt == "Hello"
    assert (progress.tokens, progress.rounds) == (len(progress.run.token_ids), len(progress.run.rounds))
    assert progress.tau == progress.run.tau
    assert progress.text == progress.run.text


def test_progress_is_seen_while_it_runs():
    script = Script("Hello", steps=0)
    job = worker_of(script).submit("Hello")
    until(lambda: job.progress.state is JobState.DECODING)
    assert job.progress.rounds == 0
    script.allow(2)
    until(lambda: job.progress.rounds == 2)
    assert job.progress.tokens == len(script.run().token_ids) > 0
    assert job.progress.text
    script.allow(10_000)
    assert finished(job).state is JobState.DONE


def test_cancelling_stops_after_the_round_and_keeps_what_was_decoded():
    script = Script("Hello", steps=3)
    job = worker_of(script).submit("Hello")
    until(lambda: job.progress.rounds == 3)
    job.cancel()
    assert job.stopping and not job.progress.state.finished
    script.allow(1)
    progress = finished(job)
    assert progress.state is JobState.CANCELLED
    assert script.made == 4  # the round that was being made, and none after it
    assert progress.run is not None and len(progress.run.rounds) == 4


def test_cancelling_in_the_queue_is_immediate_and_nothing_is_decoded():
    first, second = Script("first", steps=0), Script("second")
    worker = worker_of(first, second)
    running, waiting = worker.submit("first"), worker.submit("second")
    until(lambda: running.progress.state is JobState.DECODING)
    assert worker.ahead(waiting) == 1
    waiting.cancel()
    assert waiting.progress == Decoded(JobState.CANCELLED)
    first.allow(10_000)
    finished(running)
    assert second.made == 0


def test_cancelling_while_the_models_load_decodes_nothing():
    loading, go_on = threading.Event(), threading.Event()

    def load() -> object:
        loading.set()
        assert go_on.wait(PATIENCE)
        return object()

    script = Script("Hello")
    job = worker_of(script, load=load).submit("Hello")
    assert loading.wait(PATIENCE)
    until(lambda: job.progress.state is JobState.LOADING)
    job.cancel()
    go_on.set()
    progress = finished(job)
    assert (progress.state, progress.run, script.made) == (JobState.CANCELLED, None, 0)


def test_jobs_run_one_after_the_other_in_order_with_one_load():
    loads: list[int] = []
    scripts = [Script(name, steps=0) for name in "abc"]
    worker = worker_of(*scripts, load=lambda: loads.append(1) or object())
    jobs = [worker.submit(name) for name in "abc"]
    until(lambda: jobs[0].progress.state is JobState.DECODING)
    assert [worker.ahead(job) for job in jobs] == [0, 1, 2]
    assert jobs[1].progress.state is JobState.QUEUED
    for script, job in zip(scripts, jobs, strict=True):
        script.allow(10_000)
        progress = finished(job)
        assert progress.run is not None and progress.run.prompt == job.prompt
    assert loads == [1]


def test_an_error_with_a_remedy_is_shown_as_it_is_and_the_next_job_runs():
    def load() -> object:
        if not failures:
            return object()
        raise failures.pop()

    failures = [BadInput("The models are not there; put them there.")]
    worker = worker_of(Script("second"), load=load)
    first = finished(worker.submit("first"))
    assert (first.state, first.error) == (JobState.FAILED, "The models are not there; put them there.")
    assert finished(worker.submit("second")).state is JobState.DONE


def test_a_fault_is_one_sentence_for_the_asker_and_a_traceback_in_the_log(caplog):
    worker = worker_of(Script("first", fail=ZeroDivisionError("secret detail")), Script("second"))
    with caplog.at_level(logging.ERROR):
        first = finished(worker.submit("first"))
    assert (first.state, first.error) == (JobState.FAILED, FAULT)
    assert first.run is not None and len(first.run.rounds) == 1  # what there was before it
    assert "secret detail" in caplog.text and "Traceback" in caplog.text
    assert finished(worker.submit("second")).state is JobState.DONE


def test_the_worker_forgets_a_job_once_it_has_ended():
    worker = worker_of(Script("first"))
    job = worker.submit("first")
    finished(job)
    gone = weakref.ref(job)
    del job

    def collected() -> bool:
        gc.collect()
        return gone() is None

    until(collected)


@pytest.mark.parametrize("state", list(JobState))
def test_a_snapshot_cannot_be_changed(state):
    with pytest.raises(AttributeError):
        Decoded(state).tokens = 3  # type: ignore[misc]


class Chart:
    """A mapper of a toy run that makes a pass each time it is allowed to."""

    def __init__(self, run: Run, *, steps: int = 10_000, fail: Exception | None = None) -> None:
        settings = replace(run.settings, dial=None)
        self._made, self._fail = toy_map(settings, gammas=(run.settings.gamma,))[0], fail
        self._made = replace(self._made, frame=replace(run.without_rounds, settings=self._made.frame.settings))
        self._allowed = threading.Semaphore(steps)
        self.passes = 0

    def allow(self, steps: int = 1) -> None:
        self._allowed.release(steps)

    def __iter__(self) -> Iterator[Mapped]:
        for self.passes in range(1, 4):
            assert self._allowed.acquire(timeout=PATIENCE)
            if self._fail is not None:
                raise self._fail
            yield Mapped(self.passes, self.passes, 1, self.passes / 3)

    def map(self) -> DialMap:
        return self._made


def test_the_run_is_there_before_its_map_which_fills_in_behind_it():
    charts: list[Chart] = []

    def chart(pair: object, run: Run) -> Chart:
        charts.append(Chart(run, steps=0))
        return charts[0]

    worker = Asked(Ways(lambda pair, prompt, settings: Script(prompt), chart))
    job = worker.submit("Hello")
    until(lambda: job.progress.state is JobState.MAPPING)
    assert job.progress.run is not None and job.progress.run.dial_map is None
    assert job.progress.state.readable and not job.progress.state.finished
    charts[0].allow(2)
    until(lambda: job.progress.exact == 2 / 3)
    charts[0].allow(2)
    progress = finished(job)
    assert progress.state is JobState.DONE
    assert progress.run is not None and progress.run.dial_map is not None
    dial = progress.run.settings.dial
    assert dial is not None and progress.run.dial_map.at(dial).token_ids == progress.run.token_ids


def test_a_map_that_cannot_be_stored_is_there_all_the_same(tmp_path, monkeypatch):
    def full(store: RunStore, name: str, run: Run) -> None:
        raise BadInput("The disk is full; make room.")

    monkeypatch.setattr(RunStore, "replace", full)
    ways = Ways(lambda pair, prompt, settings: Script(prompt), lambda pair, run: Chart(run), RunStore(tmp_path))
    job = Asked(ways).submit("Hello")
    progress = finished(job)
    assert progress.saved and progress.error == "The disk is full; make room."
    assert progress.run is not None and progress.run.dial_map is not None
    session = Session(view=View(run=progress.saved), filling=Filling(progress.saved, job))
    tab_jobs.fill_in(session)
    assert session.runs[progress.saved].dial_map is not None and session.notices == [progress.error]


def test_stopping_a_map_keeps_the_run_and_a_map_that_fails_says_why():
    charts: list[Chart] = []

    def chart(pair: object, run: Run) -> Chart:
        charts.append(Chart(run, steps=1 - len(charts), fail=BadInput("No room; close something.") if charts else None))
        return charts[-1]

    worker = Asked(Ways(lambda pair, prompt, settings: Script(prompt), chart))
    job = worker.submit("Hello")
    until(lambda: job.progress.exact > 0)
    job.cancel()
    charts[0].allow(1)
    progress = finished(job)
    assert (progress.state, charts[0].passes) == (JobState.DONE, 2)
    assert progress.run is not None
    second = worker.submit("Hello")
    until(lambda: len(charts) == 2)
    charts[1].allow(1)
    progress = finished(second)
    assert (progress.state, progress.error) == (JobState.DONE, "No room; close something.")
    assert progress.run is not None and progress.run.dial_map is None


def test_a_map_lets_every_text_go_first_and_maps_come_one_after_the_other(monkeypatch):
    monkeypatch.setattr(decode_job, "TURN", 0.0)
    charts: dict[str, Chart] = {}

    def chart(pair: object, run: Run) -> Chart:
        charts[run.prompt] = Chart(run, steps=0)
        return charts[run.prompt]

    worker = Asked(Ways(lambda pair, prompt, settings: Script(prompt), chart))
    first = worker.submit("first")
    until(lambda: "first" in charts)
    charts["first"].allow()
    until(lambda: first.progress.exact > 0)
    second = worker.submit("second")
    charts["first"].allow()  # the pass that is under way
    until(lambda: second.progress.run is not None)  # while the first map is not done
    assert first.progress.state is JobState.MAPPING and first.progress.exact < 1 and second.progress.exact == 0
    charts["first"].allow(9)
    assert finished(first).exact == 1
    until(lambda: "second" in charts)
    charts["second"].allow(9)
    assert finished(second).state is JobState.DONE


def test_a_map_stops_after_its_share_of_work_and_goes_on_when_asked(monkeypatch, tmp_path):
    monkeypatch.setattr(decode_job, "MAPPING_SECONDS", 0.0)
    monkeypatch.setattr(decode_job, "TURN", 0.0)
    store = RunStore(tmp_path)
    asked: list[Run] = []

    def chart(pair: object, run: Run) -> Chart:
        asked.append(run)
        return Chart(run)

    ways = Ways(lambda pair, prompt, settings: Script(prompt), chart, store)
    worker = Asked(ways)
    job = worker.submit("Hello")
    progress = finished(job)
    assert (progress.state, progress.error, progress.exact) == (JobState.DONE, "", 1 / 3)
    kept = read(tmp_path / progress.saved)
    assert kept.dial_map is not None
    monkeypatch.setattr(decode_job, "MAPPING_SECONDS", 60.0)
    more = DecodeJob.mapping(kept, progress.saved, ways)
    worker.worker.submit(more)
    assert finished(more).exact == 1
    assert asked[1] is kept and more.progress.saved == progress.saved


def test_a_decode_that_was_stopped_is_not_mapped():
    script = Script("Hello", steps=2)
    worker = Asked(Ways(lambda *asked: script, lambda pair, run: pytest.fail("there is nothing to map")))
    job = worker.submit("Hello")
    until(lambda: job.progress.rounds == 2)
    job.cancel()
    script.allow(1)
    assert finished(job).state is JobState.CANCELLED


class Count(Job[Progress]):
    """Another kind of job, which needs no models."""

    def __init__(self) -> None:
        super().__init__(Progress(JobState.QUEUED))
        self.done = 0

    def work(self, models: Models[object]) -> None:
        self.done += 1
        self.tell(state=JobState.DONE)


def test_other_kinds_of_jobs_take_their_turn_in_the_same_queue():
    script, count = Script("Hello", steps=0), Count()
    asked = worker_of(script)
    job = asked.submit("Hello")
    until(lambda: job.progress.state is JobState.DECODING)
    asked.worker.submit(count)
    assert (asked.worker.ahead(count), count.progress.state) == (1, JobState.QUEUED)
    script.allow(10_000)
    finished(job)
    until(lambda: count.progress.state is JobState.DONE)
    assert count.done == 1


def test_the_models_get_ready_where_a_job_is_expected_and_nobody_is_at_work():
    asked: list[str] = []

    def prepare(tell: Tell) -> None:
        asked.append(models.status.doing)
        tell("Starting", 0.5)
        asked.append(models.status.doing)
        if len(asked) > 2:
            raise ZeroDivisionError

    models = Models(lambda choice, tell: object(), prepare=prepare)
    worker, script = Worker(models), Script("Hello", steps=0)
    worker.expect()
    until(lambda: len(asked) == 2 and not models.status.doing)
    assert asked == ["", "Starting"]
    worker.expect()  # a fault ends nothing
    until(lambda: len(asked) == 4)
    job = DecodeJob("Hello", Settings(), Ways(lambda pair, prompt, settings: script))
    worker.submit(job)
    until(lambda: job.progress.state is JobState.DECODING)
    worker.expect()
    waiting = DecodeJob("Hello", Settings(), Ways(lambda pair, prompt, settings: script))
    worker.submit(waiting)
    script.allow(10_000)
    finished(waiting)
    assert len(asked) == 4  # who waits goes first, and has them ready


def test_a_pair_is_loaded_once_and_another_only_when_asked_for():
    loaded: list[BackendChoice] = []
    models = Models(lambda choice, tell: loaded.append(choice) or object())
    assert models.status.choice is None
    first = models.pair()
    assert models.pair() is first
    assert models.pair(BackendChoice("org/target", "org/drafter")) is not first
    assert models.status.choice == BackendChoice("org/target", "org/drafter")
    models.pair()
    models.drop()
    assert models.status.choice is None
    models.pair()
    assert loaded == [BackendChoice(), BackendChoice("org/target", "org/drafter"), BackendChoice(), BackendChoice()]


def test_a_run_goes_to_the_store_while_it_is_made_and_stays_there(tmp_path):
    store, script = RunStore(tmp_path), Script("Hello", steps=0)
    asked = Asked(Ways(lambda pair, prompt, settings: script, store=store))
    job = asked.submit("Hello")
    script.allow(1)
    until(lambda: job.progress.so_far is not None and bool(store.list()))
    assert store.list()[0].standing is RunStatus.GROWING
    script.allow(10_000)
    progress = finished(job)
    (entry,) = store.list()
    assert (entry.name, entry.standing) == (progress.saved, RunStatus.WHOLE)
    assert progress.run is not None and read(entry.path).token_ids == progress.run.token_ids


def test_a_decode_that_fails_leaves_its_rounds_as_an_interrupted_run(tmp_path):
    store = RunStore(tmp_path)
    script = Script("Hello", fail=BadInput("No room; close something."))
    job = Asked(Ways(lambda pair, prompt, settings: script, store=store)).submit("Hello")
    assert finished(job).state is JobState.FAILED
    (entry,) = store.list()
    assert entry.standing is RunStatus.INTERRUPTED
    assert len(read(entry.path).rounds) == 1


def test_a_failure_costs_nobody_what_had_been_decoded(monkeypatch):
    script = Script("Hello", steps=0)
    job = Asked(Ways(lambda pair, prompt, settings: script)).submit("Hello")
    script.allow(1)
    until(lambda: job.progress.so_far is not None)
    whole = script.run
    monkeypatch.setattr(script, "run", lambda: whole() if script.made < 3 else 1 / 0)
    script.allow(10_000)
    progress = finished(job)
    assert progress.state is JobState.FAILED and progress.error == FAULT
    assert progress.run is not None and len(progress.run.rounds) in (1, 2)
    session = Session(job=job)
    tab_jobs.settle(session)
    assert session.runs[session.view.run] is progress.run
    assert session.notices == [f"{FAULT} What was decoded before is shown below."]


def test_a_disk_that_refuses_ends_the_keeping_and_not_the_decode(tmp_path):
    (tmp_path / "runs").write_text("in the way")
    asked = Asked(Ways(lambda pair, prompt, settings: Script(prompt), store=RunStore(tmp_path / "runs")))
    progress = finished(asked.submit("Hello"))
    assert progress.state is JobState.DONE and progress.run is not None
    assert not progress.saved and "cannot be written" in progress.unsaved


class Tab:
    """An asker that may be there or not."""

    def __init__(self) -> None:
        self.there = True


def minded(tab: Tab, grace: float, *scripts: Script, store: RunStore | None = None) -> tuple[Worker, Ways]:
    queue = list(scripts)
    ways = Ways(lambda pair, prompt, settings: queue.pop(0), store=store)
    models = Models(lambda choice, tell: object())
    return Worker(models, asker=lambda: lambda: tab.there, attendance=OrphanReaper(grace)), ways


def test_a_decode_whose_asker_has_gone_is_stopped_after_the_grace_and_kept(tmp_path):
    tab, script, store = Tab(), Script("Hello", steps=0), RunStore(tmp_path)
    worker, ways = minded(tab, 0.3, script, store=store)
    job, waiting = (DecodeJob("Hello", Settings(), ways) for _ in range(2))
    worker.submit(job)
    worker.submit(waiting)
    script.allow(2)
    until(lambda: job.progress.rounds == 2)
    time.sleep(0.6)  # twice the grace, with the asker there
    assert not job.stopping
    tab.there = False
    until(lambda: job.stopping)
    script.allow(1)
    progress = finished(job)
    assert (progress.state, progress.abandoned) == (JobState.CANCELLED, True)
    assert progress.run is not None and len(read(store.find(progress.saved).path).rounds) == 3
    until(lambda: waiting.progress.state.finished)
    assert waiting.progress.state is JobState.CANCELLED and not waiting.progress.rounds
    assert tab_jobs.how_it_ended(progress).startswith(LEFT) and live_words.decoding(progress, 9, True).startswith(LEFT)


def test_an_asker_who_comes_back_within_the_grace_finds_the_decode_going_on():
    tab, script = Tab(), Script("Hello", steps=0)
    worker, ways = minded(tab, 30.0, script)
    job = DecodeJob("Hello", Settings(), ways)
    worker.submit(job)
    tab.there = False
    worker._attendance.look()
    assert not job.stopping
    tab.there = True
    script.allow(10_000)
    progress = finished(job)
    assert (progress.state, progress.abandoned) == (JobState.DONE, False)


def test_what_is_for_everyone_goes_on_without_its_asker():
    class Steps(LongJob[Progress]):
        def steps(self, models: Models[object]) -> Iterator[None]:
            for _ in range(20):
                time.sleep(0.02)
                yield

    tab = Tab()
    tab.there = False
    worker, _ = minded(tab, 0.05)
    job = Steps(Progress(JobState.QUEUED))
    worker.submit(job)
    until(lambda: job.progress.state.finished)
    assert job.progress.state is JobState.DONE


def test_attendance_survives_an_asker_that_cannot_be_asked(caplog):
    def broken() -> bool:
        raise RuntimeError("no server")

    tab, script = Tab(), Script("Hello", steps=0)
    worker, ways = minded(tab, 0.1, script)
    job, other = DecodeJob("Hello", Settings(), ways), DecodeJob("Hello", Settings(), ways)
    worker._attendance.add(other, broken)
    until(lambda: "could not be seen" in caplog.text)
    worker.submit(job)
    tab.there = False
    until(lambda: job.stopping)
    script.allow(10_000)
    assert finished(job).abandoned and not other.stopping
