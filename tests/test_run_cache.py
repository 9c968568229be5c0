"""Runs in the server's memory: read once, whoever asks, and no more of them than fit."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from mars_viz.errors import BadInput
from mars_viz.run import Run
from mars_viz.ui.library import OBJECTS, RunCache, bytes_of
from tests.factories import toy_run

RUN = toy_run(max_new_tokens=20)


def reading(told: list[str], run: Run = RUN) -> RunCache:
    """Room for three runs of that size, each read as an object of its own."""
    return RunCache(lambda path: told.append(path.name) or replace(run), budget=3 * bytes_of(run))


def test_several_that_ask_at_once_wait_for_one_reading():
    told, all_there = [], threading.Barrier(5)

    def slow(path):
        told.append(path)
        gate.wait(30)
        return RUN

    gate, cache = threading.Event(), RunCache(slow)
    with ThreadPoolExecutor(5) as pool:
        asked = [pool.submit(lambda: (all_there.wait(30), cache.opened(Path("a"), 1))[1]) for _ in range(5)]
        gate.set()
        assert all(one.result(30) is RUN for one in asked)
    assert len(told) == 1


def test_what_cannot_be_read_is_not_kept_and_may_be_mended():
    broken = [True]

    def read(path):
        if broken:
            raise BadInput("It is broken.")
        return RUN

    cache = RunCache(read)
    for _ in range(2):
        with pytest.raises(BadInput, match="It is broken"):
            cache.opened(Path("a"), 1)
    broken.clear()
    assert cache.opened(Path("a"), 1) is RUN and len(cache) == 1


def test_what_a_run_takes():
    def arrays(run):
        return sum(array.nbytes for r in run.rounds for array in r.speculation.columns.values())

    assert bytes_of(RUN) - OBJECTS * len(RUN.rounds) == pytest.approx(arrays(RUN), rel=0.2)
    assert bytes_of(replace(RUN, rounds=())) == 0


def test_it_opens_reads_and_evicts():
    told: list[str] = []
    cache = reading(told)
    assert cache.opened(Path("a"), 1) is cache.opened(Path("a"), 1)
    cache.opened(Path("a"), 2)  # the file changed
    assert told == ["a", "a"]
    told.clear()
    cache = reading(told)
    for name in "abcada":
        cache.opened(Path(name), 1)
    assert told == ["a", "b", "c", "d"] and len(cache) == 3
    cache.opened(Path("b"), 1)
    assert told == ["a", "b", "c", "d", "b"] and len(cache) == 3
    held = cache.opened(Path("a"), 1)
    for name in "efgh":
        cache.opened(Path(name), 1)
    told.clear()
    assert cache.opened(Path("a"), 1) is held and told == []  # somebody still holds it


def test_one_that_is_too_large_stays_alone_and_numbers_are_bounded():
    told: list[str] = []
    cache = RunCache(lambda path: told.append(path.name) or replace(RUN), budget=1)
    for name in "aaba":
        cache.opened(Path(name), 1)
        assert len(cache) == 1
    assert told == ["a", "b", "a"]
    cache = RunCache(lambda path: RUN, most=4)
    for index in range(10):
        cache.opened(Path(str(index)), 1)
    assert len(cache) == 4
