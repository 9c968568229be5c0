"""Sweeps as jobs: order, cancellation, and resumption."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from sweep_cases import SHORT, timing, toy_prompts, toy_sweep

from mars_viz.errors import BadInput
from mars_viz.sweep import load_sweep
from mars_viz.sweep.store import list_sweeps, open_store
from mars_viz.sweep.timing import keep_check
from mars_viz.sweep.wall_clock import ClockProgress
from mars_viz.ui.jobs.job import FAULT, Job, JobState, LongJob, Progress
from mars_viz.ui.jobs.models import Models
from mars_viz.ui.jobs.worker import Worker
from mars_viz.ui.tune.jobs import ClockJob, Sweeping, SweepJob
from tests.waiting import PATIENCE, until


def worker() -> Worker:
    return Worker(Models(lambda choice, tell: object()))


class Counting(LongJob[Progress]):
    """Notes its name at each step that it is allowed to take."""

    def __init__(self, name: str, log: list[str], steps: int, allowed: threading.Semaphore | None = None) -> None:
        super().__init__(Progress(JobState.QUEUED))
        self.name, self.log, self.count, self.allowed, self.closed = name, log, steps, allowed, False

    def steps(self, models: Models[Any]) -> Iterator[None]:
        try:
            for _ in range(self.count):
                if self.allowed is not None:
                    assert self.allowed.acquire(timeout=PATIENCE)
                self.log.append(self.name)
                yield
        finally:
            self.closed = True


class Short(Job[Progress]):
    def __init__(self, log: list[str]) -> None:
        super().__init__(Progress(JobState.QUEUED))
        self.log = log

    def work(self, models: Models[Any]) -> None:
        self.log.append("short")
        self.tell(state=JobState.DONE)


def test_short_jobs_run_between_the_steps_of_long_ones():
    log: list[str] = []
    allowed, own = threading.Semaphore(1), worker()
    first, second = Counting("a", log, 4, allowed), Counting("b", log, 2)
    short = Short(log)

    class Failing(Counting):
        def steps(self, models: Models[Any]) -> Iterator[None]:
            yield
            raise ZeroDivisionError("secret detail")

    own.submit(first)
    until(lambda: log == ["a"])
    own.submit(second)
    own.submit(short)
    allowed.release(10)
    until(lambda: second.progress.state is JobState.DONE)
    assert first.progress.state is short.progress.state is JobState.DONE
    assert log.index("short") <= 2 and [name for name in log if name != "short"] == ["a"] * 4 + ["b"] * 2
    failing, stopped, after = Failing("f", log, 1), Counting("c", log, 4, allowed := threading.Semaphore(1)), Short(log)
    own.submit(failing)
    own.submit(stopped)
    until(lambda: log[-1] == "c")
    stopped.cancel()
    allowed.release(10)
    own.submit(after)
    until(lambda: after.progress.state is JobState.DONE and stopped.progress.state.finished)
    assert (failing.progress.state, failing.progress.error) == (JobState.FAILED, FAULT)
    assert stopped.progress.state is JobState.CANCELLED and log.count("c") <= 2 and stopped.closed


def test_a_cancelled_sweep_job_is_resumed(tmp_path):
    own, folder = worker(), tmp_path / "sweep"
    seen: list[Sweeping] = []

    class Watched(SweepJob):
        def tell(self, **news: object) -> None:
            super().tell(**news)
            seen.append(self.progress)
            if self.progress.finished == 2:
                self.cancel()

    job = Watched(folder, lambda pair: toy_sweep(folder, 4, SHORT), "toys")
    assert own.begin(job, *job.labels) is job
    until(lambda: job.progress.state.finished)
    assert job.progress.state is JobState.CANCELLED and load_sweep(folder).finished == 2
    assert seen[0].prompts == 4 and 0 < max(each.part for each in seen) <= 0.75 and job.progress.left > 0
    again = SweepJob(folder, lambda pair: toy_sweep(folder, 4, SHORT, resume=True), "toys")
    assert own.begin(again, *again.labels) is again and own.names() == {folder: again}
    until(lambda: again.progress.state.finished)
    assert (again.progress.state, again.progress.before, again.progress.finished) == (JobState.DONE, 2, 4)
    assert load_sweep(folder).complete


def test_a_job_is_begun_once(tmp_path):
    own, allowed = worker(), threading.Semaphore(0)
    own.submit(Counting("a", [], 1, allowed))  # keeps the worker busy
    job = SweepJob(tmp_path / "x", lambda pair: toy_sweep(tmp_path / "x", 2, SHORT), "toys")
    other = SweepJob(tmp_path / "x", lambda pair: pytest.fail("begun twice"), "toys")
    assert own.begin(job, *job.labels) is job and own.begin(other, *other.labels) is job
    allowed.release()
    until(lambda: job.progress.state is JobState.DONE)


def test_a_check_that_cannot_be_saved_is_shown(tmp_path):
    class Clock:
        progress = ClockProgress(0, 1)

        def __iter__(self):
            yield ClockProgress(1, 1)

        def check(self):
            return timing()

    (tmp_path / "checks").write_text("a file where the folder should be")
    own, job = worker(), ClockJob(lambda pair: Clock(), partial(keep_check, tmp_path))
    own.submit(job)
    until(lambda: job.progress.state.finished)
    assert job.progress.state is JobState.DONE and job.progress.check is not None
    assert "was not kept" in job.progress.error


def test_changed_and_missing_prompts_of_a_sweep_are_reported(tmp_path):
    toy_sweep(tmp_path / "s", 3, SHORT).finish()
    store = open_store(tmp_path / "s")
    assert store.prompts() == toy_prompts(3)
    path = tmp_path / "s" / "prompts.jsonl"
    path.write_text(path.read_text().replace("prompt 1", "prompt 7"))
    with pytest.raises(BadInput, match="is not what was swept"):
        store.prompts()
    path.unlink()
    with pytest.raises(BadInput, match="does not hold the prompts"):
        store.prompts()


def test_sweeps_are_listed_with_their_progress(tmp_path):
    assert list_sweeps(tmp_path / "none") == []
    toy_sweep(tmp_path / "whole", 2, SHORT).finish()
    next(iter(toy_sweep(tmp_path / "begun", 2, SHORT)))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "sweep.json").write_text("nonsense")
    (tmp_path / "other").mkdir()
    found = {entry.path.name: entry for entry in list_sweeps(tmp_path)}
    assert set(found) == {"whole", "begun", "broken"}
    assert found["whole"].complete and not found["begun"].complete
    assert "damaged" in found["broken"].error and found["broken"].plan is None
    assert list(found)[-1] == "broken"
