"""How the threads of a pass on the CPU wait for one another: spinning while they have the cores to themselves, asleep
while another process wants one. Knows clocks and OpenMP; knows no models.

A pass of a small model is hundreds of parallel regions, some microseconds each, and OpenMP's threads spin from one to
the next, since waking them takes longer than the arithmetic. Beside a busy process they spin for a thread that has no
core, and decoding takes five to twenty times as long; `benchmarks/threads.py` measures both. Whether the cores are
shared is told by the processor time that passes get.

GNU's OpenMP, which PyTorch comes with on Linux, hardly spins while more of its threads are alive than there are cores
(libgomp, config/linux/wait.h, `do_spin`). `IdleTeams` keeps that many alive. How many threads compute stays as it is,
and with it every bit of the results. With another OpenMP, as on macOS, threads wait as they do there.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Concatenate, ParamSpec, Protocol, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")

WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
"""Variables by which users say how threads wait. Where one is set, it stays so."""
COUNTS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables by which they say how many threads there are. Likewise."""
WINDOW = 0.02
"""Seconds of passes that are judged together. The system's own accounting moves by a few milliseconds."""
DENSE = 0.6
"""Share of a window that passes must fill; where they fill less, threads may have slept of their own accord."""
LACK = 0.5
"""Cores that the threads may lack on average before the cores count as shared. Alone they lack up to .2, beside one
busy process some .8."""
FIRST, LONGEST, LONGER = 0.1, 2.0, 4.0
"""Seconds asleep until spinning is tried again: at first, at most, and how many times as long after each vain try."""


class Contention:
    """Tells whether other processes want the cores that passes run on."""

    def __init__(self, threads: int) -> None:
        """`threads` compute; nothing was seen yet."""
        self._threads = threads
        self._start: tuple[float, float] | None = None  # of the window: wall clock and processor time, seconds
        self._passes = 0.0
        self._until: float | None = None  # when spinning is tried again
        self._hold = FIRST

    def after(self, began: float, ended: float, processor: Callable[[], float]) -> bool:
        """Should threads sleep in the passes to come, after one from `began` to `ended`, seconds?

        `processor` reads the processor time of all threads so far, seconds; it is asked once a window.
        """
        if self._until is not None and ended < self._until:
            return True
        self._until = None
        if self._start is None:
            self._start, self._passes = (ended, processor()), 0.0
            return False
        self._passes += ended - began
        if self._passes < WINDOW:
            return False
        wall = ended - self._start[0]
        lack = self._threads - (processor() - self._start[1]) / wall
        self._start = None
        if self._passes < DENSE * wall:
            return False
        if lack <= LACK:
            self._hold = FIRST
            return False
        self._until, self._hold = ended + self._hold, min(self._hold * LONGER, LONGEST)
        return True


class Sleep(Protocol):
    """Makes OpenMP's threads sleep while they wait."""

    def begin(self) -> None:
        """From now on."""
        ...

    def end(self) -> None:
        """Let them spin again."""
        ...


class IdleTeams:
    """Threads that each have a team of OpenMP's, and do nothing."""

    def __init__(self, threads: int, cores: int) -> None:
        """Teams of `threads`, as many as it takes to have more threads than `cores`."""
        self._size, self._count = threads, max(0, cores - threads) // (threads - 1) + 1
        self._released = Event()
        self._members: list[Thread] = []

    def begin(self) -> None:
        """Returns when the teams are there."""
        self._released = Event()
        for _ in range(self._count):
            ready = Event()
            member = Thread(
                target=_keep_a_team, args=(self._size, ready, self._released), name="idle-team", daemon=True
            )
            member.start()
            ready.wait()
            self._members.append(member)

    def end(self) -> None:
        """Returns when they are gone."""
        self._released.set()
        while self._members:
            self._members.pop().join()


def _keep_a_team(threads: int, ready: Event, released: Event) -> None:
    try:
        torch.zeros(threads << 17).exp_()  # large enough for each of the team to have a part
    finally:
        ready.set()
    released.wait()


class Threads:
    """The threads of this process' passes."""

    def __init__(self, contention: Contention, sleep: Sleep) -> None:
        self._contention, self._sleep = contention, sleep
        self._asleep = False
        self._lock = Lock()

    def passed(self, began: float) -> None:
        """Hear that a pass ended that began then, by `time.perf_counter`."""
        if not self._lock.acquire(blocking=False):  # somebody else's pass has just ended as well
            return
        try:
            asleep = self._contention.after(began, time.perf_counter(), time.process_time)
            if asleep != self._asleep:
                (self._sleep.begin if asleep else self._sleep.end)()
                self._asleep = asleep
        finally:
            self._lock.release()


@functools.cache
def _threads() -> Threads | None:
    """None where threads wait for nobody, or as the user has said."""
    count = torch.get_num_threads()
    if count < 2 or any(name in os.environ for name in WAITING):
        return None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or count
    return Threads(Contention(count), IdleTeams(count, cores))


@contextmanager
def sharing_cores() -> Iterator[None]:
    """A stretch of arithmetic on the CPU, whose threads wait as the other processes let them."""
    threads, began = _threads(), time.perf_counter()
    try:
        yield
    finally:
        if threads is not None:
            threads.passed(began)


class _OnDevice(Protocol):
    """A network."""

    device: torch.device


N = TypeVar("N", bound=_OnDevice)


def on_shared_cores(forward: Callable[Concatenate[N, P], R]) -> Callable[Concatenate[N, P], R]:
    """A network's pass, whose threads on the CPU wait as the other processes let them."""

    @functools.wraps(forward)
    def watched(network: N, /, *args: P.args, **named: P.kwargs) -> R:
        if network.device.type != "cpu":
            return forward(network, *args, **named)
        with sharing_cores():
            return forward(network, *args, **named)

    return watched


def fit_cores() -> None:
    """Compute with no more threads than this process may use cores, unless the user has said how many."""
    if any(name in os.environ for name in COUNTS):
        return
    torch.set_num_threads(min(torch.get_num_threads(), quota()))


def quota(limit: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Cores that a container may keep busy all the time, by its quota of processor time (cgroup v2), at least 1; more
    than there are where it has none."""
    try:
        most, period = limit.read_text("ascii").split()
        return max(1, int(most) // int(period))
    except (OSError, ValueError, ZeroDivisionError):  # no such file, or "max"
        return sys.maxsize
