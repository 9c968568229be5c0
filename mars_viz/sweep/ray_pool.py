"""The workers of a sweep on Ray: an actor each, begun where there is room, replaced when they are lost, and held to one
kind of machine. Knows Ray and workers; which prompts they get is `ray_mapper`'s business.
"""

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
"""Seconds from one look for room to the next: machines may join."""
_LONG = 20.0
"""Seconds of waiting for the first worker that are told of."""
_PATIENCE = 60.0
"""Seconds without a worker and without room for one after which the sweep ends."""
_TRIES = 3
"""Workers that may be lost while they load, one after the other."""


@dataclass(slots=True, eq=False)
class RayWorker:
    """A worker as the sweep sees it."""

    actor: Any
    """Ray's handle."""
    loading: Any
    """The answer to `load`, which waits for a place to run, too."""
    facts: WorkerFacts | None = None
    """What is known of it; None until its models are there."""
    calls: list[Any] = field(default_factory=list)
    """Answers that are awaited."""
    tasks: dict[int, PromptTask] = field(default_factory=dict)
    """Prompts that it has, by place in the set."""
    mapped: int = 0
    """Prompts that it has returned."""


class WorkerPool:
    """All of them."""

    def __init__(
        self, models: ModelSource, settings: Settings, request: RayRequest, device: str, tell: Callable[[str], object]
    ) -> None:
        """In the cluster that was joined, none begun yet. `tell` hears, in sentences, who is lost or turned away.
        Raises BadInput where there is no room for any, or in a cluster of its own not for as many as are asked for."""
        self._models, self._settings, self._request, self._tell = models, settings, request, tell
        self._gpus = request.taking(device)
        self._room = room(request.cpus, self._gpus)
        self._check_room()
        self.workers: list[RayWorker] = []
        """Those that live, in the order in which they were begun."""
        self.gone: list[RayWorker] = []
        """Those that were lost after they had mapped something."""
        self._provenance: Provenance | None = None
        self._turned_away = self._failures = 0
        self._looked = self._hopeful = time.monotonic()

    @property
    def ready(self) -> list[RayWorker]:
        """Those that have their models."""
        return [worker for worker in self.workers if worker.facts is not None]

    @property
    def wanted(self) -> int:
        """How many there are to be, as there is room now."""
        asked = self._request.workers
        return max(0, (self._room if asked is None else asked) - self._turned_away)

    def first(self) -> RayWorker:
        """One that is ready, once there is one. Raises BadInput where there will be none."""
        began, told = time.monotonic(), False
        while not self.ready:
            if not self.workers:
                self._begin()
            self.settle(self.wait(1.0))
            self._look()
            if not told and time.monotonic() > began + _LONG:
                told = True
                self._tell("Waiting for the first worker, for room in the Ray cluster or for its models.")
        return self.ready[0]

    def ask(self, method: str, *arguments: Any) -> Any:
        """Any worker's answer."""
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
        """Begin workers where there is room for more. Raises BadInput where there has been none for long."""
        self._look()
        while len(self.workers) < self.wanted:
            self._begin()

    def wait(self, seconds: float) -> list[Any]:
        """The answers that are there, after so many seconds at most."""
        import ray

        waiting = [each for worker in self.workers for each in (worker.calls if worker.facts else [worker.loading])]
        if not waiting:
            time.sleep(min(seconds, 0.05))
            return []
        ray.wait(waiting, timeout=seconds)
        return ray.wait(waiting, num_returns=len(waiting), timeout=0)[0]

    def settle(self, answers: Sequence[Any]) -> list[RayWorker]:
        """The workers whose models are there according to these answers. Raises BadInput where none will be."""
        loaded = [worker for worker in self.workers if worker.facts is None and worker.loading in answers]
        return [worker for worker in loaded if self._settled(worker)]

    def lose(self, worker: RayWorker) -> None:
        """Count on it no more, and see that it is gone."""
        self._drop(worker)
        if worker.facts is not None:
            self.gone.append(worker)
            self._tell(
                f"A worker on {worker.facts.machine} is lost; "
                f"{counted(len(worker.tasks), 'prompt')} that it had {'goes' if len(worker.tasks) == 1 else 'go'} to "
                "others."
            )

    def close(self) -> None:
        """End all of them."""
        for worker in [*self.workers]:
            self._drop(worker)

    def _look(self) -> None:
        """At the cluster, every few seconds."""
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
        there, asked, local = self._room, self._request.workers, self._request.address == LOCAL
        takes = counted(self._request.cpus, "core") + (f" and {self._gpus:g} GPU" if self._gpus else "")
        place = "This machine" if local else "The Ray cluster"
        if not there:
            raise SettingError(
                f"{place} has no room for a worker, which takes {takes}; ask for less (--ray-cpus, --ray-gpus)."
            )
        if local and asked is not None and asked > there:
            raise SettingError(
                f"This machine has room for {counted(there, 'worker')} of {takes}, not for {asked}; ask for fewer "
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
            found: WorkerFacts | Refusal = ray.get(worker.loading)
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
        said = found.sentence if isinstance(found, Refusal) else self._objection(found)
        if said:
            self._turn_away(worker, said)
            return False
        assert isinstance(found, WorkerFacts)
        worker.facts, self._failures = found, 0
        self._provenance = self._provenance or found.provenance
        return True

    def _objection(self, found: WorkerFacts) -> str:
        """Why this one cannot map beside the others; empty where it can: results hang on what rounding is like."""
        if self._provenance is None:
            return ""
        theirs, ours = map(_kind, (found.provenance, self._provenance))
        names = [name for name in Provenance.__slots__ if getattr(theirs, name) != getattr(ours, name)]
        if not names:
            return ""
        changed = "; ".join(f"{name} is {getattr(theirs, name)} and not {getattr(ours, name)}" for name in names)
        return f"{found.machine} is not like the machines before it: {changed.replace('_', ' ')}."

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
    """Workers with these models, in the cluster that is joined, or started, meanwhile; they end with the block. Raises
    BadInput as `joined_cluster` and `WorkerPool` do."""
    with joined_cluster(request.address):
        pool = WorkerPool(models, settings, request, models.device, tell)
        try:
            yield pool
        finally:
            pool.close()


def _kind(found: Provenance) -> Provenance:
    """Of provenance what decides results: when it was, and how so many threads reach the same bits, does not."""
    device = found.device.partition(",")[0]
    return replace(found, device=device, batching="", created="", seconds=0.0, prefill_seconds=0.0)
