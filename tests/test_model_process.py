"""Jobs in a process of their own: what is told there is heard here, a cancel arrives, and nothing that goes wrong there
stays."""

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
from mars_viz.dialmap import Budget, Span
from mars_viz.recording import Mapping, Recording
from mars_viz.run import Run, Settings
from mars_viz.run_with_map import mapped
from mars_viz.runfiles import load_run
from mars_viz.runstore import RunStatus, RunStore
from mars_viz.speculators.loading import load_backend
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


def test_a_job_is_done_elsewhere_and_what_it_tells_is_told_here(engine):
    seen = done(engine, Look("bear"))
    assert (seen.state, seen.what) == (JobState.DONE, "toy bear")
    assert seen.pid != os.getpid() and "streamlit" not in seen.libraries and "torch" not in seen.libraries
    assert (seen.nice, seen.expendable) == (min(19, os.nice(0) + MODEST), EXPENDABLE)  # pages and runs come first
    assert done(engine, Look()).pid == seen.pid  # one process for all


def test_it_gets_ready_before_a_job_and_once(engine):
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


def test_what_is_held_there_is_known_here(engine):
    done(engine, Look("bear"))
    done(engine, Look("hare"))
    assert engine.status.choice == BackendChoice("hare") and engine.status.device.used == len("toy hare")
    assert engine.recent[:2] == (BackendChoice("hare"), BackendChoice("bear"))
    refused = done(engine, Look("missing"))
    assert (refused.state, refused.error) == (JobState.FAILED, "There is no such toy; take another.")
    assert engine.status.choice == BackendChoice("hare") and engine.status.doing == ""
    done(engine, UnloadJob())
    assert engine.status.choice is None and engine.status.device is None


def test_a_cancel_arrives_in_the_middle_of_a_job_and_before_it(engine):
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


def test_a_long_job_goes_on_there_between_others(engine):
    worker, long, short = Worker(engine), Steps(), Look("hare")
    worker.submit(long)
    until(lambda: long.progress.steps)
    worker.submit(short)
    until(lambda: long.progress.state.finished and short.progress.state.finished)
    assert (long.progress.state, long.progress.steps, long.progress.what) == (JobState.DONE, 3, "toy long")
    assert long.progress.pid == short.progress.pid


def test_a_fault_there_is_a_sentence_here_and_the_process_goes_on(engine):
    before = done(engine, Look()).pid
    broken = done(engine, Look(worse="fault"))
    assert (broken.state, broken.error) == (JobState.FAILED, FAULT)
    unsayable = done(engine, Look(worse="unsayable"))  # half of it was named when it turned out to be none to send
    assert (unsayable.state, unsayable.error, unsayable.what) == (JobState.FAILED, FAULT, "toy ")
    assert done(engine, Look()).pid == before


def test_a_job_that_cannot_travel_is_a_fault_and_the_next_is_done(engine, caplog):
    job = Look()
    job.unread = lambda: None
    with caplog.at_level(logging.CRITICAL):
        assert done(engine, job).error == FAULT
    assert done(engine, Look()).state is JobState.DONE


def test_a_process_that_ends_is_a_sentence_and_the_next_job_has_another(engine):
    first = done(engine, Look()).pid
    ended = done(engine, Look(worse="dies"))
    assert ended.state is JobState.FAILED and "has ended (exit code 3)" in ended.error and "Try again" in ended.error
    assert engine.status == Status()  # nothing is held any more
    second = done(engine, Look())
    assert second.state is JobState.DONE and second.pid not in (first, 0)


def test_a_process_that_cannot_be_started_is_a_sentence_too(monkeypatch):
    def refuse(*asked: object, **how: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    refused = done(ModelProcess(toys), Look())
    assert refused.state is JobState.FAILED and "could not be started ([Errno 12] Cannot allocate" in refused.error


def test_a_process_that_dies_while_nobody_needs_it_costs_no_job(engine):
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


def test_what_is_over_stays_over_when_the_process_dies(engine):
    over = done(engine, Look(worse="dies at its end"))
    assert (over.state, over.error) == (JobState.DONE, "")


def test_a_job_whose_process_gives_up_fails_once():
    engine, job = ModelProcess(blind), Steps()
    worker = Worker(engine)
    worker.submit(job)
    until(lambda: job.progress.state.finished)
    assert (job.progress.state, job.progress.error, job.progress.steps) == (JobState.FAILED, GIVEN_UP, 1)
    engine.rest()


def test_a_walk_of_a_kept_run_travels_without_it(tmp_path):
    run = toy_run()
    path, walked = run.save(tmp_path / "run"), []
    there = pickle.loads(pickle.dumps(WalkJob(run, (), len, path)))
    there._walk = lambda pair, run, stands: walked.append(run) or iter(())
    there.run(toys())
    assert there.progress.state is JobState.DONE and walked[0].token_ids == run.token_ids
    own = pickle.loads(pickle.dumps(WalkJob(run, (), len)))
    assert own.asked.token_ids == run.token_ids


def test_a_button_that_stops_a_job_does_not_keep_it():
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


def test_a_lost_device_is_found_again_by_another_process(engine):
    first = done(engine, Look(worse="device"))
    assert first.state is JobState.FAILED and first.error.startswith("The device does not answer")
    second = done(engine, Look())
    assert second.state is JobState.DONE and second.pid != first.pid
    until(lambda: not is_alive(first.pid))


def test_a_killed_decode_keeps_what_had_been_heard_and_is_listed_as_interrupted(tmp_path):
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


def test_after_an_idle_time_the_process_is_gone_with_all_its_memory():
    engine = ModelProcess(toys)
    worker = Worker(engine, idle=0.05)
    job = Look("bear")
    worker.submit(job)
    until(lambda: job.progress.state.finished and not is_alive(job.progress.pid))
    until(lambda: engine.status.choice is None)
    again = Look("bear")
    worker.submit(again)
    until(lambda: again.progress.state is JobState.DONE)


def test_the_process_ends_with_the_one_that_asked_however_that_dies():
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


def test_the_built_in_pair_decodes_there_as_it_does_here(tmp_path):
    engine, settings = ModelProcess(tasks.models), Settings(max_new_tokens=24)
    job = DecodeJob("Once upon a time", settings, Ways(tasks.record, tasks.chart, RunStore(tmp_path)))
    while not job.progress.state.finished:  # its map is made in turns
        engine.serve(job)
    assert job.progress.state is JobState.DONE and not job.progress.error, job.progress.error
    recording = Recording(load_backend(), "Once upon a time", settings)
    alone = recording.finish()
    kept = load_run(tmp_path / job.progress.saved)
    assert kept.token_ids == alone.token_ids == job.progress.run.token_ids
    assert kept.dial_map is not None and job.progress.run.dial_map is None  # the map is read where it is kept
    engine.rest()


def test_a_map_that_was_cut_short_goes_on_from_its_file_to_the_very_same(tmp_path):
    pair, settings, span = load_backend(), Settings(max_new_tokens=24, gamma=4), Span(0.5, 1.0, (1, 2, 3, 4))
    recording = Recording(pair, "Once upon a time", settings)
    recording.finish()
    run = recording.run()

    def made(begun: Run, budget: Budget | None = None) -> Run:
        mapper = Mapping(pair, run.prompt, settings, span, run=begun, budget=budget)
        return mapped(run, mapper.finish())

    whole, part = made(run), made(run, Budget(passes=4, branches=4))
    assert whole.dial_map.known == 1 and 0 < part.dial_map.known < 1
    part.save(tmp_path / "part")  # with the answers of shorter blocks cut to what their walks look at
    more = made(load_run(tmp_path / "part"))
    assert more.dial_map.complete and more.dial_map.passes > part.dial_map.passes
    for gamma in span.gammas:
        ours, theirs = (one.dial_map.segments_for(gamma) for one in (more, whole))
        assert [(s.low, s.high, s.token_ids) for s in ours] == [(s.low, s.high, s.token_ids) for s in theirs]


def test_a_run_is_told_by_its_new_rounds_and_what_is_cut_off_ends_the_wire():
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


def test_what_travels_needs_no_library_of_pages_or_models_to_arrive():
    modules = ("model_process_main", "tasks", "decode_job", "worker")
    script = (
        f"import sys, importlib\n"
        f"for name in {modules!r}: importlib.import_module('mars_viz.ui.jobs.' + name)\n"
        "importlib.import_module('mars_viz.ui.tune.jobs')\n"
        "print([name for name in ('streamlit', 'torch') if name in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
