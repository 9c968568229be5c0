"""A worker of a sweep on Ray: models of its own, and the prompts that it is given, mapped as a sweep of one process
maps them.

Knows backends and mappers; knows no Ray: `ray_pool` calls it from another process, perhaps on another machine.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from mars_viz.chat import History
from mars_viz.costs import Costs
from mars_viz.errors import BadInput, DeviceLost
from mars_viz.prompts import PromptItem
from mars_viz.run import Provenance, Settings
from mars_viz.sweep.mapper import LocalMapper, MappedPrompt
from mars_viz.sweep.plan import Plan
from mars_viz.sweep.sweep import measured

if TYPE_CHECKING:
    from mars_viz.speculators.backend import Backend


class ModelSource(Protocol):
    """Makes models, in the process that is to hold them."""

    def backend(self) -> Backend:
        """Them. Raises BadInput where they cannot be had."""
        ...


@dataclass(frozen=True, slots=True)
class NamedModels:
    """What a user named; every worker loads it for itself."""

    target: str | None = None
    """Hub id, folder or server's address; None for the built-in one."""
    drafter: str | None = None
    """Hub id, folder or settings; None for what `drafter_for` says."""
    device: str = "auto"
    """As `load_backend` takes it."""
    dtype: str = "auto"
    """Likewise."""
    cuda_graphs: bool = True
    """Likewise."""
    device_map: str | None = None
    """Likewise."""
    threads: int = 1
    """That compute on the CPU. Threads of several workers that wait for one another by spinning starve each other."""
    folder: str = ""
    """That names of folders start from, where this machine has it."""

    def backend(self) -> Backend:
        """Loaded models. Raises BadInput where they cannot be had."""
        with suppress(OSError):
            os.chdir(self.folder or ".")
        os.environ["OMP_NUM_THREADS"] = str(self.threads)  # read when torch is first imported
        from mars_viz.speculators.loading import load_backend

        how = {"device": self.device, "dtype": self.dtype, "cuda_graphs": self.cuda_graphs}
        how["device_map"] = self.device_map
        return load_backend(self.target, self.drafter, **how)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a worker cannot do what it was asked."""

    sentence: str
    """With the remedy, as BadInput says it: an exception of another process comes with its traceback for a message."""


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """What is known of a worker that has loaded its models."""

    provenance: Provenance
    """Its models, device, dtype and versions."""
    batch: int
    """Prompts that it maps at once unless told otherwise."""
    machine: str
    """Its machine's name."""
    process: int
    """Its number there."""


@dataclass(frozen=True, slots=True)
class PromptTask:
    """A prompt to be mapped."""

    index: int
    """Its place in the set."""
    item: PromptItem
    """As it stands there."""
    history: History
    """The turns before it."""


class SweepWorker:
    """Lives in a process of its own. Its methods are called one after the other."""

    def __init__(self, models: ModelSource) -> None:
        self._models = models
        self._waiting: deque[PromptTask] = deque()

    def load(self, settings: Settings) -> WorkerFacts | Refusal:
        """Load the models, which must be able to decode by these settings."""
        try:
            self._backend = self._models.backend()
            self._backend.check(settings)
        except BadInput as error:
            return Refusal(str(error))
        return WorkerFacts(self._backend.provenance(), self._backend.batch, socket.gethostname(), os.getpid())

    def measured(self, settings: Settings) -> Costs | None:
        """What passes cost here; None where the machine is too busy."""
        return measured(self._backend, settings)

    def objections(self, plan: Plan, items: Sequence[PromptItem]) -> list[str]:
        """Why each of these prompts cannot be decoded even by itself; empty where it can."""
        return LocalMapper(self._backend, plan).objections(items)

    def begin(self, plan: Plan, batch: int) -> None:
        """Map by this plan from now on, so many prompts at once."""
        self._mapper = LocalMapper(self._backend, plan, batch=batch)
        self._waiting.clear()

    def work(self, tasks: Sequence[PromptTask]) -> list[MappedPrompt] | Refusal:
        """Take these on besides, and map until something is done, which is returned: nothing where there is nothing.

        A process whose device is lost ends, and Ray tells.
        """
        self._waiting.extend(tasks)
        try:
            while True:
                while self._waiting and self._mapper.room > 0:
                    task = self._waiting.popleft()
                    self._mapper.begin(task.index, task.item, task.history)
                if (found := self._mapper.advance()) or not (self._waiting or self._mapper.busy):
                    return found
        except DeviceLost:
            os._exit(1)
        except BadInput as error:
            return Refusal(str(error))
