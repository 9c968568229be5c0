"""The sweeps of a grid in the making: ordinary ones, a round of each in turn, that share what the models answer.

A speculation does not depend on the rule, so variants of one rule ask for many of the same prefixes; each is asked of
the models once. Knows sweeps and their folders; what is in a sweep's lines is the sweep's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mars_viz.controllers import NONE, Control
from mars_viz.costs import Costs, objection
from mars_viz.dialmap import Span
from mars_viz.locks import held
from mars_viz.prompts import PromptSet
from mars_viz.replay import cut_by
from mars_viz.run import Settings
from mars_viz.sweep import store
from mars_viz.sweep.mapper import Remembering
from mars_viz.sweep.plan import plan_of
from mars_viz.sweep.sweep import Sweep, SweepProgress, TooLong, in_reach, measured
from mars_viz.walk import Answer, Prefix, Speculator

if TYPE_CHECKING:
    from mars_viz.speculators.backend import Backend


class SharedAnswers(dict[Prefix, Answer]):
    """What the models answered, by prefix, until no sweep can ask for it again."""

    def __init__(self) -> None:
        super().__init__()
        self._until: dict[int, list[Prefix]] = {}
        self.last = 0
        """The prompt after those whose prefixes are being asked for."""

    def __setitem__(self, prefix: Prefix, answer: Answer) -> None:
        super().__setitem__(prefix, answer)
        self._until.setdefault(self.last, []).append(prefix)

    def forget(self, finished: int) -> None:
        """Drop what was asked for when all of its prompts are now finished by every sweep."""
        for last in [each for each in self._until if each <= finished]:
            for prefix in self._until.pop(last):
                del self[prefix]


class _CutAnswers:
    """Answers cut short by a sweep's controller; as they are where it has none."""

    def __init__(self, whole: Speculator, control: Control | None):
        self._whole, self._control = whole, control

    def speculate(self, prefixes: Sequence[Prefix]) -> list[Answer]:
        """One answer a prefix."""
        return [cut_by(self._control, answer) for answer in self._whole.speculate(prefixes)]


class GridSweep:
    """Several sweeps of the same prompts, which differ in their rule's settings or in their controller's threshold
    alone; iterate it as a `Sweep`.

    Each sweep goes on where it is, and those that are behind go first, so that the models are asked about few prompts
    at a time. Whatever is killed, every sweep's finished prompts stay, and any of them can be continued by itself.
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
        batch: int | None = None,
    ):
        """Begin in new folders, or with `resume` go on in those that hold a sweep; `costs` measures them once for all,
        also for those that have none that can be believed, and is None where that comes to nothing.
        Raises BadInput as `Sweep` does, and before anything is written where any of the folders refuses."""
        self._shared, self._backend = SharedAnswers(), backend
        self._batch, self._prompts = backend.batch if batch is None else batch, prompts
        self._opened: list[Speculator] = []
        known, doubted, provenance = None, [], backend.provenance()
        for each, folder in zip(settings, folders, strict=True):
            plan = plan_of(each, span, store.begun_chat(folder, chat, resume), prompts, provenance)
            if resume and store.holds_sweep(folder):
                there = store.resume(folder, plan, prompts)
                if not objection(there.costs):
                    known = known or there.costs
                else:
                    doubted.append(folder)
            else:
                store.check_new(folder, resume=resume)
        if known is None and costs is not None:
            known = costs()
        if known is not None:
            for folder in doubted:
                store.keep_costs(folder, known)
        self.sweeps = tuple(
            Sweep(
                backend,
                prompts,
                each,
                span,
                folder,
                chat=chat,
                resume=resume,
                costs=known,
                batch=batch,
                open_=self._for_one(replace(settings[0], controller=NONE), each.control),
            )
            for each, folder in zip(settings, folders, strict=True)
        )
        """One a variant, in order."""

    @property
    def too_long(self) -> tuple[TooLong, ...]:
        """Prompts that will have no results in any of them."""
        return self.sweeps[0].too_long

    @property
    def progress(self) -> SweepProgress:
        """How far all of them have come; `share` counts the sweeps that are further, too."""
        return self._progress([sweep.progress for sweep in self.sweeps])

    def __iter__(self) -> Iterator[SweepProgress]:
        """Sweep to the end, and hold all folders until then. Raises BadInput as `Sweep` does."""
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
                found = next(going[place], None)
                if found is None:
                    del going[place]
                    continue
                now[place] = found
                yield self._progress(now)
            self._shared.forget(min((now[place].finished for place in going), default=now[0].prompts))

    def _progress(self, now: Sequence[SweepProgress]) -> SweepProgress:
        least = min(each.finished for each in now)
        share = sum(min(1.0, each.finished - least + each.share) for each in now) / len(now)
        return SweepProgress(least, now[0].prompts, max(each.failed for each in now), min(share, 1.0))

    def _for_one(self, settings: Settings, control: Control | None) -> Callable[[], Speculator]:
        """Opens one sweep's speculators: its first shares the one of all batches, its second the one beside; a sweep's
        controller cuts what is shared."""
        places = chain((0,), repeat(1))
        return lambda: _CutAnswers(self._sharing(next(places), settings), control)

    def _sharing(self, place: int, settings: Settings) -> Remembering:
        def live() -> Speculator:
            while len(self._opened) <= place:
                self._opened.append(self._backend.speculator(settings))
            return self._opened[place]

        return Remembering(self._shared, live)


def sweep_grid(
    backend: Backend,
    prompts: PromptSet,
    settings: Sequence[Settings],
    folders: Sequence[Path],
    span: Span,
    **options: Any,
) -> GridSweep:
    """A grid with local models, this device's costs measured once; takes the other options of `GridSweep` and raises
    what it does."""
    first, begun = settings[0], [folder for folder in folders if store.holds_sweep(folder)]
    prompts = store.in_begun_order(begun[0], prompts) if begun and options.get("resume") else prompts
    return GridSweep(backend, prompts, settings, folders, span, costs=lambda: measured(backend, first), **options)
