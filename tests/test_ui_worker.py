"""The decode worker: progress of jobs, cancellation, errors, and jobs whose browser session has ended."""

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


class Gate:
    """Lets a job take so many steps."""

    def __init__(self, steps: int) -> None:
        self._allowed = threading.Semaphore(steps)

    def allow(self, steps: int = 10_000) -> None:
        self._allowed.release(steps)

    def enter(self) -> None:
        assert self._allowed.acquire(timeout=PATIENCE)


class Script(ToyRecorder):
    """A recorder that makes a round each time it is allowed to, and may fail after the first."""

    def __init__(self, prompt: str = "Hello", *, steps: int = 10_000, fail: Exception | None = None) -> None:
        super().__init__(toy_run(temperature=1.0, max_new_tokens=60), prompt)
        self._fail, self._gate = fail, Gate(steps)
        self.allow = self._gate.allow

    def before(self) -> None:
        self._gate.enter()
        if self._fail is not None and self.made == 1:
            raise self._fail


class Chart:
    """A mapper of a toy run that makes a pass each time it is allowed to."""

    def __init__(self, run: Run, *, steps: int = 10_000, fail: Exception | None = None) -> None:
        settings = replace(run.settings, dial=None)
        self._made, self._fail = toy_map(settings, gammas=(run.settings.gamma,))[0], fail
        self._made = replace(self._made, frame=replace(run.without_rounds, settings=self._made.frame.settings))
        self._gate, self.passes = Gate(steps), 0
        self.allow = self._gate.allow

    def __iter__(self) -> Iterator[Mapped]:
        for self.passes in range(1, 4):
            self._gate.enter()
            if self._fail is not None:
                raise self._fail
            yield Mapped(self.passes, self.passes, 1, self.passes / 3)

    def map(self) -> DialMap:
        return self._made


def finished(job: DecodeJob) -> Decoded:
    until(lambda: job.progress.state.finished)
    return job.progress


class Asked:
    """A worker whose jobs decode in the same ways."""

    def __init__(self, ways: Ways, load: Callable[[], object] = object) -> None:
        self.worker, self._ways = Worker(Models(lambda choice, tell: load())), ways

    def submit(self, prompt: str = "Hello") -> DecodeJob:
        job = DecodeJob(prompt, Settings(), self._ways)
        self.worker.submit(job)
        return job


def worker_of(*scripts: Script, load: Callable[[], object] = object, store: RunStore | None = None) -> Asked:
    queue = list(scripts)
    return Asked(Ways(lambda pair, prompt, settings: queue.pop(0), store=store), load)


def charting(**steps: int) -> tuple[Asked, dict[str, Chart]]:
    """A worker that maps each run, and the mappers by prompt; `steps` are allowed at once."""
    charts: dict[str, Chart] = {}

    def chart(pair: object, run: Run) -> Chart:
        charts[run.prompt] = Chart(run, steps=steps.get(run.prompt, 0))
        return charts[run.prompt]

    return Asked(Ways(lambda pair, prompt, settings: Script(prompt), chart)), charts


def test_progress_is_seen_while_a_job_runs_to_its_end():
    script = Script(steps=0)
    job = worker_of(script).submit()
    until(lambda: job.progress.state is JobState.DECODING)
    assert job.progress.rounds == 0
    script.allow(2)
    until(lambda: job.progress.rounds == 2)
    assert job.progress.tokens == len(script.run().token_ids) > 0 and job.progress.text
    script.allow()
    progress = finished(job)
    assert progress.state is JobState.DONE and progress.run is not None and progress.run.prompt == "Hello"
    assert (progress.tokens, progress.rounds) == (len(progress.run.token_ids), len(progress.run.rounds))
    assert (progress.tau, progress.text) == (progress.run.tau, progress.run.text)
    with pytest.raises(AttributeError):
        progress.tokens = 3  # type: ignore[misc]


def test_cancelling_stops_after_the_round_keeps_it_and_maps_nothing():
    script = Script(steps=3)
    ways = Ways(lambda *asked: script, lambda pair, run: pytest.fail("there is nothing to map"))
    job = Asked(ways).submit()
    until(lambda: job.progress.rounds == 3)
    job.cancel()
    assert job.stopping and not job.progress.state.finished
    script.allow(1)
    progress = finished(job)
    assert progress.state is JobState.CANCELLED and script.made == 4
    assert progress.run is not None and len(progress.run.rounds) == 4


def test_jobs_of_all_kinds_run_in_order_with_one_load_and_are_cancelled_at_once_in_the_queue():
    class Count(Job[Progress]):
        done = 0

        def work(self, models: Models[object]) -> None:
            self.done += 1
            self.tell(state=JobState.DONE)

    loads: list[int] = []
    scripts = [Script(name, steps=0) for name in "ab"]
    asked = worker_of(*scripts, load=lambda: loads.append(1) or object())
    jobs = [asked.submit(name) for name in "ab"]
    count, waiting = Count(Progress(JobState.QUEUED)), asked.submit("never")
    asked.worker.submit(count)
    until(lambda: jobs[0].progress.state is JobState.DECODING)
    assert [asked.worker.ahead(job) for job in (*jobs, waiting, count)] == [0, 1, 2, 3]
    assert jobs[1].progress.state is count.progress.state is JobState.QUEUED
    waiting.cancel()
    assert waiting.progress == Decoded(JobState.CANCELLED)
    for script, job in zip(scripts, jobs, strict=True):
        script.allow()
        progress = finished(job)
        assert progress.run is not None and progress.run.prompt == job.prompt
    until(lambda: count.progress.state is JobState.DONE)
    assert count.done == 1 and loads == [1]


def test_cancelling_while_the_models_load_decodes_nothing():
    loading, go_on = threading.Event(), threading.Event()

    def load() -> object:
        loading.set()
        assert go_on.wait(PATIENCE)
        return object()

    script = Script()
    job = worker_of(script, load=load).submit()
    assert loading.wait(PATIENCE)
    until(lambda: job.progress.state is JobState.LOADING)
    job.cancel()
    go_on.set()
    progress = finished(job)
    assert (progress.state, progress.run, script.made) == (JobState.CANCELLED, None, 0)


def test_errors_stay_with_their_job_and_faults_are_logged(caplog):
    failures = [BadInput("put them there")]

    def load() -> object:
        if failures:
            raise failures.pop()
        return object()

    asked = worker_of(Script(fail=ZeroDivisionError("secret detail")), Script(), load=load)
    first = finished(asked.submit())
    assert (first.state, first.error) == (JobState.FAILED, "put them there")
    with caplog.at_level(logging.ERROR):
        second = finished(asked.submit())
    assert (second.state, second.error) == (JobState.FAILED, FAULT)
    assert second.run is not None and len(second.run.rounds) == 1  # decoded before the fault
    assert "secret detail" in caplog.text and "Traceback" in caplog.text
    job = asked.submit()
    assert finished(job).state is JobState.DONE
    gone = weakref.ref(job)
    del job
    until(lambda: gc.collect() >= 0 and gone() is None)  # the worker forgets its jobs


def test_a_run_is_readable_before_its_map_is_complete():
    asked, charts = charting()
    job = asked.submit()
    until(lambda: job.progress.state is JobState.MAPPING and charts)
    assert job.progress.run is not None and job.progress.run.dial_map is None
    assert job.progress.state.readable and not job.progress.state.finished
    charts["Hello"].allow(2)
    until(lambda: job.progress.exact == 2 / 3)
    charts["Hello"].allow(2)
    run = finished(job).run
    assert job.progress.state is JobState.DONE and run is not None and run.dial_map is not None
    assert run.settings.dial is not None and run.dial_map.at(run.settings.dial).token_ids == run.token_ids


def test_a_map_that_cannot_be_stored_is_shown(tmp_path, monkeypatch):
    def full(store: RunStore, name: str, run: Run) -> None:
        raise BadInput("The disk is full; make room.")

    monkeypatch.setattr(RunStore, "replace", full)
    ways = Ways(lambda pair, prompt, settings: Script(prompt), lambda pair, run: Chart(run), RunStore(tmp_path))
    job = Asked(ways).submit()
    progress = finished(job)
    assert progress.saved and progress.error == "The disk is full; make room."
    session = Session(view=View(run=progress.saved), filling=Filling(progress.saved, job))
    tab_jobs.fill_in(session)
    assert session.runs[progress.saved].dial_map is not None and session.notices == [progress.error]


def test_a_map_that_is_stopped_or_fails_leaves_the_run():
    asked, charts = charting(Hello=1)
    job = asked.submit()
    until(lambda: job.progress.exact > 0)
    job.cancel()
    charts["Hello"].allow(1)
    progress = finished(job)
    assert (progress.state, charts["Hello"].passes) == (JobState.DONE, 2) and progress.run is not None
    failing = Ways(
        lambda pair, prompt, settings: Script(prompt), lambda pair, run: Chart(run, fail=BadInput("No room"))
    )
    progress = finished(Asked(failing).submit())
    assert (progress.state, progress.error) == (JobState.DONE, "No room")
    assert progress.run is not None and progress.run.dial_map is None


def test_texts_are_decoded_before_maps_go_on(monkeypatch):
    monkeypatch.setattr(decode_job, "TURN", 0.0)
    asked, charts = charting()
    first = asked.submit("first")
    until(lambda: "first" in charts)
    charts["first"].allow(1)
    until(lambda: first.progress.exact > 0)
    second = asked.submit("second")
    charts["first"].allow(1)  # the current pass
    until(lambda: second.progress.run is not None)
    assert first.progress.state is JobState.MAPPING and first.progress.exact < 1 and second.progress.exact == 0
    charts["first"].allow()
    assert finished(first).exact == 1
    until(lambda: "second" in charts)
    charts["second"].allow()
    assert finished(second).state is JobState.DONE


def test_a_map_stops_after_its_time_and_is_continued_on_request(monkeypatch, tmp_path):
    monkeypatch.setattr(decode_job, "MAPPING_SECONDS", 0.0)
    monkeypatch.setattr(decode_job, "TURN", 0.0)
    mapped: list[Run] = []
    chart = lambda pair, run: mapped.append(run) or Chart(run)  # noqa: E731
    ways = Ways(lambda pair, prompt, settings: Script(prompt), chart, RunStore(tmp_path))
    asked = Asked(ways)
    progress = finished(asked.submit())
    assert (progress.state, progress.error, progress.exact) == (JobState.DONE, "", 1 / 3)
    kept = read(tmp_path / progress.saved)
    assert kept.dial_map is not None
    monkeypatch.setattr(decode_job, "MAPPING_SECONDS", 60.0)
    more = DecodeJob.mapping(kept, progress.saved, ways)
    asked.worker.submit(more)
    assert finished(more).exact == 1 and mapped[1] is kept and more.progress.saved == progress.saved


def test_models_are_prepared_only_while_no_job_waits():
    seen: list[str] = []

    def prepare(tell: Tell) -> None:
        seen.append(models.status.doing)
        tell("Starting", 0.5)
        seen.append(models.status.doing)
        if len(seen) > 2:
            raise ZeroDivisionError

    models = Models(lambda choice, tell: object(), prepare=prepare)
    worker, script = Worker(models), Script(steps=0)
    worker.expect()
    until(lambda: len(seen) == 2 and not models.status.doing)
    assert seen == ["", "Starting"]
    worker.expect()  # fails, which is no error of a job
    until(lambda: len(seen) == 4)
    job, waiting = (DecodeJob("Hello", Settings(), Ways(lambda *_: script)) for _ in range(2))
    worker.submit(job)
    until(lambda: job.progress.state is JobState.DECODING)
    worker.expect()
    worker.submit(waiting)
    script.allow()
    finished(waiting)
    assert len(seen) == 4


def test_a_pair_is_loaded_once_until_another_is_requested():
    loaded: list[BackendChoice] = []
    models = Models(lambda choice, tell: loaded.append(choice) or object())
    assert models.status.choice is None
    first, other = models.pair(), BackendChoice("org/target", "org/drafter")
    assert models.pair() is first and models.pair(other) is not first and models.status.choice == other
    models.pair()
    models.drop()
    assert models.status.choice is None
    models.pair()
    assert loaded == [BackendChoice(), other, BackendChoice(), BackendChoice()]


def test_a_run_is_stored_while_it_grows(tmp_path):
    store, script = RunStore(tmp_path), Script(steps=1)
    job = worker_of(script, store=store).submit()
    until(lambda: job.progress.so_far is not None and bool(store.list()))
    assert store.list()[0].standing is RunStatus.GROWING
    script.allow()
    progress = finished(job)
    (entry,) = store.list()
    assert (entry.name, entry.standing) == (progress.saved, RunStatus.WHOLE)
    assert progress.run is not None and read(entry.path).token_ids == progress.run.token_ids


def test_a_decode_that_fails_is_stored_as_interrupted(tmp_path):
    store = RunStore(tmp_path)
    job = worker_of(Script(fail=BadInput("No room")), store=store).submit()
    assert finished(job).state is JobState.FAILED
    (entry,) = store.list()
    assert entry.standing is RunStatus.INTERRUPTED and len(read(entry.path).rounds) == 1


def test_a_fault_leaves_the_tokens_decoded_before_it(monkeypatch):
    script = Script(steps=1)
    job = worker_of(script).submit()
    until(lambda: job.progress.so_far is not None)
    whole = script.run
    monkeypatch.setattr(script, "run", lambda: whole() if script.made < 3 else 1 / 0)
    script.allow()
    progress = finished(job)
    assert progress.state is JobState.FAILED and progress.error == FAULT
    assert progress.run is not None and len(progress.run.rounds) in (1, 2)
    session = Session(job=job)
    tab_jobs.settle(session)
    assert session.runs[session.view.run] is progress.run and session.notices[0].startswith(FAULT)


def test_a_disk_error_does_not_stop_the_decode(tmp_path):
    (tmp_path / "runs").write_text("in the way")
    progress = finished(worker_of(Script(), store=RunStore(tmp_path / "runs")).submit())
    assert progress.state is JobState.DONE and progress.run is not None
    assert not progress.saved and "cannot be written" in progress.unsaved


class Tab:
    """A browser session that may have ended."""

    there = True


def minded(tab: Tab, grace: float, script: Script, store: RunStore | None = None) -> tuple[Worker, list[DecodeJob]]:
    """A worker for jobs of this session, and two of its jobs."""
    models = Models(lambda choice, tell: object())
    worker = Worker(models, asker=lambda: lambda: tab.there, attendance=OrphanReaper(grace))
    ways = Ways(lambda pair, prompt, settings: script, store=store)
    return worker, [DecodeJob("Hello", Settings(), ways) for _ in range(2)]


def test_jobs_whose_session_has_ended_are_cancelled_after_the_grace_and_kept(tmp_path):
    tab, script, store = Tab(), Script(steps=2), RunStore(tmp_path)
    worker, (job, waiting) = minded(tab, 0.1, script, store)
    worker.submit(job)
    worker.submit(waiting)
    until(lambda: job.progress.rounds == 2)
    time.sleep(0.2)  # twice the grace
    assert not job.stopping
    tab.there = False
    until(lambda: job.stopping)
    script.allow(1)
    progress = finished(job)
    assert (progress.state, progress.abandoned) == (JobState.CANCELLED, True)
    assert progress.run is not None and len(read(store.find(progress.saved).path).rounds) == 3
    assert finished(waiting).state is JobState.CANCELLED and not waiting.progress.rounds
    assert tab_jobs.how_it_ended(progress).startswith(LEFT) and live_words.decoding(progress, 9, True).startswith(LEFT)


def test_a_session_that_returns_within_the_grace_keeps_its_decode():
    tab, script = Tab(), Script(steps=0)
    worker, (job, _) = minded(tab, 30.0, script)
    worker.submit(job)
    tab.there = False
    worker._attendance.look()
    assert not job.stopping
    tab.there = True
    script.allow()
    progress = finished(job)
    assert (progress.state, progress.abandoned) == (JobState.DONE, False)


def test_long_jobs_go_on_without_their_session():
    class Steps(LongJob[Progress]):
        def steps(self, models: Models[object]) -> Iterator[None]:
            for _ in range(10):
                time.sleep(0.02)
                yield

    tab = Tab()
    tab.there = False
    worker, _ = minded(tab, 0.05, Script())
    job = Steps(Progress(JobState.QUEUED))
    worker.submit(job)
    until(lambda: job.progress.state.finished)
    assert job.progress.state is JobState.DONE


def test_an_error_in_looking_for_a_session_is_logged_and_the_others_are_seen(caplog):
    def broken() -> bool:
        raise RuntimeError("no server")

    tab, script = Tab(), Script(steps=0)
    worker, (job, other) = minded(tab, 0.1, script)
    worker._attendance.add(other, broken)
    until(lambda: "could not be seen" in caplog.text)
    worker.submit(job)
    tab.there = False
    until(lambda: job.stopping)
    script.allow()
    assert finished(job).abandoned and not other.stopping
    other.tell(state=JobState.DONE)  # ends the attendance's log
