"""Recorded runs in the server's memory: each is read once for all tabs, and all that are kept here take no more than so
much together. A run that was let go but that somebody still holds is not read again.

Knows runs and how many bytes they take; how one is read is an argument. Knows no Streamlit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakValueDictionary

from mars_viz.run import Run

BUDGET = 256 << 20
"""Bytes of all runs together; the one that was asked for last stays in any case. Two runs of 100,000 tokens fit. A run
with a map that was looked at takes up to twice what `bytes_of` says, since its segments are walked then."""
MOST = 32
"""Runs; more than the lanes of Compare, or each rerun would read them all anew."""
OBJECTS = 3000
"""Bytes that a round takes besides its arrays, about: some thirty Python objects."""


@dataclass(frozen=True, slots=True)
class _Version:
    path: Path
    changed: int


class RunCache:
    """The runs that were asked for last."""

    def __init__(self, read: Callable[[Path], Run], budget: int = BUDGET, most: int = MOST) -> None:
        """Nothing is read yet."""
        self._read, self._budget, self._most = read, budget, most
        self._lock = threading.Lock()
        self._reading: dict[_Version, Future[Run]] = {}
        self._sizes: dict[_Version, int] = {}
        self._alive: WeakValueDictionary[_Version, Run] = WeakValueDictionary()

    def opened(self, path: Path, changed: int) -> Run:
        """The run in that folder; one with another `changed` is read anew. Several that ask at once wait for one
        reading. Raises what reading raises, and then keeps nothing."""
        version = _Version(path, changed)
        with self._lock:
            future = self._reading.pop(version, None)
            is_new = future is None
            future = future or Future()
            self._reading[version] = future  # at the end: it was asked for last
        if is_new:
            self._fill(version, future)
        return future.result()

    def __len__(self) -> int:
        """How many are kept."""
        return len(self._reading)

    def _fill(self, version: _Version, future: Future[Run]) -> None:
        try:
            run = self._alive.get(version) or self._read(version.path)
            size = bytes_of(run)
        except BaseException as error:  # who waits for it hears the same
            with self._lock:
                self._reading.pop(version, None)
            future.set_exception(error)
            return
        future.set_result(run)
        with self._lock:
            self._alive[version] = run
            self._sizes[version] = size
            self._make_room()

    def _make_room(self) -> None:
        """Forget what was asked for longest ago, until the rest fits."""
        for version in list(self._reading)[:-1]:
            if len(self._reading) <= self._most and sum(self._sizes.values()) <= self._budget:
                return
            if version in self._sizes:  # else it is still being read
                del self._reading[version], self._sizes[version]


def bytes_of(run: Run) -> int:
    """What a run takes in memory, its map included, about: the arrays of a block of it stand for those of all."""
    answers = [] if run.dial_map is None else [answer.speculation for answer in run.dial_map.answers.values()]
    count = len(run.rounds) + len(answers)
    if not count:
        return 0
    first = run.rounds[0].speculation if run.rounds else answers[0]
    a_row = sum(array.nbytes for array in first.columns.values())
    rows = int((run.trace.lengths + 1).sum()) + sum(len(one) + 1 for one in answers)
    return round(a_row / (len(first) + 1) * rows) + OBJECTS * count
