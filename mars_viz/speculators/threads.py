"""How the threads of a pass on the CPU wait for one another: spinning on free cores, asleep if another process needs
one.

A pass of a small model is hundreds of parallel regions of a few microseconds, and OpenMP's threads spin between them,
because waking them takes longer than the arithmetic. With a busy process on the same cores they spin for a thread that
has no core, and decoding takes five to twenty times as long; `benchmarks/threads.py` measures both.

GNU's OpenMP, which PyTorch includes on Linux, hardly spins while more of its threads are alive than there are cores
(libgomp, config/linux/wait.h, `do_spin`). `IdleTeams` keeps that many alive. The number of computing threads is
unchanged, and so is every bit of the results. With another OpenMP, as on macOS, threads wait as usual.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")

WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")  # with which users control how threads wait; respected if one is set
COUNTS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # with which users set the number of threads; respected if one is set
WINDOW = 0.02  # seconds of passes judged together. The system's own accounting varies by a few milliseconds.
DENSE = 0.6  # share of a window that passes must fill; with less, threads may have slept voluntarily
LACK = 0.5
"""Missing cores, on average, above which cores count as shared. Alone, threads lack up to .2; else about .8."""
FIRST, LONGEST, LONGER = 0.1, 2.0, 4.0
"""Seconds of sleeping until spinning is tried again: first, longest, and the factor after each vain try."""


class Contention:
    """Detects whether other processes need the cores of the passes, by their processor time."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._start: tuple[float, float] | None = None  # of the window: wall clock and processor time, seconds
        self._passes = 0.0
        self._until: float | None = None  # when spinning is tried again
        self._hold = FIRST

    def after(self, began: float, ended: float, processor: Callable[[], float]) -> bool:
        """Return whether threads should sleep in the next passes, after one from `began` to `ended`, in seconds.
        `processor` returns the processor time of all threads so far, in seconds; it is called once per window."""
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


class IdleTeams:
    """Idle threads, each with an OpenMP team. While they exist, waiting threads of passes sleep instead of spinning."""

    def __init__(self, threads: int, cores: int) -> None:
        """Plan teams of `threads`, enough for more threads than `cores`."""
        self._size, self._count = threads, max(0, cores - threads) // (threads - 1) + 1
        self._released = Event()
        self._members: list[Thread] = []

    def begin(self) -> None:
        """Start the teams and return when they exist."""
        released = self._released = Event()

        def keep_a_team(ready: Event) -> None:
            try:
                torch.zeros(self._size << 17).exp_()  # large enough for each of the team to have a part
            finally:
                ready.set()
            released.wait()

        for _ in range(self._count):
            ready = Event()
            self._members.append(Thread(target=keep_a_team, args=(ready,), name="idle-team", daemon=True))
            self._members[-1].start()
            ready.wait()

    def end(self) -> None:
        """Stop the teams and return when they are gone."""
        self._released.set()
        while self._members:
            self._members.pop().join()


class Threads:
    """The threads of this process's passes."""

    def __init__(self, contention: Contention, sleep: IdleTeams) -> None:
        self._contention, self._sleep = contention, sleep
        self._asleep = False
        self._lock = Lock()

    def passed(self, began: float) -> None:
        """Record the end of a pass that began at this `time.perf_counter`."""
        if not self._lock.acquire(blocking=False):  # another thread's pass has just ended as well
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
    """Return None if there is one thread, or if the user controls waiting."""
    count = torch.get_num_threads()
    if count < 2 or any(name in os.environ for name in WAITING):
        return None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or count
    return Threads(Contention(count), IdleTeams(count, cores))


def on_shared_cores(forward: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Wrap a network's pass so that its threads on the CPU wait as other processes allow."""

    @functools.wraps(forward)
    def watched(network: Any, /, *args: P.args, **named: P.kwargs) -> R:
        if network.device.type != "cpu":
            return forward(network, *args, **named)
        threads, began = _threads(), time.perf_counter()
        try:
            return forward(network, *args, **named)
        finally:
            if threads is not None:
                threads.passed(began)

    return watched


def fit_cores() -> None:
    """Limit threads to the cores that this process may use, unless the user has set a number."""
    if not any(name in os.environ for name in COUNTS):
        torch.set_num_threads(min(torch.get_num_threads(), quota()))


def quota(limit: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Return the cores of a container's quota of processor time (cgroup v2), at least 1; huge without a quota."""
    try:
        most, period = limit.read_text("ascii").split()
        return max(1, int(most) // int(period))
    except (OSError, ValueError, ZeroDivisionError):  # no such file, or "max"
        return sys.maxsize
