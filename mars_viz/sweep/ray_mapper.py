"""A sweep on Ray: gives prompts to workers, and those of a lost worker to others.

Only a limited number of prompts after the first unwritten one is handed out, which limits the results that wait. The
driver writes results in the set's order, as in any sweep.
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

from mars_viz.axis import Span
from mars_viz.chat import History
from mars_viz.errors import ModelError, SettingError
from mars_viz.prompts import PromptItem, PromptSet
from mars_viz.run import Settings
from mars_viz.sweep import store
from mars_viz.sweep.mapper import MappedPrompt
from mars_viz.sweep.plan import Plan, plan_of
from mars_viz.sweep.ray_cluster import RayRequest
from mars_viz.sweep.ray_pool import NamedModels, PromptTask, RayWorker, Refusal, WorkerPool, workers_of
from mars_viz.sweep.sweep import SweepLoop, SweepProgress, TooLong, costs_for

_TICK = 0.2  # maximum seconds of waiting for workers, so that an interruption is noticed
_CALLS = 2  # concurrent calls per worker, so that it never waits for the driver
_AHEAD = 2  # questions in reach as a multiple of the workers' capacity, because results wait for earlier prompts
_LOSSES = 3  # maximum number of workers that a prompt may be lost with
_TOLD = 1000  # maximum number of prompts checked in one call


class RayMapper:
    """Maps prompts of a plan with the workers of a pool."""

    def __init__(self, pool: WorkerPool, plan: Plan, batch: int) -> None:
        """Map `batch` prompts at once on each worker. Raises SettingError for no prompts."""
        if batch < 1:
            raise SettingError(f"{batch} prompts at once are none; take at least 1.")
        self._pool, self._plan, self._batch = pool, plan, batch
        self._queue: list[tuple[int, PromptTask]] = []  # a heap: the first of the set goes first
        self._losses: Counter[int] = Counter()
        self._told: set[RayWorker] = set()  # what to map by

    @property
    def reach(self) -> int:
        """Maximum number of questions in progress or waiting to be written."""
        return _AHEAD * self._capacity * max(1, self._pool.wanted)

    @property
    def done_by(self) -> tuple[int, ...]:
        """Number of prompts mapped by each worker, lost workers last."""
        return tuple(worker.mapped for worker in (*self._pool.ready, *self._pool.gone))

    def objections(self, items: Iterable[PromptItem]) -> list[str]:
        """Return, for each item, the reason why it cannot be decoded even alone; empty if it can."""
        reasons: list[str] = []
        waiting = iter(items)
        while part := list(islice(waiting, _TOLD)):
            reasons += self._pool.ask("objections", self._plan, part)
        return reasons

    def begin(self, index: int, item: PromptItem, history: History) -> None:
        """Add a prompt."""
        heapq.heappush(self._queue, (index, PromptTask(index, item, history)))

    def advance(self) -> list[MappedPrompt]:
        """Hand out prompts and return finished ones. Raises BadInput if the sweep cannot continue."""
        self._pool.grow()
        self._hand_out()
        answers = self._pool.wait(_TICK)
        self._pool.settle(answers)
        answered = set(answers)
        mapped = []
        for worker in self._pool.ready:
            while worker.calls and worker.calls[0] in answered:  # in order; a lost worker has no more calls
                mapped += self._answer(worker, worker.calls.pop(0))
        return mapped

    def share(self, index: int) -> float:
        """Return 0: workers report no partial progress."""
        return 0.0

    def clear(self) -> None:
        """Hand out no more prompts and ignore results in progress."""
        self._queue.clear()
        for worker in self._pool.workers:
            worker.tasks.clear()

    @property
    def _capacity(self) -> int:
        """Maximum number of prompts of a worker: those that it maps at once, and one that waits."""
        return self._batch + 1

    def _hand_out(self) -> None:
        """Give prompts to the least busy workers, at most a fair share each, so that a few prompts are spread over
        workers."""
        ready = self._pool.ready
        new: dict[RayWorker, list[PromptTask]] = {worker: [] for worker in ready}
        total = len(self._queue) + sum(len(worker.tasks) for worker in ready)
        most = min(self._capacity, math.ceil(total / max(1, self._pool.wanted)))
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
        """Return a call's results. Raises BadInput if the worker refused."""
        import ray

        try:
            results: list[MappedPrompt] | Refusal = ray.get(call)
        except ray.exceptions.RayTaskError:  # a fault of ours
            raise
        except ray.exceptions.RayError as error:  # its process, its machine, or what it kept there
            self._lost(worker, error)
            return []
        if isinstance(results, Refusal):
            raise ModelError(results.sentence)
        ours = [each for each in results if worker.tasks.pop(each.index, None) is not None]
        worker.mapped += len(ours)
        return ours

    def _lost(self, worker: RayWorker, error: Exception) -> None:
        """Queue the lost worker's prompts again. Raises BadInput for a prompt that repeatedly ends workers."""
        if worker not in self._pool.workers:
            return
        self._pool.lose(worker)
        for index, task in worker.tasks.items():
            self._losses[index] += 1
            if self._losses[index] >= _LOSSES:
                reason = " ".join(str(error).split())[:200]
                raise ModelError(
                    f"{_LOSSES} workers ended while they had {task.item.id} ({reason}). Finished prompts are "
                    "kept; go on with --resume, and with fewer prompts at once (--batch) if memory was short."
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
    """Return a sweep on the workers of a pool. The first ready worker reports its models and measures their costs
    before others start. Raises BadInput like `Sweep`, and if no worker is available."""
    facts = pool.first().facts
    assert facts is not None
    prompts = store.in_begun_order(Path(out), prompts) if resume else prompts
    plan = plan_of(settings, span, store.begun_chat(out, chat, resume), prompts, facts.provenance)
    costs = costs_for(out, plan, prompts, resume, lambda: pool.ask("measured", settings))
    mapper = RayMapper(pool, plan, facts.batch if batch is None else batch)
    return SweepLoop(plan, mapper, prompts, out, resume=resume, costs=costs)


class ClusterSweep:
    """A sweep on workers of a cluster that is joined or started for it; iterate it like a `Sweep`. Workers and cluster
    end with it."""

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
        """Pass sentences about lost and rejected workers to `tell`. Raises BadInput like `sweep_on_ray`, and if the
        cluster cannot be joined."""
        with ExitStack() as stack:
            pool = stack.enter_context(workers_of(models, settings, request, tell))
            self._loop = sweep_on_ray(pool, prompts, settings, span, out, chat=chat, resume=resume)
            self._held = stack.pop_all()

    @property
    def folder(self) -> Path:
        """Folder of the results."""
        return self._loop.folder

    @property
    def progress(self) -> SweepProgress:
        """The present progress."""
        return self._loop.progress

    @property
    def too_long(self) -> tuple[TooLong, ...]:
        """Prompts that will have no results, as far as known."""
        return self._loop.too_long

    def __iter__(self) -> Iterator[SweepProgress]:
        """Sweep to the end. Raises BadInput like `SweepLoop`."""
        with self._held:
            yield from self._loop
