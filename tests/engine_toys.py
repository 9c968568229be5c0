"""Jobs and models that the process of a `ModelProcess` can import: what they hold travels by name."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from mars_viz.backend_choice import BackendChoice
from mars_viz.errors import BadInput, DeviceLost
from mars_viz.run import Settings
from mars_viz.ui.jobs.models import TURN, Device, Events, Job, Models, Progress, Rank, Tell
from tests.factories import ToyRecorder, toy_run


def toys() -> Models[str]:
    """Models that are names."""
    return Models(load, lambda pair: Device("a toy", "float32", used=len(pair)))


def blind() -> Models[str]:
    """Models on a device that can be asked once."""
    left = [Device("a toy", "float32")]
    return Models(load, lambda pair: left.pop())


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


def look(target: str = "", *, worse: str = "") -> Job[Seen]:
    """A job that says where it runs, and with what."""
    return Job(Seen(), partial(_look, worse), BackendChoice(target))


def _look(worse: str, pair: Any) -> Events:
    found = tuple(name for name in ("streamlit", "torch", "pytest") if name in sys.modules)
    expendable = int(Path("/proc/self/oom_score_adj").read_text())
    yield {"pid": os.getpid(), "libraries": found, "what": pair}
    yield {"nice": os.nice(0), "expendable": expendable}
    match worse:
        case "device":
            raise DeviceLost("The device does not answer any more (toy). Try again.")
        case "fault":
            raise ZeroDivisionError
        case "unsayable":
            yield {"what": [toy_run().rounds, lambda: None]}
    return None


def wait() -> Job[Seen]:
    """A job that counts until it is stopped."""
    return Job(Seen(), _wait)


def _wait(pair: Any) -> Events:
    for steps in count(1):
        yield {"pid": os.getpid(), "steps": steps}
        time.sleep(0.005)
    return None


def steps() -> Job[Seen]:
    """A long job of three steps, which holds what cannot travel in between."""
    return Job(Seen(), _steps, BackendChoice("long"), Rank.LONG)


def _steps(pair: Any) -> Events:
    for step in range(1, 4):
        time.sleep(TURN)
        yield {"pid": os.getpid(), "steps": step, "what": pair}
    return None


class Held(ToyRecorder):
    """A recorder that makes two rounds and then waits for ever."""

    def before(self) -> None:
        if self.made == 2:
            time.sleep(600)


def held(pair: Any, prompt: str, settings: Settings) -> Held:
    return Held(toy_run(max_new_tokens=60), prompt)
