"""How threads of a pass wait, from constructed clocks, and what users set; benchmarks/threads.py measures it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from unittest.mock import Mock, call

import pytest
import torch

from mars_viz.speculators import threads
from mars_viz.speculators.threads import FIRST, LONGEST, WINDOW, Contention, Threads, on_shared_cores, quota

PASS = WINDOW / 4


class Machine:
    """Clocks of a machine on which two threads get `got` cores, pass after pass."""

    def __init__(self) -> None:
        self.contention = Contention(2)
        self.wall = self.processor = 100.0
        self.asleep = False
        self.tries = 0

    def passes(self, seconds: float, got: float, between: float = 0.0) -> bool:
        end = self.wall + seconds
        while self.wall < end:
            self.wall += between
            began, before = self.wall, self.asleep
            self.wall += PASS
            self.processor += PASS * got
            self.asleep = self.contention.after(began, self.wall, lambda: self.processor)
            self.tries += before and not self.asleep
        return self.asleep


def test_threads_spin_on_free_cores_sleep_once_one_is_lacking_and_try_ever_less_often() -> None:
    idle_between = Machine()
    assert not idle_between.passes(5, got=1.0, between=PASS)
    machine = Machine()
    assert not machine.passes(10, got=1.85) and machine.tries == 0  # the system's accounting of 2
    assert machine.passes(3 * WINDOW, got=1.15)
    assert machine.passes(20, got=1.0) or machine.tries  # asleep but for short tries
    assert not machine.passes(LONGEST + 3 * WINDOW, got=1.97)
    machine = Machine()
    machine.passes(100 * LONGEST, got=1.1)
    assert 90 <= machine.tries <= 105  # the first few are sooner
    machine.passes(LONGEST + 10 * WINDOW, got=1.97)
    assert machine.passes(3 * WINDOW, got=1.1)
    machine.passes(FIRST + WINDOW, got=1.97)  # vain tries are forgotten
    assert not machine.passes(3 * WINDOW, got=1.97)


class Passes:
    """A network whose passes return their argument."""

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)

    @on_shared_cores
    def score(self, tokens: str, *, rows: int) -> str:
        return tokens * rows


def test_threads_change_after_passes_on_the_cpu_only(monkeypatch: pytest.MonkeyPatch) -> None:
    sleep, decided = Mock(), Mock(**{"after.side_effect": [False, True, True, False, False, True]})
    watched = Threads(decided, sleep)
    for _ in range(5):
        watched.passed(0.0)
    assert sleep.method_calls == [call.begin(), call.end()]
    sleep.reset_mock()
    monkeypatch.setattr(threads, "_threads", lambda: watched)
    assert Passes("meta").score("a", rows=2) == "aa" and sleep.method_calls == []
    assert Passes("cpu").score("a", rows=3) == "aaa" and sleep.method_calls == [call.begin()]


def in_process(program: str, **environment: str) -> list[str]:
    clean = {name: text for name, text in os.environ.items() if name not in threads.WAITING + threads.COUNTS}
    command = [sys.executable, "-c", textwrap.dedent(program)]
    run = subprocess.run(command, env=clean | environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


LIMITS = """
    import torch
    from mars_viz.speculators import threads
    watched = threads._threads()
    threads.quota = lambda: 1
    threads.fit_cores()
    print(watched, torch.get_num_threads())
"""


def test_settings_of_users_go_before_watching_and_before_a_containers_quota() -> None:
    assert in_process(LIMITS, GOMP_SPINCOUNT="7", OMP_NUM_THREADS="2") == ["None", "2"]


def test_a_quota_is_read_as_whole_cores(tmp_path) -> None:
    most = sys.maxsize
    for text, cores in (("200000 100000\n", 2), ("150000 100000", 1), ("50000 100000", 1), ("max 9", most), ("", most)):
        (tmp_path / "cpu.max").write_text(text)
        assert quota(tmp_path / "cpu.max") == cores
    assert quota(tmp_path / "none") == most
