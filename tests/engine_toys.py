"""Jobs and models that the process of a `ModelProcess` can import: what they hold travels by name."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mars_viz.backend_choice import BackendChoice
from mars_viz.errors import BadInput, DeviceLost
from mars_viz.run import Settings
from mars_viz.ui.jobs.models import Device, Job, JobState, Models, Progress, Rank, Tell
from tests.factories import ToyRecorder, toy_run


def toys() -> Models[str]:
    """Models that are names."""
    return Models(load, lambda pair: Device("a toy", "float32", used=len(pair)), prepare=prepare)


def blind() -> Models[str]:
    """Models on a device that can be asked once."""
    left = [Device("a toy", "float32")]
    return Models(load, lambda pair: left.pop())


prepared: list[str] = []
"""What was prepared in this process."""


def prepare(tell: Tell) -> None:
    tell("Unpacking", 0.0)
    prepared.append("toys")
    raise RuntimeError("One of them is broken.")  # a fault, which must not end the process either


def load(choice: BackendChoice, tell: Tell) -> str:
    tell("Looking for it", 0.5)
    if choice.target == "missing":
        raise BadInput("There is no such toy; take another.")
    return f"toy {choice.target}"


@dataclass(frozen=True, slots=True)
class Seen(Progress):
    """What the other process has to say."""

    pid: int = 0
    steps: int = 0
    libraries: tuple[str, ...] = ()
    nice: int = 0
    expendable: int = 0
    what: Any = None
    prepared: int = 0


class Look(Job[Seen]):
    """Says where it is done, and with what."""

    def __init__(self, target: str = "", *, worse: str = "") -> None:
        super().__init__(Seen(JobState.QUEUED))
        self.target, self.worse = target, worse
        self.unread: Any = None

    def work(self, models: Models[Any]) -> None:
        pair = models.pair(BackendChoice(self.target))
        found = tuple(name for name in ("streamlit", "torch", "pytest") if name in sys.modules)
        expendable = int(Path("/proc/self/oom_score_adj").read_text())
        self.tell(state=JobState.DECODING, pid=os.getpid(), libraries=found, what=pair)
        self.tell(nice=os.nice(0), expendable=expendable, prepared=len(prepared))
        match self.worse:
            case "dies":
                os._exit(3)
            case "device":
                raise DeviceLost("The device does not answer any more (toy). Try again.")
            case "fault":
                raise ZeroDivisionError
            case "dies at its end":
                self.tell(state=JobState.DONE)
                os._exit(4)
            case "unsayable":
                self.tell(what=[toy_run().rounds, lambda: None])
        self.tell(state=JobState.DONE)


class Wait(Job[Seen]):  # counts until it is stopped
    def __init__(self) -> None:
        super().__init__(Seen(JobState.QUEUED))

    def work(self, models: Models[Any]) -> None:
        steps = 0
        while not self.stopping:
            steps += 1
            self.tell(state=JobState.DECODING, pid=os.getpid(), steps=steps)
            time.sleep(0.005)
        self.tell(state=JobState.CANCELLED)


class Steps(Job[Seen]):  # takes three steps, and holds what cannot travel in between
    rank = Rank.LONG

    def __init__(self) -> None:
        super().__init__(Seen(JobState.QUEUED))

    def work(self, models: Models[Any]) -> Iterator[None]:
        held = models.pair(BackendChoice("long"), holder=self)
        for step in range(1, 4):
            time.sleep(0.05)
            self.tell(state=JobState.DECODING, pid=os.getpid(), steps=step, what=held)
            yield


class Held(ToyRecorder):
    """A recorder that makes two rounds and then waits for ever."""

    def before(self) -> None:
        if self.made == 2:
            time.sleep(600)


def held(pair: Any, prompt: str, settings: Settings) -> Held:
    return Held(toy_run(max_new_tokens=60), prompt)
