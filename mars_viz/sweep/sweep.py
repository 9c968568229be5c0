"""A sweep in progress: prompts go to a mapper, and results are written in the set's order.

A later turn of a conversation waits for the target's own answers to earlier turns, which it follows at every dial
value. A written prompt is dropped from memory, except for answers of unfinished conversations.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mars_viz.axis import Span
from mars_viz.chat import Exchange, History
from mars_viz.costs import Costs, objection
from mars_viz.errors import Disturbed
from mars_viz.locks import held
from mars_viz.prompts import PromptSet
from mars_viz.run import Provenance, Settings
from mars_viz.sweep import store
from mars_viz.sweep.columns import failed_lines
from mars_viz.sweep.mapper import LocalMapper, MappedPrompt
from mars_viz.sweep.plan import Plan, plan_of
from mars_viz.sweep.result import SweepResult, load_sweep
from mars_viz.walk import AT_ONCE

if TYPE_CHECKING:
    from mars_viz.speculators.backend import Backend

_AHEAD = 4  # batches started ahead of the first unwritten prompt, which limits the results that wait


@dataclass(frozen=True, slots=True)
class SweepProgress:
    """Progress of a sweep."""

    finished: int  # number of written prompts, including earlier sessions
    prompts: int  # number of all prompts
    failed: int  # number of prompts without results in this session
    share: float  # part of the next prompt's dial with a complete text; 0 between prompts
    workers: tuple[int, ...] = ()
    """Number of prompts that each worker has mapped in this session; empty if there is only this process."""


class SweepLoop:
    """A sweep, or the sweeps of a grid, with any mapper: iterate it, stop at any time, and take the results so far.

    A prompt that does not fit in the context, and the turns after it, get a line with the reason, and the others
    continue. The sweeps of a grid have the same prompts and differ only in a rule's setting or a controller's
    threshold. After an interruption every sweep's finished prompts remain, and each can be continued separately.
    """

    def __init__(
        self,
        prompts: PromptSet,
        variants: Mapping[Path, Settings],
        span: Span,
        provenance: Provenance,
        mapper_of: Callable[..., Any],
        *,
        chat: bool | None = None,
        resume: bool = False,
        costs: Costs | None | Callable[[], Costs | None] = None,
    ):
        """Start in new folders, each with its settings, or with `resume` continue the sweeps in them, extended by
        further `prompts`. `provenance` is of the mapper's models. `mapper_of` takes the plans and returns a
        `LocalMapper` or a `WorkerPool`. `costs` may be a function that measures them; resumed sweeps keep reliable
        ones. Raises BadInput if a folder, a plan or the length of all prompts prevents it; before writing anything if
        `costs` is a function."""
        begun = [folder for folder in variants if resume and store.holds_sweep(folder)]
        if begun:
            prompts = store.in_begun_order(begun[0], prompts)
            chat = store.open_store(begun[0]).plan.chat if chat is None else chat
        plans = {folder: plan_of(each, span, chat, prompts, provenance) for folder, each in variants.items()}
        self._mapper, self._prompts = mapper_of(*plans.values()), prompts
        self._mapper.check(prompts)
        costs = costs_for(plans, prompts, resume, costs) if callable(costs) else costs
        begin = store.begin if resume else store.create
        self._stores = [begin(folder, plan, costs, prompts) for folder, plan in plans.items()]
        self.folders = [each.folder for each in self._stores]  # of the results
        self._done = [each.finished() for each in self._stores]  # number of prompts finished in each
        self._failed = 0

    @property
    def progress(self) -> SweepProgress:
        return self._progress(0.0)

    def _progress(self, share: float) -> SweepProgress:
        return SweepProgress(self._finished, len(self._prompts), self._failed, share, self._mapper.done_by)

    @property
    def _finished(self) -> int:
        """Number of prompts finished in every sweep."""
        return min(self._done)

    def __iter__(self) -> Generator[SweepProgress, None, None]:
        """Sweep to the end, holding the folders. Raises BadInput if another process holds one, the disk refuses, or the
        device runs out of memory."""
        with ExitStack() as folders:
            for each in self._stores:
                folders.enter_context(held(each.folder))
            for each in self._stores:
                each.take_on(self._prompts)
                each.tidy()
            self._done = [each.finished() for each in self._stores]  # others may have gone on with it since
            try:
                yield from self._steps()
            finally:
                self._mapper.clear()

    def _steps(self) -> Iterator[SweepProgress]:
        items, begun = self._prompts.items, set[int]()  # prompts that are begun and not written yet
        ready: dict[int, MappedPrompt] = {}  # that wait for those before them
        answers: dict[int, str | None] = {}  # the target's own texts after turns of unfinished conversations
        if self._finished < len(items):
            first = self._finished - items[self._finished].turn + 1
            told = self._stores[0].told(first, self._finished)
            answers = {index: None if error else answer for index, (answer, error) in enumerate(told, first)}
        while self._finished < len(items):
            self._begin(begun, ready, answers)
            if (mapped := ready.pop(self._finished, None)) is not None:
                begun.remove(self._finished)
                self._write(mapped)
                yield self.progress
                continue
            for each in self._mapper.advance():
                ready[each.index] = each
                texts = (lines["answer"][0] for lines, _ in each.results.values())  # of every plan the same
                answers[each.index] = next(texts, None)
            yield self._progress(1.0 if self._finished in ready else self._mapper.share(self._finished))

    def _begin(self, begun: set[int], ready: dict[int, MappedPrompt], answers: dict[int, str | None]) -> None:
        """Begin the prompts in reach whose earlier turns have answers. These are the target's own texts, so that a
        turn's history is the same for strict and for every dial value."""
        items = self._prompts.items
        reach = in_reach(self._prompts, self._finished, self._mapper.reach)
        for index in sorted(answers.keys() - range(reach.start - items[reach.start].turn, reach.stop)):
            del answers[index]
        for index in reach:
            item, before = items[index], range(index - items[index].turn + 1, index)
            if index in begun or not answers.keys() >= set(before):
                continue
            begun.add(index)
            turns = tuple(Exchange(items[each].prompt, answers[each] or "") for each in before)
            failed = next((items[each].id for each in before if answers[each] is None), None)
            if failed is not None:
                why = f"It follows {failed}, which has no results; mend that turn, or take first turns alone."
                ready[index], answers[index] = MappedPrompt(index, error=why), None
            else:
                wanted = [number for number, done in enumerate(self._done) if done <= index]
                self._mapper.begin(index, item, History(item.system, turns), wanted)

    def _write(self, mapped: MappedPrompt) -> None:
        index, item = mapped.index, self._prompts.items[mapped.index]
        self._failed += not mapped.results
        for number, each in enumerate(self._stores):
            if self._done[number] == index:
                if mapped.results:
                    each.append(index, *mapped.results[number])
                else:
                    each.append(index, failed_lines(each.plan, index, item, mapped.error))
                self._done[number] += 1

    def finish(self) -> SweepResult:
        for _ in self:
            pass
        return self.result()

    def result(self) -> SweepResult:
        """Return the finished part of the first sweep."""
        return load_sweep(self.folders[0])

    def results(self) -> list[SweepResult]:
        """Return the finished part of every sweep."""
        return [load_sweep(folder) for folder in self.folders]


class Sweep(SweepLoop):
    """A sweep with models of this process, or several of a grid."""

    def __init__(
        self,
        backend: Backend,
        prompts: PromptSet,
        settings: Settings | Sequence[Settings],
        span: Span,
        out: str | PathLike[str] | Sequence[Path],
        *,
        batch: int = AT_ONCE,
        **how: Any,
    ):
        """Like `SweepLoop`, with `batch` for `LocalMapper`. A grid has settings and a folder for each."""
        several = settings if isinstance(settings, Sequence) else [settings]
        folders = [Path(out)] if isinstance(out, str | PathLike) else out
        for each in several:
            backend.check(each)
        mapper = partial(LocalMapper, backend, batch=batch)
        variants = dict(zip(folders, several, strict=True))
        super().__init__(prompts, variants, span, backend.provenance(), mapper, **how)


def sweep_prompts(
    backend: Backend, prompts: PromptSet, settings: Settings | Sequence[Settings], span: Span, out: Any, **how: Any
) -> Sweep:
    """Return a `Sweep` after measuring this device's costs unless the machine is too busy. A resumed sweep measures
    again if its costs are unreliable. `how` has `chat`, `resume` and `batch`. Raises BadInput like `Sweep`."""
    first = settings[0] if isinstance(settings, Sequence) else settings
    return Sweep(backend, prompts, settings, span, out, costs=lambda: measured(backend, first), **how)


def costs_for(
    plans: Mapping[Path, Plan], prompts: PromptSet, resume: bool, measure: Callable[[], Costs | None]
) -> Costs | None:
    """Return the costs for sweeps by folder: reliable ones of a resumed sweep, or measured ones, which then replace
    unreliable ones. Raises BadInput, before writing anything, if a sweep can neither start nor continue."""
    known, doubted = None, []
    for folder, plan in plans.items():
        if not (resume and store.holds_sweep(folder)):
            store.check_new(folder, resume=resume)
        elif objection((kept := store.resume(folder, plan, prompts)).costs):
            doubted.append(folder)
        else:
            known = known or kept.costs
    known = measure() if known is None else known
    if known is not None:
        for folder in doubted:
            store.keep_costs(folder, known)
    return known


def measured(backend: Backend, settings: Settings) -> Costs | None:
    """Return this device's costs; None if the machine is too busy, because exact figures need no costs."""
    from mars_viz.speculators.costs import measure_costs

    try:
        return measure_costs(backend, settings.gamma, settings=settings)
    except Disturbed:
        return None


def in_reach(prompts: PromptSet, finished: int, batch: int) -> range:
    """Return the prompts that may be in progress: the next `batch` questions, at most a few batches."""
    units: set[str] = set()
    end = min(finished + _AHEAD * batch, len(prompts))
    for index in range(finished, end):
        units.add(prompts.items[index].unit)
        if len(units) > batch:
            return range(finished, index)
    return range(finished, end)
