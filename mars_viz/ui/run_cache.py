"""Memory cache of recorded runs for all tabs, with a limit on their total size. A run that was evicted but is still
referenced is not read again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakValueDictionary

from mars_viz.run import Run

BUDGET = 256 << 20
"""Maximum size in bytes of all runs together. The last requested run always stays. Two runs of 100,000 tokens fit. A
viewed run with a map takes up to twice the size that `bytes_of` returns, because its segments are walked then."""
MOST = 32  # Maximum number of runs. Must exceed the number of runs on Compare, or each rerun would read them all again.
OBJECTS = 3000  # approximate bytes per round in addition to its arrays, for about thirty Python objects


@dataclass(frozen=True, slots=True)
class _Version:
    path: Path
    changed: int


class RunCache:
    """Least recently used cache of runs."""

    def __init__(self, read: Callable[[Path], Run], budget: int = BUDGET, most: int = MOST) -> None:
        self._read, self._budget, self._most = read, budget, most
        self._lock = threading.Lock()
        self._reading: dict[_Version, Future[Run]] = {}
        self._sizes: dict[_Version, int] = {}
        self._alive: WeakValueDictionary[_Version, Run] = WeakValueDictionary()

    def opened(self, path: Path, changed: int) -> Run:
        """Return the run in that folder; a different `changed` reads it again. Concurrent requests share one reading.
        Raises its errors, which are not cached."""
        version = _Version(path, changed)
        with self._lock:
            future = self._reading.pop(version, None)
            is_new = future is None
            future = future or Future()
            self._reading[version] = future  # moves it to the end of the order
        if is_new:
            self._fill(version, future)
        return future.result()

    def __len__(self) -> int:
        return len(self._reading)

    def _fill(self, version: _Version, future: Future[Run]) -> None:
        try:
            run = self._alive.get(version) or self._read(version.path)
            size = bytes_of(run)
        except BaseException as error:  # waiting threads get the same error
            with self._lock:
                self._reading.pop(version, None)
            future.set_exception(error)
            return
        future.set_result(run)
        with self._lock:
            self._alive[version] = run
            self._sizes[version] = size
            self._evict()

    def _evict(self) -> None:
        for version in list(self._reading)[:-1]:
            if len(self._reading) <= self._most and sum(self._sizes.values()) <= self._budget:
                return
            if version in self._sizes:  # otherwise it is still being read
                del self._reading[version], self._sizes[version]


def bytes_of(run: Run) -> int:
    """Estimate the memory of a run with its map, by the arrays of one block."""
    answers = [] if run.dial_map is None else [answer.speculation for answer in run.dial_map.answers.values()]
    count = len(run.rounds) + len(answers)
    if not count:
        return 0
    first = run.rounds[0].speculation if run.rounds else answers[0]
    a_row = sum(array.nbytes for array in first.columns.values())
    rows = int((run.trace.lengths + 1).sum()) + sum(len(one) + 1 for one in answers)
    return round(a_row / (len(first) + 1) * rows) + OBJECTS * count
