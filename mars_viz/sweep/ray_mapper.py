"""A sweep on Ray: its prompts handed to the workers, and those of a lost one handed to others.

Only so many prompts after the first that is not written are handed out, so what waits to be written is bounded. Results
are the driver's to write, in the set's order, as those of any sweep. Knows workers and prompts; of the folder it knows
only whether costs are to be measured.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import islice
from os import PathLike
from pathlib import Path

from mars_viz.chat import History
from mars_viz.dialmap import Span
from mars_viz.errors import ModelError, SettingError
from mars_viz.prompts import PromptItem, PromptSet
from mars_viz.run import Settings
from mars_viz.sweep import store
from mars_viz.sweep.mapper import MappedPrompt
from mars_viz.sweep.plan import Plan, plan_of
from mars_viz.sweep.ray_cluster import RayRequest
from mars_viz.sweep.ray_pool import RayWorker, WorkerPool, workers_of
from mars_viz.sweep.ray_worker import NamedModels, PromptTask, Refusal
from mars_viz.sweep.sweep import SweepLoop, SweepProgress, TooLong, costs_for

_TICK = 0.2
"""Seconds to wait for workers at most: an interruption is heard in between."""
_CALLS = 2
"""Calls that a worker is given at once, so that it never waits for the driver."""
_AHEAD = 2
"""How many times as many questions as the workers can have are in reach: results wait for the prompt before them."""
_LOSSES = 3
"""Workers that a prompt may be lost with."""
_TOLD = 1000
"""Prompts that are looked at in one call."""


class RayMapper:
    """Maps by a plan with the workers of a pool."""

    def __init__(self, pool: WorkerPool, plan: Plan, batch: int) -> None:
        """Each worker maps `batch` prompts at once. Raises SettingError for none."""
        if batch < 1:
            raise SettingError(f"{batch} prompts at once are none; take at least 1.")
        self._pool, self._plan, self._batch = pool, plan, batch
        self._queue: list[tuple[int, PromptTask]] = []  # a heap: the first of the set goes first
        self._losses: Counter[int] = Counter()
        self._told: set[RayWorker] = set()  # what to map by

    @property
    def reach(self) -> int:
        """How many questions may be begun or wait to be written at once."""
        return _AHEAD * self._capacity * max(1, self._pool.wanted)

    @property
    def done_by(self) -> tuple[int, ...]:
        """Prompts that each worker has mapped, those that were lost last."""
        return tuple(worker.mapped for worker in (*self._pool.ready, *self._pool.gone))

    def objections(self, items: Iterable[PromptItem]) -> list[str]:
        """Why each of them cannot be decoded even by itself; empty where it can."""
        found: list[str] = []
        waiting = iter(items)
        while part := list(islice(waiting, _TOLD)):
            found += self._pool.ask("objections", self._plan, part)
        return found

    def begin(self, index: int, item: PromptItem, history: History) -> None:
        """Take on a prompt."""
        heapq.heappush(self._queue, (index, PromptTask(index, item, history)))

    def advance(self) -> list[MappedPrompt]:
        """Hand out what there is, and return what has come back. Raises BadInput where that cannot be."""
        self._pool.grow()
        self._hand_out()
        answers = self._pool.wait(_TICK)
        self._pool.settle(answers)
        there = set(answers)
        found = []
        for worker in self._pool.ready:
            while worker.calls and worker.calls[0] in there:  # they are answered in order, and dropped with the worker
                found += self._answer(worker, worker.calls.pop(0))
        return found

    def share(self, index: int) -> float:
        """Nobody tells before a prompt is done."""
        return 0.0

    def clear(self) -> None:
        """Hand out no more, and take nothing that comes back."""
        self._queue.clear()
        for worker in self._pool.workers:
            worker.tasks.clear()

    @property
    def _capacity(self) -> int:
        """Prompts that a worker may have: those that it maps at once, and one that waits."""
        return self._batch + 1

    def _hand_out(self) -> None:
        """To whoever has the fewest, and no more than a fair share, so that few prompts are not all one worker's."""
        ready = self._pool.ready
        new: dict[RayWorker, list[PromptTask]] = {worker: [] for worker in ready}
        there = len(self._queue) + sum(len(worker.tasks) for worker in ready)
        most = min(self._capacity, math.ceil(there / max(1, self._pool.wanted)))
        while self._queue and ready:
            worker = min(ready, key=lambda each: len(each.tasks))
            if len(worker.tasks) >= most:
                break
            index, task = heapq.heappop(self._queue)
            worker.tasks[index] = task
            new[worker].append(task)
        for worker, tasks in new.items():
            if tasks and worker not in self._told:
                worker.actor.begin.remote(self._plan, self._batch)
                self._told.add(worker)
            if tasks:
                worker.calls.append(worker.actor.work.remote(tasks))
            while worker.tasks and len(worker.calls) < _CALLS:
                worker.calls.append(worker.actor.work.remote([]))

    def _answer(self, worker: RayWorker, call: object) -> list[MappedPrompt]:
        """What a call brought. Raises BadInput where it says so."""
        import ray

        try:
            found: list[MappedPrompt] | Refusal = ray.get(call)
        except ray.exceptions.RayTaskError:  # a fault of ours
            raise
        except ray.exceptions.RayError as error:  # its process, its machine, or what it kept there
            self._lost(worker, error)
            return []
        if isinstance(found, Refusal):
            raise ModelError(found.sentence)
        ours = [each for each in found if worker.tasks.pop(each.index, None) is not None]
        worker.mapped += len(ours)
        return ours

    def _lost(self, worker: RayWorker, error: Exception) -> None:
        """Its prompts wait for others. Raises BadInput for one that ends whoever maps it."""
        if worker not in self._pool.workers:
            return
        self._pool.lose(worker)
        for index, task in worker.tasks.items():
            self._losses[index] += 1
            if self._losses[index] >= _LOSSES:
                reason = " ".join(str(error).split())[:200]
                raise ModelError(
                    f"{_LOSSES} workers ended while they had {task.item.id} ({reason}). What is finished is kept; go "
                    "on with --resume, and with fewer prompts at once (--batch) if memory was short."
                )
            heapq.heappush(self._queue, (index, task))
        worker.tasks.clear()
        worker.calls.clear()


def sweep_on_ray(
    pool: WorkerPool,
    prompts: PromptSet,
    settings: Settings,
    span: Span,
    out: str | PathLike[str],
    *,
    chat: bool | None = None,
    resume: bool = False,
    batch: int | None = None,
) -> SweepLoop:
    """A sweep by the workers of a pool; the first one that is ready says what models these are, and measures their
    costs before there are others. Raises BadInput as `Sweep` does, and where no worker can be had."""
    facts = pool.first().facts
    assert facts is not None
    prompts = store.in_begun_order(Path(out), prompts) if resume else prompts
    plan = plan_of(settings, span, store.begun_chat(out, chat, resume), prompts, facts.provenance)
    costs = costs_for(out, plan, prompts, resume, lambda: pool.ask("measured", settings))
    mapper = RayMapper(pool, plan, facts.batch if batch is None else batch)
    return SweepLoop(plan, mapper, prompts, out, resume=resume, costs=costs)


class ClusterSweep:
    """A sweep by workers of a cluster that is joined, or started, for it alone: iterate it as a `Sweep`; workers and
    cluster end with that."""

    def __init__(
        self,
        models: NamedModels,
        prompts: PromptSet,
        settings: Settings,
        span: Span,
        out: str | PathLike[str],
        request: RayRequest,
        *,
        chat: bool | None = None,
        resume: bool = False,
        tell: Callable[[str], object] = lambda said: None,
    ) -> None:
        """`tell` hears, in sentences, which workers are lost or turned away. Raises BadInput as `sweep_on_ray` does,
        and where the cluster cannot be joined."""
        with ExitStack() as begun:
            pool = begun.enter_context(workers_of(models, settings, request, tell))
            self._loop = sweep_on_ray(pool, prompts, settings, span, out, chat=chat, resume=resume)
            self._held = begun.pop_all()

    @property
    def folder(self) -> Path:
        """Where the results are."""
        return self._loop.folder

    @property
    def progress(self) -> SweepProgress:
        """How far it has come."""
        return self._loop.progress

    @property
    def too_long(self) -> tuple[TooLong, ...]:
        """Prompts that will have no results, as far as that is known yet."""
        return self._loop.too_long

    def __iter__(self) -> Iterator[SweepProgress]:
        """Sweep to the end. Raises BadInput as `SweepLoop` does."""
        with self._held:
            yield from self._loop
