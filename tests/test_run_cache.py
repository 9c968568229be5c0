from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from mars_viz.errors import BadInput
from mars_viz.ui.library import OBJECTS, RunCache, bytes_of
from tests.factories import toy_run

RUN = toy_run(max_new_tokens=20)


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


def test_failed_readings_are_not_kept():
    errors: list[Exception] = [BadInput("It is broken."), MemoryError("It is broken.")]

    def read(path):
        if errors:
            raise errors.pop()
        return RUN

    cache = RunCache(read)
    for kind in (MemoryError, BadInput):
        with pytest.raises(kind, match="It is broken"):
            cache.opened(Path("a"), 1)
    assert cache.opened(Path("a"), 1) is RUN and len(cache) == 1


def test_what_a_run_takes():
    def arrays(run):
        return sum(array.nbytes for r in run.rounds for array in r.speculation.columns.values())

    assert bytes_of(RUN) - OBJECTS * len(RUN.rounds) == pytest.approx(arrays(RUN), rel=0.2)
    assert bytes_of(replace(RUN, rounds=())) == 0


@pytest.mark.parametrize(
    ("budget", "most", "asked", "read", "left"),
    [
        (3, 99, "aaa", "a", 1),
        (3, 99, "abcada", "abcd", 3),
        (3, 99, "abcadab", "abcdb", 3),
        (0.1, 99, "aaba", "aba", 1),  # one that is too large stays alone
        (99, 4, "abcdefghij", "abcdefghij", 4),
    ],
)
def test_runs_are_read_once_and_the_oldest_evicted(budget, most, asked, read, left):
    names: list[str] = []
    cache = RunCache(lambda path: names.append(path.name) or replace(RUN), int(budget * bytes_of(RUN)), most)
    for name in asked:
        assert cache.opened(Path(name), 1) is cache.opened(Path(name), 1)
    assert "".join(names) == read and len(cache) == left
    held = cache.opened(Path(asked[-1]), 1)
    for name in "vwxyz":
        cache.opened(Path(name), 1)
    assert cache.opened(Path(asked[-1]), 1) is held  # evicted, but still in use
    assert cache.opened(Path(asked[-1]), 2) is not held  # the file changed
