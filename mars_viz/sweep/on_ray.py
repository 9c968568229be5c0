"""A sweep on Ray: joining or starting a cluster, its workers, and prompts given to them.

Each worker is an actor in a process of its own, perhaps on another machine, with its own models; a call maps one
prompt, together with those of other calls. Workers start if there is room and are replaced if lost; all run on one kind
of machine. Only a limited number of prompts after the first unwritten one is handed out, which limits the results that
wait. The driver writes results in the set's order, as in any sweep. Ray is an extra, used by this module alone and
imported on use.
"""

from __future__ import annotations

import asyncio
import heapq
import importlib.util
import logging
import math
import os
import shutil
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mars_viz.axis import Span
from mars_viz.bounds import shortened
from mars_viz.chat import History
from mars_viz.costs import Costs
from mars_viz.errors import BadInput, DeviceLost, ModelError, SettingError
from mars_viz.prompts import PromptItem, PromptSet
from mars_viz.run import Provenance, Settings
from mars_viz.sweep.mapper import LocalMapper, MappedPrompt, check_fit
from mars_viz.sweep.plan import Plan
from mars_viz.sweep.sweep import SweepLoop, measured
from mars_viz.walk import AT_ONCE
from mars_viz.words import counted

if TYPE_CHECKING:
    from mars_viz.speculators.backend import Backend

LOCAL = "local"  # address that starts a cluster for one sweep
_STORE = 256 << 20  # bytes of the object store of a cluster started here; a prompt's results take a few thousand
_LONGEST = 40  # longest path of a temporary folder, because Ray's socket names are limited to 107 characters
_ROUNDING = 1e-9  # tolerance, so that ten tenths are one
_KNOCK_SECONDS = 5
_QUIET = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}
_SAID = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""No usage reports, and no warning about a setting's future default."""
_REASON = 200  # maximum number of characters quoted from Ray's messages


@dataclass(frozen=True, slots=True)
class RayRequest:
    """Options of a sweep on Ray."""

    address: str = LOCAL
    """`local` starts a cluster, `auto` joins this machine's, HOST:PORT joins the one with that head."""
    workers: int | None = None  # maximum number of workers; None for as many as there is room for
    cpus: int = 1  # cores of each worker, and threads for its computations on the CPU
    gpus: float | None = None  # GPUs of each worker, or a share of one; None for one if the device needs it

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise SettingError(f"--ray-workers {self.workers} are none; take at least 1.")
        if self.cpus < 1:
            raise SettingError(f"--ray-cpus {self.cpus} is none; a worker takes at least 1 core.")
        whole = self.gpus is not None and 1 < self.gpus < 1000 and self.gpus == int(self.gpus)
        if self.gpus is not None and not (whole or 0 <= self.gpus <= 1):
            raise SettingError(f"--ray-gpus {self.gpus:g} is no share; take 0 to 1, such as 0.5, or whole GPUs.")
        if self.address.startswith("ray://"):
            raise SettingError("A sweep joins a cluster as one of its machines; give its head's address as HOST:PORT.")

    def taking(self, device: str) -> float:
        """Return the GPUs of each worker in the joined cluster, for models on this device."""
        if self.gpus is not None:
            return self.gpus
        if device == "auto":
            import ray

            return float("GPU" in ray.cluster_resources())
        return float(device == "cuda")


def check_ray() -> None:
    """Raise ModelError if Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise ModelError("--ray needs Ray, which is not installed. Run: pip install -r requirements-ray.txt")


@contextmanager
def joined_cluster(address: str) -> Iterator[None]:
    """Join a cluster, or start one that ends with the context. A process that is already in a cluster stays in it.
    Raises BadInput if the cluster cannot be joined."""
    check_ray()
    for name, value in _SAID.items():
        os.environ.setdefault(name, value)
    import ray

    if ray.is_initialized():
        yield
        return
    home = tempfile.mkdtemp(prefix="mars-ray-") if address == LOCAL else ""
    where: dict[str, Any] = {"_temp_dir": home} if 0 < len(home) <= _LONGEST else {}
    where |= {"object_store_memory": _STORE} if address == LOCAL else {}
    try:
        host, separated, port = address.rpartition(":")
        if separated:  # see that a process listens, because Ray ends a process that cannot join
            socket.create_connection((host, int(port)), timeout=_KNOCK_SECONDS).close()
        ray.init(address=address, **where, **_QUIET)
    except (OSError, RuntimeError, ValueError, OverflowError) as error:
        shutil.rmtree(home, ignore_errors=True)
        raise SettingError(
            f"The Ray cluster {shortened(address)} cannot be started or joined ({_one_line(error)}). Start Ray on this "
            "machine (ray start --head, or ray start --address=HEAD:6379), or leave the address out to start a cluster "
            "for this sweep."
        ) from error
    try:
        with redirect_stdout(sys.stderr):  # Ray prints about lost machines, and standard output is for results
            yield
    finally:
        ray.shutdown()
        shutil.rmtree(home, ignore_errors=True)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:_REASON].rstrip(".") or type(error).__name__


def room(cpus: int, gpus: float) -> int:
    """Return how many workers of this size fit on the cluster's machines, ignoring their other load."""
    import ray

    total = 0
    for node in ray.nodes():
        if node["Alive"]:
            resources = node["Resources"]
            by_gpus = resources.get("GPU", 0) / gpus + _ROUNDING if gpus else sys.maxsize
            total += int(min(resources.get("CPU", 0) // cpus, by_gpus))
    return total


@dataclass(frozen=True, slots=True)
class NamedModels:
    """Models by name; every worker loads them separately."""

    arguments: Mapping[str, Any]  # of `load_backend`
    threads: int = 1  # threads for computing on the CPU. Several workers with spinning threads would starve each other.
    folder: str = ""  # base of relative folder names, if the machine has it

    def backend(self) -> Backend:
        """Return loaded models. Raises BadInput if they are not available."""
        with suppress(OSError):
            os.chdir(self.folder or ".")
        os.environ["OMP_NUM_THREADS"] = str(self.threads)  # read when torch is first imported
        from mars_viz.speculators.loading import load_backend

        return load_backend(**self.arguments)


Task = tuple[int, PromptItem, History]
"""A prompt to be mapped: its index in the set, the prompt, and the turns before it."""


class SweepWorker:
    """Runs in its own process.

    A text as an answer is the reason, with a remedy, why it cannot do its task: an exception from another process would
    include its traceback.
    """

    def __init__(self, models: NamedModels) -> None:
        self._models = models
        self._sweep = 0

    def load(self, settings: Settings) -> Provenance | str:
        """Load the models and check that they support these settings."""
        try:
            self._backend = self._models.backend()
            self._backend.check(settings)
        except BadInput as error:
            return str(error)
        return self._backend.provenance()

    def measured(self, settings: Settings) -> Costs | None:
        return measured(self._backend, settings)

    def check(self, plan: Plan, prompts: PromptSet) -> str:
        try:
            check_fit(self._backend, plan, prompts)
        except BadInput as error:
            return str(error)
        return ""

    async def map(self, sweep: int, plan: Plan, task: Task) -> MappedPrompt | str:
        """Map a prompt of the plan of the sweep with this number. Concurrent calls advance all of their prompts in
        turn. A process whose device is lost ends, which Ray reports."""
        if sweep != self._sweep:
            self._sweep, self._mapper = sweep, LocalMapper(self._backend, plan)
            self._done: dict[int, MappedPrompt] = {}
        mapper, done, (index, *_) = self._mapper, self._done, task
        try:
            mapper.begin(*task)
            while index not in done:
                done.update((each.index, each) for each in mapper.advance())
                await asyncio.sleep(0)
        except DeviceLost:
            os._exit(1)
        except BadInput as error:
            return str(error)
        return done.pop(index)


@dataclass(slots=True, eq=False)
class RayWorker:
    """A worker as seen by the sweep."""

    actor: Any  # Ray's handle
    calls: dict[Any, Task | None]  # its prompts by pending answer; None for `load`
    provenance: Provenance | None = None  # None until its models are loaded
    mapped: int = 0  # number of prompts that it has returned


_TICK = 0.2  # maximum seconds of waiting for workers, so that an interruption is noticed
_PATIENCE = 60.0  # seconds without a worker and without room for one after which the sweep ends
_AHEAD = 2  # questions in reach as a multiple of the workers' capacity, because results wait for earlier prompts
_LOSSES = 3  # maximum number of workers that are lost with one prompt, or while they load the models


class WorkerPool:
    """All workers of a sweep, which map its prompts once the pool has its plan (`mapping`)."""

    def __init__(
        self,
        models: NamedModels,
        settings: Settings,
        request: RayRequest,
        device: str,
        tell: Callable[[str], object],
        batch: int = AT_ONCE,
    ) -> None:
        """Prepare workers in the joined cluster, without starting any, to map `batch` prompts at once each.

        `tell` receives sentences about lost and rejected workers. Raises BadInput if there is no room for one, or, in a
        cluster of its own, for the requested number.
        """
        self._models, self._settings, self._request, self._tell = models, settings, request, tell
        self._gpus, self._batch = request.taking(device), batch
        self.workers: list[RayWorker] = []
        """Live workers, in order of their start."""
        self._gone: list[int] = []  # numbers of prompts mapped by workers that were lost
        self._sweeps = 0  # number of sweeps so far
        self._sent: Any = None  # the plan in Ray's object store
        self._queue: list[Task] = []  # a heap: the first of the set goes first
        self._losses: Counter[str] = Counter()  # workers that were lost, by what they had
        self._provenance: Provenance | None = None  # the first worker's
        self._turned_away = 0
        self._hopeful = time.monotonic()  # when there was a worker or room for one
        available, most, cpus = room(request.cpus, self._gpus), request.workers or 1, request.cpus
        if not available or (request.address == LOCAL and most > available):
            takes = counted(cpus, "core") + (f" and {self._gpus:g} GPU" if self._gpus else "")
            raise SettingError(
                f"There is room for {counted(available, 'worker')} of {takes}, not for {most}; ask for fewer "
                "(--ray-workers), or for less each (--ray-cpus, --ray-gpus)."
            )

    def mapping(self, plan: Plan) -> WorkerPool:
        """Return the pool, which maps prompts of this plan from now on."""
        import ray

        self._sweeps, self._plan, self._sent = self._sweeps + 1, plan, ray.put(plan)
        self._losses.clear()
        return self

    @property
    def ready(self) -> list[RayWorker]:
        return [worker for worker in self.workers if worker.provenance is not None]

    @property
    def wanted(self) -> int:
        """Target number of workers with the present room."""
        requested = self._request.workers
        return max(0, (requested or room(self._request.cpus, self._gpus)) - self._turned_away)

    @property
    def reach(self) -> int:
        """Maximum number of questions in progress or waiting to be written."""
        return _AHEAD * self._batch * max(1, len(self.workers))

    @property
    def done_by(self) -> tuple[int, ...]:
        """Number of prompts mapped by each worker, lost workers last."""
        return (*(worker.mapped for worker in self.ready), *self._gone)

    def provenance(self) -> Provenance:
        """Return the models and the device of the first ready worker, waiting for one. Raises BadInput if there will be
        none."""
        while self._provenance is None:
            self.grow(1)
            self.settle(1.0)
        return self._provenance

    def check(self, prompts: PromptSet) -> None:
        if reason := self._asked("check", self._plan, prompts):
            raise SettingError(reason)

    def measured(self, settings: Settings) -> Costs | None:
        costs: Costs | None = self._asked("measured", settings)
        return costs

    def _asked(self, method: str, *arguments: Any) -> Any:
        """Return the answer of the first ready worker."""
        import ray

        self.provenance()
        try:
            return ray.get(getattr(self.workers[0].actor, method).remote(*arguments))
        except ray.exceptions.RayActorError as error:
            raise ModelError(f"The worker ended before the sweep began ({_one_line(error)}). Begin again.") from error

    def begin(self, index: int, item: PromptItem, history: History, plans: Sequence[int] = (0,)) -> None:
        """Add a prompt for the only plan."""
        heapq.heappush(self._queue, (index, item, history))

    def advance(self) -> list[MappedPrompt]:
        """Hand out prompts and return finished ones. Raises BadInput if the sweep cannot continue."""
        self.grow(self.wanted)
        self.hand_out()
        return self.settle(_TICK)

    def share(self, index: int) -> float:
        return 0.0

    def clear(self) -> None:
        """Hand out no more prompts and ignore results in progress."""
        self._queue.clear()
        for worker in self.ready:
            worker.calls.clear()

    def grow(self, count: int) -> None:
        """Start workers until there are `count`. Raises BadInput if there has been no room for any for long."""
        import ray

        takes = {"num_cpus": self._request.cpus, "num_gpus": self._gpus, "max_restarts": 0, "max_task_retries": 0}
        while len(self.workers) < count:
            actor = ray.remote(SweepWorker).options(**takes).remote(self._models)
            self.workers.append(RayWorker(actor, {actor.load.remote(self._settings): None}))
        if self.ready or room(self._request.cpus, self._gpus):
            self._hopeful = time.monotonic()
        elif time.monotonic() > self._hopeful + _PATIENCE:
            raise SettingError(
                "No worker is left, and no machine of the Ray cluster has room for one. Finished prompts are "
                "kept; add machines, and go on with --resume."
            )

    def hand_out(self) -> None:
        """Give prompts to the least busy workers, at most a fair share each."""
        ready = self.ready
        total = len(self._queue) + sum(len(worker.calls) for worker in ready)
        most = min(self._batch, math.ceil(total / max(1, len(self.workers))))
        while self._queue and ready:
            worker = min(ready, key=lambda each: len(each.calls))
            if len(worker.calls) >= most:
                return
            task = heapq.heappop(self._queue)
            worker.calls[worker.actor.map.remote(self._sweeps, self._sent, task)] = task

    def settle(self, seconds: float) -> list[MappedPrompt]:
        """Wait at most `seconds` for answers, and return the mapped prompts. Raises BadInput if no worker is left that
        can go on, and for a prompt that repeatedly ends workers."""
        import ray

        waiting = {call: worker for worker in self.workers for call in worker.calls}
        if not waiting:
            time.sleep(min(seconds, 0.05))
            return []
        ray.wait([*waiting], timeout=seconds)
        mapped = []
        for call in ray.wait([*waiting], num_returns=len(waiting), timeout=0)[0]:
            worker = waiting[call]
            if call not in worker.calls:
                continue  # lost with its worker
            try:
                answer: MappedPrompt | Provenance | str = ray.get(call)
            except ray.exceptions.RayTaskError:  # a fault of ours
                raise
            except ray.exceptions.RayError as error:  # its process, its machine, or what it kept there
                self._lose(worker, error)
                continue
            if isinstance(answer, MappedPrompt):
                del worker.calls[call]
                worker.mapped += 1
                mapped.append(answer)
            elif objection := answer if isinstance(answer, str) else self._objection(answer):
                self._turned_away += 1
                self._drop(worker)
                if not self.workers:
                    raise ModelError(objection)
                self._tell(f"A worker is turned away. {objection}")
            elif isinstance(answer, Provenance):
                del worker.calls[call]
                worker.provenance, self._provenance = answer, self._provenance or answer
        return mapped

    def close(self) -> None:
        for worker in [*self.workers]:
            self._drop(worker)

    def _drop(self, worker: RayWorker) -> list[Task]:
        """End a worker, and return its prompts, which are queued again."""
        import ray

        self.workers.remove(worker)
        ray.kill(worker.actor)
        tasks = [task for task in worker.calls.values() if task is not None]
        for task in tasks:
            heapq.heappush(self._queue, task)
        worker.calls.clear()
        return tasks

    def _lose(self, worker: RayWorker, error: Exception) -> None:
        """Drop a lost worker. Raises BadInput for a prompt, or the loading of models, that repeatedly ends workers."""
        tasks = self._drop(worker)
        self._gone += [worker.mapped] * (worker.provenance is not None)
        has = "has" if len(tasks) == 1 else "have"
        self._tell(f"A worker is lost; {counted(len(tasks), 'prompt')} that it had {has} to be mapped again.")
        for had in [item.id for _, item, _ in tasks] if worker.provenance else ["to load the models"]:
            self._losses[had] += 1
            if self._losses[had] >= _LOSSES:
                raise ModelError(
                    f"{_LOSSES} workers ended while they had {had} ({_one_line(error)}). See that MARS Viz is on every "
                    "machine of the cluster and that the models fit its memory. Finished prompts are kept; go on with "
                    "--resume, and with fewer prompts at once (--batch) if memory was short."
                )

    def _objection(self, found: Provenance) -> str:
        """Return the reason why this worker cannot join the others, if any: results depend on how a machine rounds."""
        theirs, ours = (  # without times and threads, which do not change results
            replace(each, device=each.device.partition(",")[0], created="", seconds=0, prefill_seconds=0)
            for each in (found, self._provenance or found)
        )
        names = [name for name in Provenance.__slots__ if getattr(theirs, name) != getattr(ours, name)]
        differences = "; ".join(f"{name} is {getattr(theirs, name)} and not {getattr(ours, name)}" for name in names)
        return differences and f"It is not like the ones before it: {differences.replace('_', ' ')}."


def sweep_with(
    pool: WorkerPool, prompts: PromptSet, settings: Settings, span: Span, out: str | PathLike[str], **how: Any
) -> SweepLoop:
    """Return a sweep on the workers of a pool. The first ready worker reports its models and measures their costs
    before others start. `how` has `chat` and `resume`. Raises BadInput like `Sweep`, and if no worker is available."""
    costs = partial(pool.measured, settings)
    return SweepLoop(prompts, {Path(out): settings}, span, pool.provenance(), pool.mapping, costs=costs, **how)
