"""A worker of a sweep on Ray, with its own models; it maps prompts as a sweep of one process does.

Does not use Ray: `ray_pool` calls it from another process, perhaps on another machine.
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
    """Loads models in the process that uses them."""

    def backend(self) -> Backend:
        """Return the models. Raises BadInput if they are not available."""
        ...


@dataclass(frozen=True, slots=True)
class NamedModels:
    """Models by name; every worker loads them separately."""

    target: str | None = None
    """Hub id, folder or server's address; None for the built-in one."""
    drafter: str | None = None
    """Hub id, folder or settings; None for the default of `drafter_for`."""
    device: str = "auto"
    """As in `load_backend`."""
    dtype: str = "auto"
    """As in `load_backend`."""
    cuda_graphs: bool = True
    """As in `load_backend`."""
    device_map: str | None = None
    """As in `load_backend`."""
    threads: int = 1
    """Threads for computing on the CPU. Several workers with spinning threads would starve each other."""
    folder: str = ""
    """Base of relative folder names, if the machine has it."""

    def backend(self) -> Backend:
        """Return loaded models. Raises BadInput if they are not available."""
        with suppress(OSError):
            os.chdir(self.folder or ".")
        os.environ["OMP_NUM_THREADS"] = str(self.threads)  # read when torch is first imported
        from mars_viz.speculators.loading import load_backend

        how = {"device": self.device, "dtype": self.dtype, "cuda_graphs": self.cuda_graphs}
        how["device_map"] = self.device_map
        return load_backend(self.target, self.drafter, **how)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a worker cannot do its task."""

    sentence: str
    """With a remedy, like a BadInput's message. Exceptions from another process would include their traceback."""


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """Facts about a worker with loaded models."""

    provenance: Provenance
    """Its models, device, dtype and versions."""
    batch: int
    """Default number of prompts that it maps at once."""
    machine: str
    process: int
    """Process id on that machine."""


@dataclass(frozen=True, slots=True)
class PromptTask:
    """A prompt to be mapped."""

    index: int
    """Index in the set."""
    item: PromptItem
    history: History
    """The turns before it."""


class SweepWorker:
    """Runs in its own process; its methods are called one at a time."""

    def __init__(self, models: ModelSource) -> None:
        self._models = models
        self._waiting: deque[PromptTask] = deque()

    def load(self, settings: Settings) -> WorkerFacts | Refusal:
        """Load the models and check that they support these settings."""
        try:
            self._backend = self._models.backend()
            self._backend.check(settings)
        except BadInput as error:
            return Refusal(str(error))
        return WorkerFacts(self._backend.provenance(), self._backend.batch, socket.gethostname(), os.getpid())

    def measured(self, settings: Settings) -> Costs | None:
        """Return this machine's costs; None if it is too busy."""
        return measured(self._backend, settings)

    def objections(self, plan: Plan, items: Sequence[PromptItem]) -> list[str]:
        """Return, for each prompt, the reason why it cannot be decoded even alone; empty if it can."""
        return LocalMapper(self._backend, plan).objections(items)

    def begin(self, plan: Plan, batch: int) -> None:
        """Use this plan and batch size from now on."""
        self._mapper = LocalMapper(self._backend, plan, batch=batch)
        self._waiting.clear()

    def work(self, tasks: Sequence[PromptTask]) -> list[MappedPrompt] | Refusal:
        """Add these prompts and map until some are finished; return them, or nothing if there is none. A process whose
        device is lost ends, which Ray reports."""
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
