"""A sweep in progress: prompts go to a mapper, and results are written in the set's order.

A later turn of a conversation waits for the target's own answers to earlier turns, which it follows at every dial
value. A written prompt is dropped from memory, except for answers of unfinished conversations. Sweeps of a grid take
rounds in turn and share the models' answers, because a speculation does not depend on the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, repeat
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mars_viz.axis import Span
from mars_viz.chat import Exchange, History
from mars_viz.controllers import NONE, Control
from mars_viz.costs import Costs, objection
from mars_viz.errors import BadInput, Disturbed, PromptError, SettingError
from mars_viz.locks import held
from mars_viz.prompts import PromptItem, PromptSet
from mars_viz.run import Provenance, Settings
from mars_viz.sweep import store
from mars_viz.sweep.columns import failed_lines
from mars_viz.sweep.mapper import LocalMapper, MappedPrompt, Remembering
from mars_viz.sweep.plan import Plan, plan_of
from mars_viz.sweep.result import Failure, SweepResult, load_sweep
from mars_viz.walk import AT_ONCE, Answer, Prefix, Speculator, cut_by

if TYPE_CHECKING:
    from mars_viz.speculators.backend import Backend
    from mars_viz.sweep.on_ray import WorkerPool

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


class Conversations:
    """The answers of every unfinished conversation; finished ones must be forgotten. An answer is the target's own
    text, so that a turn's history is the same for strict and for every dial value."""

    def __init__(self) -> None:
        self._turns: dict[str, list[Exchange]] = {}  # by conversation, with their answers
        self._broken: dict[str, str] = {}  # reasons why no further turn can follow

    def __len__(self) -> int:
        return len(self._turns.keys() | self._broken.keys())

    def before(self, item: PromptItem) -> History | None:
        """Return the history before this turn; None while a turn is unanswered. Raises BadInput if one failed."""
        if item.unit in self._broken:
            raise PromptError(self._broken[item.unit])
        turns = self._turns.get(item.unit, [])
        return History(item.system, tuple(turns)) if len(turns) == item.turn - 1 else None

    def answered(self, item: PromptItem, text: str) -> None:
        """Record the target's own text after this turn."""
        if item.question:
            self._turns.setdefault(item.unit, []).append(Exchange(item.prompt, text))

    def failed(self, item: PromptItem) -> None:
        """Record that this turn, and so every later one, has no text."""
        if item.question:
            self._broken.setdefault(item.unit, unanswered(item))

    def forget(self, item: PromptItem) -> None:
        """Forget the conversation after its last turn."""
        self._turns.pop(item.unit, None)
        self._broken.pop(item.unit, None)


def unanswered(item: PromptItem) -> str:
    """Return the reason why the turns after this one have no results."""
    return f"It follows {item.id}, which has no results; mend that turn, or take first turns alone."


class SweepLoop:
    """A sweep with any mapper: iterate it, stop at any time, and take the result so far.

    A prompt that does not fit in the context is known before decoding (`too_long`), except a later turn, whose length
    depends on its history. Such a turn, and the turns after it, get a line with the reason, and the others continue.
    """

    def __init__(
        self,
        prompts: PromptSet,
        settings: Settings,
        span: Span,
        out: str | PathLike[str],
        provenance: Provenance,
        mapper_of: Callable[[Plan], LocalMapper | WorkerPool],
        *,
        chat: bool | None = None,
        resume: bool = False,
        costs: Costs | None | Callable[[], Costs | None] = None,
    ):
        """Start in a new folder, or with `resume` continue a sweep, extended by further `prompts`. `provenance` is of
        the mapper's models. `costs` may be a function that measures them; a resumed sweep keeps reliable ones. Raises
        BadInput if the folder, the plan or all of the prompts prevent it."""
        folder = Path(out)
        prompts = store.in_begun_order(folder, prompts) if resume else prompts
        plan = plan_of(settings, span, store.begun_chat(folder, chat, resume), prompts, provenance)
        costs = costs_for({folder: plan}, prompts, resume, costs) if callable(costs) else costs
        mapper = mapper_of(plan)
        self._mapper, self._prompts, self.resources = mapper, prompts, ExitStack()  # which end with the sweep
        self.too_long = _too_long(mapper, prompts)
        """Prompts that will have no results, as far as known."""
        if len(self.too_long) == len(prompts):
            raise SettingError(f"No prompt of the set can be decoded. The first one: {self.too_long[0].reason}")
        self._store = (store.begin if resume else store.create)(folder, plan, costs, prompts)
        self._finished = self._store.finished()
        self._failed = 0

    @property
    def folder(self) -> Path:
        """Folder of the results."""
        return self._store.folder

    @property
    def progress(self) -> SweepProgress:
        """The present progress."""
        return self._progress(0.0)

    def __iter__(self) -> Generator[SweepProgress, None, None]:
        """Sweep to the end, holding the folder. Raises BadInput if another process holds it, the disk refuses, or the
        device runs out of memory."""
        with self.resources, held(self.folder):
            yield from self.steps()

    def steps(self) -> Iterator[SweepProgress]:
        """Sweep to the end; the caller holds the folder."""
        self._store.take_on(self._prompts)
        self._store.tidy()
        self._finished = self._store.finished()  # others may have gone on with it since
        begun: set[int] = set()  # and not written yet
        done: dict[int, MappedPrompt] = {}  # that wait for those before them
        try:
            talks, items = self._resumed(), self._prompts.items
            while self._finished < len(items):
                self._begin(begun, done, talks)
                if (ready := done.pop(self._finished, None)) is not None:
                    begun.remove(self._finished)
                    self._write(ready, talks)
                    yield self.progress
                    continue
                for each in self._mapper.advance():
                    done[each.index] = each
                    if each.lines is None:
                        talks.failed(items[each.index])
                    else:
                        talks.answered(items[each.index], each.lines["answer"][0])
                yield self._progress(1.0 if self._finished in done else self._mapper.share(self._finished))
        finally:
            self._mapper.clear()

    def _resumed(self) -> Conversations:
        talks, items = Conversations(), self._prompts.items
        if self._finished < len(items) and items[self._finished].turn > 1:
            begins = self._finished - items[self._finished].turn + 1
            turns = items[begins : self._finished]
            for item, (answer, error) in zip(turns, self._store.told(begins, self._finished), strict=True):
                if error:
                    talks.failed(item)
                else:
                    talks.answered(item, answer)
        return talks

    def _write(self, ready: MappedPrompt, talks: Conversations) -> None:
        index, items = self._finished, self._prompts.items
        lines = ready.lines
        if lines is None:
            lines = failed_lines(self._store.plan, index, items[index], ready.error)
            self._failed += 1
        self._store.append(index, lines, ready.texts)
        self._finished += 1
        if self._finished == len(items) or items[self._finished].unit != items[index].unit:
            talks.forget(items[index])

    def finish(self) -> SweepResult:
        """Sweep to the end and return the result."""
        for _ in self:
            pass
        return self.result()

    def result(self) -> SweepResult:
        """Return the finished part."""
        return load_sweep(self.folder)

    def _progress(self, share: float) -> SweepProgress:
        return SweepProgress(self._finished, len(self._prompts), self._failed, share, self._mapper.done_by)

    def _begin(self, begun: set[int], done: dict[int, MappedPrompt], talks: Conversations) -> None:
        for index in in_reach(self._prompts, self._finished, self._mapper.reach):
            if index in begun:
                continue
            item = self._prompts.items[index]
            try:
                history = talks.before(item)
            except BadInput as error:
                done[index] = MappedPrompt(index, error=str(error))
                talks.failed(item)
                begun.add(index)
                continue
            if history is not None:
                self._mapper.begin(index, item, history)
                begun.add(index)


class Sweep(SweepLoop):
    """A sweep with models of this process."""

    def __init__(
        self,
        backend: Backend,
        prompts: PromptSet,
        settings: Settings,
        span: Span,
        out: str | PathLike[str],
        *,
        batch: int = AT_ONCE,
        open_: Callable[[], Speculator] | None = None,
        **how: Any,
    ):
        """Like `SweepLoop`, with `batch` and `open_` for `LocalMapper`."""
        backend.check(settings)
        mapper = partial(LocalMapper, backend, batch=batch, open_=open_)
        super().__init__(prompts, settings, span, out, backend.provenance(), mapper, **how)


def sweep_prompts(
    backend: Backend, prompts: PromptSet, settings: Settings, span: Span, out: str | PathLike[str], **how: Any
) -> Sweep:
    """Return a sweep with local models, after measuring this device's costs unless the machine is too busy. A resumed
    sweep measures again if its costs are unreliable. `how` has `chat`, `resume` and `batch`. Raises BadInput like
    `Sweep`."""
    return Sweep(backend, prompts, settings, span, out, costs=lambda: measured(backend, settings), **how)


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


def _too_long(mapper: LocalMapper | WorkerPool, prompts: PromptSet) -> tuple[Failure, ...]:
    too_long: list[Failure] = []
    before: PromptItem | None = None
    for item, reason in zip(prompts.items, mapper.objections(prompts.items), strict=True):
        if before is not None and item.turn > 1:
            too_long.append(Failure(item.id, unanswered(before)))
            continue
        before = None
        if reason:
            too_long.append(Failure(item.id, reason))
            before = item
    return tuple(too_long)


class SharedAnswers(dict[Prefix, Answer]):
    """The models' answers by prefix, kept until every sweep has finished the prompt."""

    def __init__(self) -> None:
        super().__init__()
        self._until: dict[int, list[Prefix]] = {}
        self.last = 0
        """Index after the prompts whose prefixes are being requested."""

    def __setitem__(self, prefix: Prefix, answer: Answer) -> None:
        super().__setitem__(prefix, answer)
        self._until.setdefault(self.last, []).append(prefix)

    def forget(self, finished: int) -> None:
        """Drop the answers of prompts that every sweep has finished."""
        for last in [each for each in self._until if each <= finished]:
            for prefix in self._until.pop(last):
                del self[prefix]


class _CutAnswers:
    """Answers cut by a sweep's controller, if it has one."""

    def __init__(self, whole: Speculator, control: Control | None):
        self._whole, self._control = whole, control

    def speculate(self, prefixes: Sequence[Prefix]) -> list[Answer]:
        """Return one answer per prefix."""
        return [cut_by(self._control, answer) for answer in self._whole.speculate(prefixes)]


class GridSweep:
    """Several sweeps of the same prompts that differ only in a rule's setting or a controller's threshold.

    Iterate it like a `Sweep`. Each sweep continues at its own place, and the slowest go first, so that few prompts are
    in progress at a time. After an interruption every sweep's finished prompts remain, and each can be continued
    separately.
    """

    def __init__(
        self,
        backend: Backend,
        prompts: PromptSet,
        settings: Sequence[Settings],
        folders: Sequence[Path],
        span: Span,
        *,
        chat: bool | None = None,
        resume: bool = False,
        costs: Callable[[], Costs | None] | None = None,
        batch: int = AT_ONCE,
    ):
        """Start in new folders, or with `resume` continue the sweeps in them.

        `costs` measures the costs once for all sweeps, including those with unreliable costs; it returns None if it
        fails. Raises BadInput like `Sweep`, before writing anything, if any folder refuses.
        """
        self._shared, self._backend = SharedAnswers(), backend
        self._batch, self._prompts = batch, prompts
        self._opened: list[Speculator] = []
        provenance = backend.provenance()
        plans = {
            folder: plan_of(each, span, store.begun_chat(folder, chat, resume), prompts, provenance)
            for each, folder in zip(settings, folders, strict=True)
        }
        measured = costs_for(plans, prompts, resume, costs or (lambda: None))
        self.sweeps = tuple(
            Sweep(
                backend,
                prompts,
                each,
                span,
                folder,
                chat=chat,
                resume=resume,
                costs=measured,
                batch=batch,
                open_=self._for_one(replace(settings[0], controller=NONE), each.control),
            )
            for each, folder in zip(settings, folders, strict=True)
        )
        """One per variant, in order."""

    @property
    def too_long(self) -> tuple[Failure, ...]:
        """Prompts without results in any sweep."""
        return self.sweeps[0].too_long

    @property
    def progress(self) -> SweepProgress:
        """Progress of all sweeps; `share` includes those that are further."""
        return self._progress([sweep.progress for sweep in self.sweeps])

    def __iter__(self) -> Generator[SweepProgress, None, None]:
        """Sweep to the end, holding all folders. Raises BadInput like `Sweep`."""
        with ExitStack() as folders:
            for sweep in self.sweeps:
                folders.enter_context(held(sweep.folder))
            yield from self._steps()

    def _steps(self) -> Iterator[SweepProgress]:
        going = {place: sweep.steps() for place, sweep in enumerate(self.sweeps)}
        now = [sweep.progress for sweep in self.sweeps]
        while going:
            least = min(now[place].finished for place in going)
            for place in [each for each in going if now[each].finished == least]:
                self._shared.last = in_reach(self._prompts, least, self._batch).stop
                step = next(going[place], None)
                if step is None:
                    del going[place]
                    continue
                now[place] = step
                yield self._progress(now)
            self._shared.forget(min((now[place].finished for place in going), default=now[0].prompts))

    def _progress(self, now: Sequence[SweepProgress]) -> SweepProgress:
        least = min(each.finished for each in now)
        share = sum(min(1.0, each.finished - least + each.share) for each in now) / len(now)
        return SweepProgress(least, now[0].prompts, max(each.failed for each in now), min(share, 1.0))

    def _for_one(self, settings: Settings, control: Control | None) -> Callable[[], Speculator]:
        """Return an opener for one sweep's speculators: the first shares the batches' speculator, the second another
        one. A sweep's controller cuts the shared answers."""
        places = chain((0,), repeat(1))

        def opened(place: int) -> Speculator:
            while len(self._opened) <= place:
                self._opened.append(self._backend.speculator(settings))
            return self._opened[place]

        return lambda: _CutAnswers(Remembering(self._shared, partial(opened, next(places))), control)


def sweep_grid(
    backend: Backend,
    prompts: PromptSet,
    settings: Sequence[Settings],
    folders: Sequence[Path],
    span: Span,
    **options: Any,
) -> GridSweep:
    """Return a grid with local models and costs measured once. Takes the options of `GridSweep` and raises alike."""
    first, continued = settings[0], [folder for folder in folders if store.holds_sweep(folder)]
    prompts = store.in_begun_order(continued[0], prompts) if continued and options.get("resume") else prompts
    return GridSweep(backend, prompts, settings, folders, span, costs=lambda: measured(backend, first), **options)
