"""The workers of a sweep on Ray: one actor each, started if there is room, replaced if lost, all on one kind of
machine.

`SweepWorker` runs in another process, perhaps on another machine, with its own models; it maps prompts as a sweep of
one process does and does not use Ray itself.
"""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from mars_viz.chat import History
from mars_viz.costs import Costs
from mars_viz.errors import BadInput, DeviceLost, ModelError, SettingError
from mars_viz.prompts import PromptItem
from mars_viz.run import Provenance, Settings
from mars_viz.sweep.mapper import LocalMapper, MappedPrompt
from mars_viz.sweep.plan import Plan
from mars_viz.sweep.ray_cluster import LOCAL, RayRequest, joined_cluster, room
from mars_viz.sweep.sweep import measured
from mars_viz.words import counted

if TYPE_CHECKING:
    from mars_viz.speculators.backend import Backend

_LOOK = 2.0  # seconds between checks for room, because machines may join
_LONG = 20.0  # seconds of waiting for the first worker after which a message is sent
_PATIENCE = 60.0  # seconds without a worker and without room for one after which the sweep ends
_TRIES = 3  # maximum number of consecutive workers lost while loading


class ModelSource(Protocol):
    """Loads models in the process that uses them."""

    def backend(self) -> Backend:
        """Return the models. Raises BadInput if they are not available."""
        ...


@dataclass(frozen=True, slots=True)
class NamedModels:
    """Models by name; every worker loads them separately."""

    target: str | None = None  # Hub id, folder or server's address; None for the built-in one
    drafter: str | None = None  # Hub id, folder or settings; None for the default of `drafter_for`
    device: str = "auto"  # as in `load_backend`
    dtype: str = "auto"  # as in `load_backend`
    cuda_graphs: bool = True  # as in `load_backend`
    device_map: str | None = None  # as in `load_backend`
    threads: int = 1  # threads for computing on the CPU. Several workers with spinning threads would starve each other.
    folder: str = ""  # base of relative folder names, if the machine has it

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

    provenance: Provenance  # its models, device, dtype and versions
    batch: int  # default number of prompts that it maps at once
    machine: str
    process: int  # process id on that machine


@dataclass(frozen=True, slots=True)
class PromptTask:
    """A prompt to be mapped."""

    index: int  # index in the set
    item: PromptItem
    history: History  # the turns before it


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


@dataclass(slots=True, eq=False)
class RayWorker:
    """A worker as seen by the sweep."""

    actor: Any  # Ray's handle
    loading: Any  # the pending answer to `load`, which includes waiting for a place to run
    facts: WorkerFacts | None = None  # None until its models are loaded
    calls: list[Any] = field(default_factory=list)  # pending answers
    tasks: dict[int, PromptTask] = field(default_factory=dict)  # its prompts by index in the set
    mapped: int = 0  # number of prompts that it has returned


class WorkerPool:
    """All workers of a sweep."""

    def __init__(
        self, models: ModelSource, settings: Settings, request: RayRequest, device: str, tell: Callable[[str], object]
    ) -> None:
        """Prepare workers in the joined cluster, without starting any.

        `tell` receives sentences about lost and rejected workers. Raises BadInput if there is no room for one, or, in a
        cluster of its own, for the requested number.
        """
        self._models, self._settings, self._request, self._tell = models, settings, request, tell
        self._gpus = request.taking(device)
        self._room = room(request.cpus, self._gpus)
        self._check_room()
        self.workers: list[RayWorker] = []
        """Live workers, in order of their start."""
        self.gone: list[RayWorker] = []
        """Workers that were lost after they had mapped something."""
        self._provenance: Provenance | None = None
        self._turned_away = self._failures = 0
        self._looked = self._hopeful = time.monotonic()

    @property
    def ready(self) -> list[RayWorker]:
        """Workers with loaded models."""
        return [worker for worker in self.workers if worker.facts is not None]

    @property
    def wanted(self) -> int:
        """Target number of workers with the present room."""
        requested = self._request.workers
        return max(0, (self._room if requested is None else requested) - self._turned_away)

    def first(self) -> RayWorker:
        """Return a ready worker, waiting for one. Raises BadInput if there will be none."""
        began, reported = time.monotonic(), False
        while not self.ready:
            if not self.workers:
                self._begin()
            self.settle(self.wait(1.0))
            self._look()
            if not reported and time.monotonic() > began + _LONG:
                reported = True
                self._tell("Waiting for the first worker, for room in the Ray cluster or for its models.")
        return self.ready[0]

    def ask(self, method: str, *arguments: Any) -> Any:
        """Return the answer of any ready worker."""
        import ray

        while True:
            worker = self.first()
            try:
                return ray.get(getattr(worker.actor, method).remote(*arguments))
            except ray.exceptions.RayTaskError:
                raise
            except ray.exceptions.RayError:
                self.lose(worker)

    def grow(self) -> None:
        """Start workers while there is room. Raises BadInput if there has been no room for long."""
        self._look()
        while len(self.workers) < self.wanted:
            self._begin()

    def wait(self, seconds: float) -> list[Any]:
        """Return available answers after waiting at most `seconds`."""
        import ray

        waiting = [each for worker in self.workers for each in (worker.calls if worker.facts else [worker.loading])]
        if not waiting:
            time.sleep(min(seconds, 0.05))
            return []
        ray.wait(waiting, timeout=seconds)
        return ray.wait(waiting, num_returns=len(waiting), timeout=0)[0]

    def settle(self, answers: Sequence[Any]) -> list[RayWorker]:
        """Return the workers whose models are loaded according to these answers. Raises BadInput if there will be
        none."""
        loaded = [worker for worker in self.workers if worker.facts is None and worker.loading in answers]
        return [worker for worker in loaded if self._settled(worker)]

    def lose(self, worker: RayWorker) -> None:
        """Drop a lost worker and make sure that it ends."""
        self._drop(worker)
        if worker.facts is not None:
            self.gone.append(worker)
            self._tell(
                f"A worker on {worker.facts.machine} is lost; "
                f"{counted(len(worker.tasks), 'prompt')} that it had {'goes' if len(worker.tasks) == 1 else 'go'} to "
                "others."
            )

    def close(self) -> None:
        """End all workers."""
        for worker in [*self.workers]:
            self._drop(worker)

    def _look(self) -> None:
        """Check the cluster every few seconds."""
        now = time.monotonic()
        if now < self._looked + _LOOK:
            return
        self._looked, self._room = now, room(self._request.cpus, self._gpus)
        if self.ready or self._room:
            self._hopeful = now
        elif now > self._hopeful + _PATIENCE:
            raise SettingError(
                "No worker is left, and no machine of the Ray cluster has room for one. Finished prompts are "
                "kept; add machines, and go on with --resume."
            )

    def _check_room(self) -> None:
        available, most, local = self._room, self._request.workers, self._request.address == LOCAL
        takes = counted(self._request.cpus, "core") + (f" and {self._gpus:g} GPU" if self._gpus else "")
        place = "This machine" if local else "The Ray cluster"
        if not available:
            raise SettingError(
                f"{place} has no room for a worker, which takes {takes}; ask for less (--ray-cpus, --ray-gpus)."
            )
        if local and most is not None and most > available:
            raise SettingError(
                f"This machine has room for {counted(available, 'worker')} of {takes}, not for {most}; ask for fewer "
                "(--ray-workers), or for less each (--ray-cpus, --ray-gpus)."
            )

    def _begin(self) -> None:
        import ray

        takes = {"num_cpus": self._request.cpus, "num_gpus": self._gpus, "max_restarts": 0, "max_task_retries": 0}
        actor = ray.remote(SweepWorker).options(**takes).remote(self._models)
        self.workers.append(RayWorker(actor, actor.load.remote(self._settings)))

    def _drop(self, worker: RayWorker) -> None:
        import ray

        if worker in self.workers:
            self.workers.remove(worker)
        ray.kill(worker.actor)

    def _settled(self, worker: RayWorker) -> bool:
        import ray

        try:
            answer: WorkerFacts | Refusal = ray.get(worker.loading)
        except ray.exceptions.RayError as error:
            self._drop(worker)
            self._failures += 1
            if self._failures < _TRIES:
                return False
            reason = next(filter(None, reversed(str(error).splitlines())), type(error).__name__).strip()
            raise ModelError(
                f"{_TRIES} workers ended while they loaded the models ({reason[:200].rstrip('.')}). See that MARS Viz "
                "is installed on every machine of the cluster and that the models fit its memory."
            ) from error
        objection = answer.sentence if isinstance(answer, Refusal) else self._objection(answer)
        if objection:
            self._drop(worker)
            self._turned_away += 1
            if not self.ready and not self.workers:
                raise ModelError(objection)
            self._tell(f"A worker is turned away. {objection}")
            return False
        assert isinstance(answer, WorkerFacts)
        worker.facts, self._failures = answer, 0
        self._provenance = self._provenance or answer.provenance
        return True

    def _objection(self, found: WorkerFacts) -> str:
        """Return the reason why this worker cannot join the others, if any: results depend on how a machine rounds."""
        if self._provenance is None:
            return ""
        theirs, ours = (  # without times and threads, which do not change results
            replace(each, device=each.device.partition(",")[0], batching="", created="", seconds=0, prefill_seconds=0)
            for each in (found.provenance, self._provenance)
        )
        names = [name for name in Provenance.__slots__ if getattr(theirs, name) != getattr(ours, name)]
        if not names:
            return ""
        differences = "; ".join(f"{name} is {getattr(theirs, name)} and not {getattr(ours, name)}" for name in names)
        return f"{found.machine} is not like the machines before it: {differences.replace('_', ' ')}."


@contextmanager
def workers_of(
    models: NamedModels, settings: Settings, request: RayRequest, tell: Callable[[str], object]
) -> Iterator[WorkerPool]:
    """Yield workers with these models in a cluster that is joined or started; they end with the context. Raises
    BadInput like `joined_cluster` and `WorkerPool`."""
    with joined_cluster(request.address):
        pool = WorkerPool(models, settings, request, models.device, tell)
        try:
            yield pool
        finally:
            pool.close()
