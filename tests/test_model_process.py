"""Jobs in the model process: progress, cancellation, errors, and the end of the process."""

from __future__ import annotations

import gc
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from mars_viz.backend_choice import BackendChoice
from mars_viz.errors import BadInput
from mars_viz.exploration import MapProgress as Mapped
from mars_viz.run import Run, Settings
from mars_viz.runstore import RunStatus, RunStore, read
from mars_viz.ui import live, tab_jobs
from mars_viz.ui.jobs import models, tasks
from mars_viz.ui.jobs.models import FAULT, LEFT, Job, JobState, Models, Progress, Status, nothing
from mars_viz.ui.jobs.tasks import Decoded, Ways, decode_job, map_job, walk_job
from mars_viz.ui.jobs.worker import EXPENDABLE, GIVEN_UP, MODEST, ModelProcess, Worker, pickled
from mars_viz.ui.links import View
from mars_viz.ui.session import Session
from tests.engine_toys import Seen, blind, held, look, steps, toys, wait
from tests.factories import PATIENCE, ToyRecorder, toy_map, toy_run, until
from tests.tabs import ROOT


@pytest.fixture(scope="module")
def engine() -> Iterator[ModelProcess]:
    made = ModelProcess(toys)
    yield made
    made.rest()


def done(engine: ModelProcess, job: Job[Seen]) -> Seen:
    """What became of a job that takes one step."""
    engine.serve(job)
    assert job.progress.state.finished
    return job.progress


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_job_runs_in_another_process_with_its_progress_and_status_here(engine):
    seen = done(engine, look("bear"))
    assert (seen.state, seen.what) == (JobState.DONE, "toy bear")
    assert seen.pid != os.getpid() and "streamlit" not in seen.libraries and "torch" not in seen.libraries
    assert (seen.nice, seen.expendable) == (min(19, os.nice(0) + MODEST), EXPENDABLE)  # pages and runs come first
    assert done(engine, look("hare")).pid == seen.pid  # one process for all
    assert engine.status.choice == BackendChoice("hare") and engine.status.device.used == len("toy hare")
    refused = done(engine, look("missing"))
    assert (refused.state, refused.error) == (JobState.FAILED, "There is no such toy; take another.")
    assert engine.status.choice == BackendChoice("hare") and engine.status.doing == ""
    done(engine, Job(Progress(), tasks.unload, None))
    assert engine.status.choice is None and engine.status.device is None


def test_jobs_are_cancelled_before_and_while_they_run(engine):
    worker, job, waits = Worker(engine), wait(), wait()
    worker.submit(job)
    worker.submit(waits)
    until(lambda: job.progress.steps > 3)
    waits.cancel()
    assert waits.progress.state is JobState.CANCELLED
    job.cancel()
    until(lambda: job.progress.state is JobState.CANCELLED)
    late = wait()
    late.stopping = True  # cancelled between its turn and its way there
    assert done(engine, late).state is JobState.CANCELLED and waits.progress.steps == 0


def test_short_jobs_run_between_the_steps_of_long_ones(engine):
    worker, long, short = Worker(engine), steps(), look("hare")
    worker.submit(long)
    until(lambda: long.progress.steps)
    worker.submit(short)
    until(lambda: short.progress.state.finished)
    assert short.progress.state is JobState.DONE and long.progress.steps < 3
    until(lambda: long.progress.state.finished)
    assert (long.progress.state, long.progress.steps, long.progress.what) == (JobState.DONE, 3, "toy long")
    assert long.progress.pid == short.progress.pid


def test_faults_leave_the_process_and_a_new_one_follows_its_end(engine, caplog, monkeypatch):
    first = done(engine, look())
    for worse, what in (("fault", "toy "), ("unsayable", "toy ")):  # the second's result cannot be pickled
        broken = done(engine, look(worse=worse))
        assert (broken.state, broken.error, broken.what) == (JobState.FAILED, FAULT, what)
    assert done(engine, look()).pid == first.pid
    job = look()
    job.work = lambda pair: nothing(pair)  # which cannot be pickled
    with caplog.at_level(logging.CRITICAL):
        assert done(engine, job).error == FAULT
    lost = done(engine, look(worse="device"))
    assert lost.state is JobState.FAILED and lost.error.startswith("The device does not answer")
    assert engine.status == Status() and lost.pid != first.pid
    until(lambda: not is_alive(lost.pid))
    refuse = Mock(side_effect=OSError(12, "Cannot allocate memory"))
    monkeypatch.setattr(subprocess, "Popen", refuse)
    refused = done(ModelProcess(toys), look())
    assert refused.state is JobState.FAILED and "[Errno 12]" in refused.error


def test_a_process_that_dies_between_jobs_costs_none(engine):
    first, long = done(engine, look("bear")).pid, steps()
    engine.serve(long)
    assert not long.progress.state.finished
    os.kill(first, signal.SIGKILL)
    until(lambda: engine._process.poll() is not None)
    second = done(engine, look())
    assert (second.state, second.pid != first, second.error) == (JobState.DONE, True, "")
    for _ in range(4):  # begun anew there, since what it had come to went with the first
        engine.serve(long)
    assert (long.progress.state, long.progress.steps, long.progress.pid) == (JobState.DONE, 3, second.pid)


def test_an_idle_process_ends_and_a_job_whose_process_gives_up_fails_once():
    engine = ModelProcess(toys)
    worker, job, again = Worker(engine, idle=0.05), look("bear"), look("bear")
    worker.submit(job)
    until(lambda: job.progress.state.finished and not is_alive(job.progress.pid))
    until(lambda: engine.status.choice is None)
    worker.submit(again)
    until(lambda: again.progress.state is JobState.DONE)
    engine, job = ModelProcess(blind), steps()
    worker = Worker(engine)
    worker.submit(job)
    until(lambda: job.progress.state.finished)
    assert (job.progress.state, job.progress.error, job.progress.steps) == (JobState.FAILED, GIVEN_UP, 1)
    engine.rest()


def test_a_walk_of_a_stored_run_is_pickled_without_it(tmp_path):
    run = toy_run()
    path, walked = run.save(tmp_path / "run"), []
    walk = lambda pair, run, stands: walked.append(run) or iter(())  # noqa: E731
    for job in (walk_job(run, (), walk, path), walk_job(run, (), walk)):
        assert (path in job.work.args, run in job.work.args) == (not walked, bool(walked))
        toys().serve(job)
        assert job.progress.state is JobState.DONE and walked[-1].token_ids == run.token_ids


def test_a_killed_decode_keeps_its_rounds_as_interrupted(tmp_path):
    engine, store = ModelProcess(toys), RunStore(tmp_path)
    worker = Worker(engine)
    job = decode_job("hold", Settings(), Ways(held, store=store))
    worker.submit(job)
    until(lambda: job.progress.so_far is not None and (runs := store.list()) and runs[0].facts and runs[0].facts.tokens)
    assert store.list()[0].standing is RunStatus.GROWING
    assert engine._process is not None
    os.kill(engine._process.pid, signal.SIGKILL)
    until(lambda: job.progress.state.finished)
    assert job.progress.state is JobState.FAILED and "stopped by SIGKILL" in job.progress.error
    assert job.progress.run is not None and job.progress.run.rounds
    assert [kept.standing for kept in store.list()] == [RunStatus.INTERRUPTED]
    engine.rest()


def test_the_process_ends_with_its_killed_parent():
    script = """
import time
from mars_viz.ui.jobs.worker import ModelProcess
from mars_viz.ui.jobs.tasks import Decoded, Ways, decode_job, map_job, walk_job
from mars_viz.ui.jobs.worker import EXPENDABLE, GIVEN_UP, MODEST, ModelProcess, Worker, pickled
from tests.engine_toys import toys, wait
job = wait()
Worker(ModelProcess(toys)).submit(job)
while not job.progress.pid: time.sleep(0.01)
print(job.progress.pid, flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=ROOT) as parent:
        pid = int(parent.stdout.readline())
        assert is_alive(pid)
        parent.kill()
    until(lambda: not is_alive(pid))


def test_a_run_is_sent_while_it_grows():
    run, heard = toy_run(max_new_tokens=60), []
    job = decode_job("grow", run.settings, Ways(lambda *asked: ToyRecorder(run, "grow")))
    toys().serve(job, lambda **news: heard.append(pickle.loads(pickled(news))))
    sent = [each["so_far"] for each in heard if "so_far" in each]
    assert len(sent[0].rounds) == 1 and len(sent) <= len(run.rounds)
    assert sent[-1].token_ids == run.token_ids and sent[-1].text == run.text
    assert [each.outcomes for each in sent[-1].rounds] == [each.outcomes for each in run.rounds]


class Gated:
    """Takes a step each time it is allowed to."""

    def __init__(self, steps: int) -> None:
        self._allowed = threading.Semaphore(steps)

    def allow(self, steps: int = 10_000) -> None:
        self._allowed.release(steps)

    def enter(self, fail: Exception | None = None) -> None:
        assert self._allowed.acquire(timeout=PATIENCE)
        if fail is not None:
            raise fail


class Script(ToyRecorder, Gated):
    """A recorder that may fail after its first round."""

    def __init__(self, prompt: str = "Hello", *, steps: int = 10_000, fail: Exception | None = None) -> None:
        ToyRecorder.__init__(self, toy_run(temperature=1.0, max_new_tokens=60), prompt)
        Gated.__init__(self, steps)
        self._fail = fail

    def before(self) -> None:
        self.enter(self._fail if self.made == 1 else None)


class Chart(Gated):
    """A mapper of a toy run."""

    def __init__(self, run: Run, *, steps: int = 10_000, fail: Exception | None = None) -> None:
        super().__init__(steps)
        made, self._fail = toy_map(replace(run.settings, dial=None), gammas=(run.settings.gamma,))[0], fail
        made = replace(made, frame=replace(run.without_rounds, settings=made.frame.settings))
        self.passes, self.map = 0, lambda: made

    def __iter__(self) -> Iterator[Mapped]:
        for self.passes in range(1, 4):
            self.enter(self._fail)
            yield Mapped(self.passes, 1, self.passes / 3)


def finished(job: Job[Decoded]) -> Decoded:
    until(lambda: job.progress.state.finished)
    return job.progress


class Asked:
    """A worker whose jobs make these recordings in turn, then others."""

    def __init__(self, *scripts: Script, chart: Any = None, load: Any = object, store: Any = None) -> None:
        self.worker, queue = Worker(Models(lambda choice, tell: load())), list(scripts)
        record = lambda pair, prompt, settings: queue.pop(0) if queue else Script(prompt)  # noqa: E731
        self.ways = Ways(record, chart, store)

    def submit(self, prompt: str = "Hello") -> Job[Decoded]:
        job = decode_job(prompt, Settings(), self.ways)
        self.worker.submit(job)
        return job


def charting(**steps: int) -> tuple[Asked, dict[str, Chart]]:
    """A worker that maps each run, and the mappers by prompt; `steps` are allowed at once."""
    charts: dict[str, Chart] = {}

    def chart(pair: object, run: Run) -> Chart:
        charts[run.prompt] = Chart(run, steps=steps.get(run.prompt, 0))
        return charts[run.prompt]

    return Asked(chart=chart), charts


def test_progress_is_seen_and_the_run_stored_while_a_job_runs_to_its_end(tmp_path):
    script, store = Script(steps=0), RunStore(tmp_path)
    job = Asked(script, store=store).submit()
    until(lambda: job.progress.state is JobState.DECODING)
    assert job.progress.rounds == 0
    script.allow(2)
    until(lambda: job.progress.rounds == 2 and store.list())
    assert job.progress.tokens == len(script.run().token_ids) > 0 and job.progress.text
    assert store.list()[0].standing is RunStatus.GROWING
    script.allow()
    progress = finished(job)
    assert progress.state is JobState.DONE and progress.run is not None and progress.run.prompt == "Hello"
    assert (progress.tokens, progress.rounds) == (len(progress.run.token_ids), len(progress.run.rounds))
    assert (progress.tau, progress.text) == (progress.run.tau, progress.run.text)
    (entry,) = store.list()
    assert (entry.name, entry.standing) == (progress.saved, RunStatus.WHOLE)
    assert read(entry.path).token_ids == progress.run.token_ids
    (tmp_path / "file").write_text("in the way")
    progress = finished(Asked(store=RunStore(tmp_path / "file")).submit())
    assert progress.state is JobState.DONE and progress.run is not None
    assert not progress.saved and "cannot be written" in progress.unsaved


def test_cancelling_stops_after_the_round_keeps_it_and_maps_nothing():
    script = Script(steps=3)
    job = Asked(script, chart=lambda pair, run: pytest.fail("there is nothing to map")).submit()
    until(lambda: job.progress.rounds == 3)
    job.cancel()
    assert job.stopping and not job.progress.state.finished
    script.allow(1)
    progress = finished(job)
    assert progress.state is JobState.CANCELLED and script.made == len(progress.run.rounds) == 4


def test_jobs_of_all_kinds_run_in_order_with_one_load_and_are_cancelled_at_once_in_the_queue():
    loads: list[int] = []
    scripts = [Script(name, steps=0) for name in "ab"]
    asked = Asked(*scripts, load=lambda: loads.append(1) or object())
    jobs = [asked.submit(name) for name in "ab"]
    waiting, count = asked.submit("never"), Job(Progress(), nothing)
    asked.worker.submit(count)
    until(lambda: jobs[0].progress.state is JobState.DECODING)
    assert [asked.worker.ahead(job) for job in (*jobs, waiting, count)] == [0, 1, 2, 3]
    assert asked.worker.unfinished == [*jobs, waiting, count]
    assert jobs[1].progress.state is count.progress.state is JobState.QUEUED
    waiting.cancel()
    assert waiting.progress.state is JobState.CANCELLED and waiting.progress.run is None
    for script, job in zip(scripts, jobs, strict=True):
        script.allow()
        assert finished(job).run.prompt == job.progress.prompt
    until(lambda: count.progress.state is JobState.DONE)
    assert loads == [1]


def test_errors_stay_with_their_job_and_faults_are_logged(caplog, tmp_path):
    failures = [BadInput("put them there")]

    def load() -> object:
        if failures:
            raise failures.pop()
        return object()

    store = RunStore(tmp_path)
    asked = Asked(Script(fail=ZeroDivisionError("secret detail")), Script(), load=load, store=store)
    first = finished(asked.submit())
    assert (first.state, first.error) == (JobState.FAILED, "put them there")
    with caplog.at_level(logging.ERROR):
        second = finished(asked.submit())
    assert (second.state, second.error) == (JobState.FAILED, FAULT)
    (entry,) = store.list()
    assert len(second.run.rounds) == len(read(entry.path).rounds) == 1 and entry.standing is RunStatus.INTERRUPTED
    assert "secret detail" in caplog.text and "Traceback" in caplog.text
    job = asked.submit()
    assert finished(job).state is JobState.DONE
    gone = weakref.ref(job)
    del job
    until(lambda: gc.collect() >= 0 and gone() is None)  # the worker forgets its jobs


def test_a_run_is_readable_before_its_map_is_complete_and_after_it_is_stopped_or_fails():
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
    asked, charts = charting(Hello=1)
    job = asked.submit()
    until(lambda: job.progress.exact > 0)
    job.cancel()
    charts["Hello"].allow(1)
    progress = finished(job)
    assert (progress.state, charts["Hello"].passes) == (JobState.DONE, 2) and progress.run is not None
    progress = finished(Asked(chart=lambda pair, run: Chart(run, fail=BadInput("No room"))).submit())
    assert (progress.state, progress.error) == (JobState.DONE, "No room")
    assert progress.run is not None and progress.run.dial_map is None


def test_a_map_stops_after_its_time_is_continued_on_request_and_shown_if_not_stored(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "MAPPING_SECONDS", 0.0)
    monkeypatch.setattr(models, "TURN", 0.0)
    mapped: list[Run] = []
    asked = Asked(chart=lambda pair, run: mapped.append(run) or Chart(run), store=RunStore(tmp_path))
    progress = finished(asked.submit())
    assert (progress.state, progress.error, progress.exact) == (JobState.DONE, "", 1 / 3)
    kept = read(tmp_path / progress.saved)
    assert kept.dial_map is not None
    monkeypatch.setattr(tasks, "MAPPING_SECONDS", 60.0)
    more = map_job(kept, progress.saved, asked.ways)
    asked.worker.submit(more)
    assert finished(more).exact == 1 and mapped[1] is kept and more.progress.saved == progress.saved
    monkeypatch.setattr(RunStore, "replace", Mock(side_effect=BadInput("The disk is full; make room.")))
    job = Asked(chart=lambda pair, run: Chart(run), store=RunStore(tmp_path)).submit()
    progress = finished(job)
    assert progress.saved and progress.error == "The disk is full; make room."
    session = Session(view=View(run=progress.saved), filling=(progress.saved, job))
    tab_jobs.fill_in(session)
    assert session.runs[progress.saved].dial_map is not None and session.notices == [progress.error]


def test_texts_are_decoded_before_maps_go_on(monkeypatch):
    monkeypatch.setattr(models, "TURN", 0.0)
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


class Tab:
    there = True


def minded(tab: Tab, grace: float, script: Script, store: RunStore | None = None) -> tuple[Worker, list[Job[Decoded]]]:
    """A worker for jobs of this session, and two of its jobs."""
    models = Models(lambda choice, tell: object())
    worker = Worker(models, visitor=lambda: ("anna", lambda: tab.there), grace=grace)
    ways = Ways(lambda pair, prompt, settings: script, store=store)
    return worker, [decode_job("Hello", Settings(), ways) for _ in range(2)]


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
    assert progress.ending.startswith(LEFT) and live.decoding(progress) == progress.ending
    worker, (job, _) = minded(tab, 30.0, script := Script(steps=0))
    worker.submit(job)
    worker.look()
    assert not job.stopping
    tab.there = True  # within the grace
    script.allow()
    assert (finished(job).state, job.progress.abandoned) == (JobState.DONE, False)


def test_jobs_go_on_while_one_of_their_sessions_is_connected_and_long_ones_without():
    there, here = {"teacher": True, "pupil": True}, ["teacher"]
    models, script = Models(lambda choice, tell: object()), Script(steps=0)
    worker = Worker(models, visitor=lambda: (here[0], lambda name=here[0]: there[name]), grace=0.0)
    job = decode_job("Hello", Settings(), Ways(lambda pair, prompt, settings: script))
    worker.submit(job)
    here[:] = ["pupil"]
    worker.join(job)
    there["teacher"] = False
    worker.look()
    assert not job.stopping and job.maker == "teacher"
    there["pupil"] = False
    until(lambda: worker.look() or job.stopping)
    script.allow()
    job = steps()
    assert worker.begin(job) is job
    until(lambda: job.progress.state.finished)
    assert job.progress.state is JobState.DONE
