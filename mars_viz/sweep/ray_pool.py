"""The workers of a sweep on Ray: one actor each, started if there is room, replaced if lost, all on one kind of
machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from mars_viz.errors import ModelError, SettingError
from mars_viz.run import Provenance, Settings
from mars_viz.sweep.ray_cluster import LOCAL, RayRequest, joined_cluster, room
from mars_viz.sweep.ray_worker import ModelSource, NamedModels, PromptTask, Refusal, SweepWorker, WorkerFacts
from mars_viz.words import counted

_LOOK = 2.0
"""Seconds between checks for room, because machines may join."""
_LONG = 20.0
"""Seconds of waiting for the first worker after which a message is sent."""
_PATIENCE = 60.0
"""Seconds without a worker and without room for one after which the sweep ends."""
_TRIES = 3
"""Maximum number of consecutive workers lost while loading."""


@dataclass(slots=True, eq=False)
class RayWorker:
    """A worker as seen by the sweep."""

    actor: Any
    """Ray's handle."""
    loading: Any
    """The pending answer to `load`, which includes waiting for a place to run."""
    facts: WorkerFacts | None = None
    """None until its models are loaded."""
    calls: list[Any] = field(default_factory=list)
    """Pending answers."""
    tasks: dict[int, PromptTask] = field(default_factory=dict)
    """Its prompts by index in the set."""
    mapped: int = 0
    """Number of prompts that it has returned."""


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
                "No worker is left, and no machine of the Ray cluster has room for one. What is finished is kept; add "
                "machines, and go on with --resume."
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
            self._turn_away(worker, objection)
            return False
        assert isinstance(answer, WorkerFacts)
        worker.facts, self._failures = answer, 0
        self._provenance = self._provenance or answer.provenance
        return True

    def _objection(self, found: WorkerFacts) -> str:
        """Return the reason why this worker cannot join the others, if any: results depend on how a machine rounds."""
        if self._provenance is None:
            return ""
        theirs, ours = map(_kind, (found.provenance, self._provenance))
        names = [name for name in Provenance.__slots__ if getattr(theirs, name) != getattr(ours, name)]
        if not names:
            return ""
        differences = "; ".join(f"{name} is {getattr(theirs, name)} and not {getattr(ours, name)}" for name in names)
        return f"{found.machine} is not like the machines before it: {differences.replace('_', ' ')}."

    def _turn_away(self, worker: RayWorker, said: str) -> None:
        self._drop(worker)
        self._turned_away += 1
        if not self.ready and not self.workers:
            raise ModelError(said)
        self._tell(f"A worker is turned away. {said}")


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


def _kind(found: Provenance) -> Provenance:
    """Return the part of provenance that determines results, without times and threads."""
    device = found.device.partition(",")[0]
    return replace(found, device=device, batching="", created="", seconds=0.0, prefill_seconds=0.0)
