"""How threads of a pass wait: told from constructed clocks, and with real OpenMP in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

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

    def passes(self, seconds: float, got: float, between: float = 0.0) -> None:
        end = self.wall + seconds
        while self.wall < end:
            self.wall += between
            began, before = self.wall, self.asleep
            self.wall += PASS
            self.processor += PASS * got
            self.asleep = self.contention.after(began, self.wall, lambda: self.processor)
            self.tries += before and not self.asleep


def test_threads_spin_while_passes_get_all_cores():
    machine = Machine()
    machine.passes(10, got=1.85)  # what the system's accounting makes of 2
    assert not machine.asleep and machine.tries == 0


def test_threads_sleep_once_passes_lack_a_core_and_spin_again_when_it_is_free():
    machine = Machine()
    machine.passes(3 * WINDOW, got=1.15)
    assert machine.asleep
    machine.passes(20, got=1.0)
    assert machine.asleep or machine.tries  # asleep but for short tries
    machine.passes(LONGEST + 3 * WINDOW, got=1.97)
    assert not machine.asleep
    machine.passes(5, got=1.97)
    assert not machine.asleep


def test_vain_tries_become_rare_and_what_was_learnt_is_forgotten_on_free_cores():
    machine = Machine()
    machine.passes(100 * LONGEST, got=1.1)
    assert 90 <= machine.tries <= 105  # the first few come sooner
    machine.passes(LONGEST + 10 * WINDOW, got=1.97)
    machine.passes(3 * WINDOW, got=1.1)
    assert machine.asleep
    machine.passes(FIRST + WINDOW, got=1.97)
    machine.passes(3 * WINDOW, got=1.97)
    assert not machine.asleep


def test_time_between_passes_says_nothing():
    machine = Machine()
    machine.passes(5, got=1.0, between=PASS)  # one thread at work half of the time, in passes of two
    assert not machine.asleep


class Sleep:
    """Keeps count of being told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def begin(self) -> None:
        self.told.append("begin")

    def end(self) -> None:
        self.told.append("end")


class Decided:
    """Says what it is given, one after the other."""

    def __init__(self, *answers: bool) -> None:
        self._answers = iter(answers)

    def after(self, began, ended, processor) -> bool:
        return next(self._answers)


def test_threads_are_told_only_when_it_changes():
    sleep = Sleep()
    watched = Threads(Decided(False, True, True, False, False), sleep)
    for _ in range(5):
        watched.passed(0.0)
    assert sleep.told == ["begin", "end"]


class Passes:
    """A network whose passes return what they are given."""

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)

    @on_shared_cores
    def score(self, tokens: str, *, rows: int) -> str:
        return tokens * rows


def test_only_passes_on_the_cpu_are_watched(monkeypatch):
    sleep = Sleep()
    monkeypatch.setattr(threads, "_threads", lambda: Threads(Decided(True), sleep))
    assert Passes("meta").score("a", rows=2) == "aa" and sleep.told == []
    assert Passes("cpu").score("a", rows=3) == "aaa" and sleep.told == ["begin"]


PROGRAM = """
    import os, statistics, time, torch
    from mars_viz.speculators import threads

    def of_this_process():
        return set(map(int, os.listdir("/proc/self/task")))

    def sleeps(thread):
        with open(f"/proc/self/task/{thread}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "S"

    def processor():
        # seconds that the others of the team have computed and spun, by the clocks of their threads
        return sum(time.clock_gettime(~thread << 3 | 6) for thread in team)

    def taken():
        # of them, in milliseconds, by a product and by waiting for another one until they sleep
        each = []
        for _ in range(25):
            before = processor()
            torch.mm(left, right)
            while not all(map(sleeps, team)):
                time.sleep(0.001)
            each.append(1000 * (processor() - before))
        return statistics.median(each)

    alone = of_this_process()
    left, right = torch.ones(8, 512), torch.ones(512, 2048)
    torch.mm(left, right)
    whole = of_this_process()
    team = whole - alone
    count = torch.get_num_threads()
    assert len(team) == count - 1 and threads._threads() is not None
    teams = threads.IdleTeams(count, len(os.sched_getaffinity(0)))
    spinning = [taken()]
    teams.begin()
    assert torch.get_num_threads() == count
    asleep = taken()
    teams.end()
    while of_this_process() != whole:
        time.sleep(0.001)
    spinning.append(taken())
    print(*spinning, asleep)
"""


def in_process(program: str, **environment: str) -> str:
    clean = {name: text for name, text in os.environ.items() if name not in threads.WAITING + threads.COUNTS}
    command = [sys.executable, "-c", textwrap.dedent(program)]
    run = subprocess.run(command, env=clean | environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="one core: nobody spins"
)
def test_idle_teams_make_gnu_openmp_sleep_and_let_it_spin_again():
    """How often a thread looks before it sleeps is a number of libgomp's: it takes so much processor time, 3.4 ms or
    hardly any, whatever else runs meanwhile."""
    before, after, asleep = map(float, in_process(PROGRAM).split())
    assert 3 * asleep < min(before, after), (before, asleep, after)


ASKED = "from mars_viz.speculators import threads; print(threads._threads())"


@pytest.mark.parametrize("variable", [{"OMP_WAIT_POLICY": "active"}, {"GOMP_SPINCOUNT": "7"}, {"OMP_NUM_THREADS": "1"}])
def test_what_users_have_set_about_waiting_stays_and_one_thread_waits_for_nobody(variable):
    assert in_process(ASKED, **variable).strip() == "None"


FITTED = """
    import torch
    from mars_viz.speculators import threads
    threads.quota = lambda: 1
    threads.fit_cores()
    print(torch.get_num_threads())
"""


def test_a_containers_quota_bounds_the_threads_but_not_those_that_users_asked_for():
    assert in_process(FITTED).strip() == "1"
    assert in_process(FITTED, OMP_NUM_THREADS="2").strip() == "2"


@pytest.mark.parametrize(
    ("text", "cores"),
    [("200000 100000\n", 2), ("150000 100000", 1), ("50000 100000", 1), ("max 100000", sys.maxsize), ("", sys.maxsize)],
)
def test_a_quota_is_read_as_whole_cores(text, cores, tmp_path):
    (tmp_path / "cpu.max").write_text(text)
    assert quota(tmp_path / "cpu.max") == cores
    assert quota(tmp_path / "none") == sys.maxsize
