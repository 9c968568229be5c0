"""Sweeps as jobs: short jobs go first, what is finished stays, and every tab finds what is under way."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sweep_cases import SHORT, timing, toy_prompts, toy_sweep

from mars_viz.errors import BadInput
from mars_viz.sweep import load_sweep
from mars_viz.sweep.plan import comparable
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


def test_short_jobs_go_between_the_steps_of_a_long_one_and_long_ones_wait_for_its_end():
    log: list[str] = []
    allowed, own = threading.Semaphore(1), worker()
    first, second = Counting("a", log, 4, allowed), Counting("b", log, 2)
    short = Short(log)
    own.submit(first)
    until(lambda: log == ["a"])
    own.submit(second)
    own.submit(short)
    allowed.release(10)
    until(lambda: second.progress.state is JobState.DONE)
    assert first.progress.state is short.progress.state is JobState.DONE
    assert log.index("short") <= 2 and [name for name in log if name != "short"] == ["a"] * 4 + ["b"] * 2


def test_cancelling_a_long_job_stops_it_after_the_step_and_lets_go_of_what_it_holds():
    log: list[str] = []
    allowed, own = threading.Semaphore(1), worker()
    job = Counting("a", log, 4, allowed)
    own.submit(job)
    until(lambda: log == ["a"])
    job.cancel()
    allowed.release(10)
    until(lambda: job.progress.state is JobState.CANCELLED)
    assert len(log) <= 2 and job.closed


def test_a_fault_in_a_step_is_a_sentence_and_the_next_job_runs(caplog):
    log: list[str] = []

    class Failing(Counting):
        def steps(self, models: Models[Any]) -> Iterator[None]:
            yield
            raise ZeroDivisionError("secret detail")

    own = worker()
    job, short = Failing("a", log, 1), Short(log)
    own.submit(job)
    own.submit(short)
    until(lambda: job.progress.state.finished and short.progress.state.finished)
    assert (job.progress.state, job.progress.error, log) == (JobState.FAILED, FAULT, ["short"])


def test_a_sweep_job_tells_how_far_it_is_and_one_that_was_stopped_goes_on(tmp_path):
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


def test_a_second_asker_finds_the_job_that_is_under_way(tmp_path):
    own, allowed = worker(), threading.Semaphore(0)
    own.submit(Counting("a", [], 1, allowed))  # keeps the worker busy
    job = SweepJob(tmp_path / "x", lambda pair: toy_sweep(tmp_path / "x", 2, SHORT), "toys")
    other = SweepJob(tmp_path / "x", lambda pair: pytest.fail("begun twice"), "toys")
    assert own.begin(job, *job.labels) is job and own.begin(other, *other.labels) is job
    allowed.release()
    until(lambda: job.progress.state is JobState.DONE)


def test_a_sweep_that_cannot_begin_says_why(tmp_path):
    def make(pair: object) -> Any:
        raise BadInput("The prompt is too long; shorten it.")

    own, job = worker(), SweepJob(tmp_path / "x", make, "toys")
    own.submit(job)
    until(lambda: job.progress.state.finished)
    assert (job.progress.state, job.progress.error) == (JobState.FAILED, "The prompt is too long; shorten it.")


def test_a_check_that_cannot_be_kept_is_told_all_the_same(tmp_path):
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


def test_a_sweeps_folder_holds_its_prompts_and_says_when_they_are_others(tmp_path):
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


def test_sweeps_are_listed_with_how_far_they_are(tmp_path):
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


def test_sweeps_of_other_rules_can_be_compared_and_those_of_other_prompts_cannot(tmp_path: Path):
    plans = [
        open_store(toy_sweep(tmp_path / name, count, settings).folder).plan
        for name, count, settings in (
            ("a", 2, SHORT),
            ("b", 2, replace(SHORT, rule="mars-margin")),
            ("c", 3, SHORT),
            ("d", 2, replace(SHORT, temperature=0.5)),
        )
    ]
    assert [comparable(plans[0], other) for other in plans] == [True, True, False, False]
