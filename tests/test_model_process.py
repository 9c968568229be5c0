"""Jobs in the model process: progress, cancellation, errors, and the end of the process."""

from __future__ import annotations

import io
import logging
import os
import pickle
import signal
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mars_viz.backend_choice import BackendChoice
from mars_viz.recording import Recording
from mars_viz.run import Settings
from mars_viz.runfiles import load_run
from mars_viz.runstore import RunStatus, RunStore
from mars_viz.ui.jobs import tasks
from mars_viz.ui.jobs.decode_job import DecodeJob, WalkJob, Ways
from mars_viz.ui.jobs.job import FAULT, Job, JobState
from mars_viz.ui.jobs.model_process import GIVEN_UP, ModelProcess, Wire
from mars_viz.ui.jobs.model_process_main import EXPENDABLE, MODEST
from mars_viz.ui.jobs.models import Status
from mars_viz.ui.jobs.worker import UnloadJob, Worker
from mars_viz.ui.tab_jobs import stop_button
from tests.engine_toys import Look, Seen, Steps, Wait, blind, held, toys
from tests.factories import toy_run
from tests.recorders import ToyRecorder
from tests.waiting import until


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
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_job_runs_in_another_process_with_its_progress_here(engine):
    seen = done(engine, Look("bear"))
    assert (seen.state, seen.what) == (JobState.DONE, "toy bear")
    assert seen.pid != os.getpid() and "streamlit" not in seen.libraries and "torch" not in seen.libraries
    assert (seen.nice, seen.expendable) == (min(19, os.nice(0) + MODEST), EXPENDABLE)  # pages and runs come first
    assert done(engine, Look()).pid == seen.pid  # one process for all


def test_the_process_is_prepared_once(engine):
    engine.rest()
    assert done(engine, Look()).prepared == 0  # a job that comes first loads what it needs
    engine.rest()
    engine.get_ready()
    ready = engine._process
    engine.get_ready()
    seen = done(engine, Look("bear"))  # what was wrong with it is this job's to say, if it still is
    assert (seen.state, seen.what, seen.prepared) == (JobState.DONE, "toy bear", 1)
    assert engine._process is ready and engine.status.doing == ""
    os.kill(seen.pid, signal.SIGKILL)
    until(lambda: ready.poll() is not None)
    engine.get_ready()
    assert done(engine, Look()).prepared == 1 and engine._process is not ready


def test_the_status_is_that_of_the_process(engine):
    done(engine, Look("bear"))
    done(engine, Look("hare"))
    assert engine.status.choice == BackendChoice("hare") and engine.status.device.used == len("toy hare")
    assert engine.recent[:2] == (BackendChoice("hare"), BackendChoice("bear"))
    refused = done(engine, Look("missing"))
    assert (refused.state, refused.error) == (JobState.FAILED, "There is no such toy; take another.")
    assert engine.status.choice == BackendChoice("hare") and engine.status.doing == ""
    done(engine, UnloadJob())
    assert engine.status.choice is None and engine.status.device is None


def test_jobs_are_cancelled_before_and_while_they_run(engine):
    worker, job, waits = Worker(engine), Wait(), Wait()
    worker.submit(job)
    worker.submit(waits)
    until(lambda: job.progress.steps > 3)
    waits.cancel()
    assert waits.progress.state is JobState.CANCELLED
    job.cancel()
    until(lambda: job.progress.state is JobState.CANCELLED)
    late = Wait()
    late._stop.set()  # cancelled between its turn and its way there
    assert done(engine, late).state is JobState.CANCELLED and waits.progress.steps == 0


def test_a_long_job_runs_between_others(engine):
    worker, long, short = Worker(engine), Steps(), Look("hare")
    worker.submit(long)
    until(lambda: long.progress.steps)
    worker.submit(short)
    until(lambda: long.progress.state.finished and short.progress.state.finished)
    assert (long.progress.state, long.progress.steps, long.progress.what) == (JobState.DONE, 3, "toy long")
    assert long.progress.pid == short.progress.pid


def test_faults_leave_the_process_and_a_new_one_follows_its_end(engine, caplog, monkeypatch):
    first = done(engine, Look())
    broken = done(engine, Look(worse="fault"))
    assert (broken.state, broken.error) == (JobState.FAILED, FAULT)
    unsayable = done(engine, Look(worse="unsayable"))  # a result that cannot be pickled
    assert (unsayable.state, unsayable.error, unsayable.what) == (JobState.FAILED, FAULT, "toy ")
    assert done(engine, Look()).pid == first.pid
    job = Look()
    job.unread = lambda: None  # a job that cannot be pickled
    with caplog.at_level(logging.CRITICAL):
        assert done(engine, job).error == FAULT
    over = done(engine, Look(worse="dies at its end"))
    assert (over.state, over.error) == (JobState.DONE, "")
    ended = done(engine, Look(worse="dies"))
    assert ended.state is JobState.FAILED and "exit code 3" in ended.error and engine.status == Status()
    lost = done(engine, Look(worse="device"))
    assert lost.state is JobState.FAILED and lost.error.startswith("The device does not answer")
    second = done(engine, Look())
    assert second.state is JobState.DONE and len({first.pid, lost.pid, second.pid, 0}) == 4
    until(lambda: not is_alive(lost.pid))

    def refuse(*asked: object, **how: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    refused = done(ModelProcess(toys), Look())
    assert refused.state is JobState.FAILED and "[Errno 12]" in refused.error


def test_a_process_that_dies_between_jobs_costs_none(engine):
    first, long = done(engine, Look("bear")).pid, Steps()
    engine.serve(long)
    assert not long.progress.state.finished
    os.kill(first, signal.SIGKILL)
    until(lambda: engine._process.poll() is not None)
    second = done(engine, Look())
    assert (second.state, second.pid != first, second.error) == (JobState.DONE, True, "")
    for _ in range(4):  # begun anew there, since what it had come to went with the first
        engine.serve(long)
    assert (long.progress.state, long.progress.steps, long.progress.pid) == (JobState.DONE, 3, second.pid)


def test_an_idle_process_ends():
    engine = ModelProcess(toys)
    worker, job, again = Worker(engine, idle=0.05), Look("bear"), Look("bear")
    worker.submit(job)
    until(lambda: job.progress.state.finished and not is_alive(job.progress.pid))
    until(lambda: engine.status.choice is None)
    worker.submit(again)
    until(lambda: again.progress.state is JobState.DONE)


def test_a_job_whose_process_gives_up_fails_once():
    engine, job = ModelProcess(blind), Steps()
    worker = Worker(engine)
    worker.submit(job)
    until(lambda: job.progress.state.finished)
    assert (job.progress.state, job.progress.error, job.progress.steps) == (JobState.FAILED, GIVEN_UP, 1)
    engine.rest()


def test_a_walk_of_a_stored_run_is_pickled_without_it(tmp_path):
    run = toy_run()
    path, walked = run.save(tmp_path / "run"), []
    there = pickle.loads(pickle.dumps(WalkJob(run, (), len, path)))
    there._walk = lambda pair, run, stands: walked.append(run) or iter(())
    there.run(toys())
    assert there.progress.state is JobState.DONE and walked[0].token_ids == run.token_ids
    own = pickle.loads(pickle.dumps(WalkJob(run, (), len)))
    assert own.asked.token_ids == run.token_ids


def test_a_stop_button_holds_no_job():
    class Place:
        def button(self, words: str, **how: Any) -> None:
            self.press = how["on_click"]

    place, job = Place(), Wait()
    stop_button(place, "Stop", job)
    place.press()
    assert job.stopping
    gone = weakref.ref(job)
    del job
    assert gone() is None
    place.press()  # of a tab that still shows it


def test_a_killed_decode_keeps_its_rounds_as_interrupted(tmp_path):
    engine, store = ModelProcess(toys), RunStore(tmp_path)
    worker = Worker(engine)
    job = DecodeJob("hold", Settings(), Ways(held, store=store))
    worker.submit(job)
    until(lambda: job.progress.so_far is not None and store.list() and store.list()[0].tokens)
    assert store.list()[0].standing is RunStatus.GROWING
    assert engine._process is not None
    os.kill(engine._process.pid, signal.SIGKILL)
    until(lambda: job.progress.state.finished)
    assert job.progress.state is JobState.FAILED and "stopped by SIGKILL" in job.progress.error
    assert job.progress.run is not None and job.progress.run.rounds
    assert [kept.standing for kept in store.list()] == [RunStatus.INTERRUPTED]
    engine.rest()


def test_the_process_ends_with_its_killed_parent():
    script = (
        "import os, threading, time\n"
        "from mars_viz.ui.jobs.model_process import ModelProcess\n"
        "from mars_viz.ui.jobs.worker import Worker\n"
        "from tests.engine_toys import Wait, toys\n"
        "job = Wait()\n"
        "Worker(ModelProcess(toys)).submit(job)\n"
        "while not job.progress.pid: time.sleep(0.01)\n"
        "print(job.progress.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=Path(__file__).parents[1])
    assert parent.stdout is not None
    with parent.stdout as said:
        pid = int(said.readline())
    assert is_alive(pid)
    parent.kill()
    parent.wait()
    until(lambda: not is_alive(pid))


def test_the_built_in_pair_decodes_as_in_this_process(tmp_path, pair):
    engine, settings = ModelProcess(tasks.models), Settings(max_new_tokens=24)
    job = DecodeJob("Once upon a time", settings, Ways(tasks.record, tasks.chart, RunStore(tmp_path)))
    while not job.progress.state.finished:  # its map is made in turns
        engine.serve(job)
    assert job.progress.state is JobState.DONE and not job.progress.error, job.progress.error
    recording = Recording(pair, "Once upon a time", settings)
    alone = recording.finish()
    kept = load_run(tmp_path / job.progress.saved)
    assert kept.token_ids == alone.token_ids == job.progress.run.token_ids
    assert kept.dial_map is not None and job.progress.run.dial_map is None  # the map is read where it is kept
    engine.rest()


def test_a_run_is_sent_by_its_new_rounds():
    run, heard = toy_run(max_new_tokens=60), []
    ways = Ways(lambda *asked: ToyRecorder(run, "grow"))
    job, here = (DecodeJob("grow", run.settings, ways) for _ in range(2))
    job.on_news = heard.append
    job.run(toys())
    news = [each["more"] for each in heard if "more" in each]
    assert sum(len(more.rounds) for more in news) == len(run.rounds) and len(news) > 1
    stream = io.BytesIO()
    for each in heard:
        Wire(stream, stream).put(each)
    sent = stream.getvalue()
    other = Wire(io.BytesIO(sent), io.BytesIO())
    for _ in heard:
        here.tell(**other.take())
    assert here.progress.run.token_ids == run.token_ids and here.progress.text == run.text
    assert [each.outcomes for each in here.progress.run.rounds] == [each.outcomes for each in run.rounds]
    with pytest.raises(EOFError):
        other.take()
    with pytest.raises(EOFError):
        Wire(io.BytesIO(sent[:40]), io.BytesIO()).take()


def test_jobs_are_unpickled_without_streamlit_and_torch():
    modules = ("model_process_main", "tasks", "decode_job", "worker")
    script = (
        f"import sys, importlib\n"
        f"for name in {modules!r}: importlib.import_module('mars_viz.ui.jobs.' + name)\n"
        "importlib.import_module('mars_viz.ui.tune.jobs')\n"
        "print([name for name in ('streamlit', 'torch') if name in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
