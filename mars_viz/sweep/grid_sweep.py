"""Sweeps of a grid in progress, which take rounds in turn and share the models' answers.

A speculation does not depend on the rule, so variants of one rule request many of the same prefixes; each is requested
from the models once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mars_viz.axis import Span
from mars_viz.controllers import NONE, Control
from mars_viz.costs import Costs, objection
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
        batch: int | None = None,
    ):
        """Start in new folders, or with `resume` continue the sweeps in them.

        `costs` measures the costs once for all sweeps, including those with unreliable costs; it returns None if it
        fails. Raises BadInput like `Sweep`, before writing anything, if any folder refuses.
        """
        self._shared, self._backend = SharedAnswers(), backend
        self._batch, self._prompts = backend.batch if batch is None else batch, prompts
        self._opened: list[Speculator] = []
        measured, doubted, provenance = None, [], backend.provenance()
        for each, folder in zip(settings, folders, strict=True):
            plan = plan_of(each, span, store.begun_chat(folder, chat, resume), prompts, provenance)
            if resume and store.holds_sweep(folder):
                manifest = store.resume(folder, plan, prompts)
                if not objection(manifest.costs):
                    measured = measured or manifest.costs
                else:
                    doubted.append(folder)
            else:
                store.check_new(folder, resume=resume)
        if measured is None and costs is not None:
            measured = costs()
        if measured is not None:
            for folder in doubted:
                store.keep_costs(folder, measured)
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
    def too_long(self) -> tuple[TooLong, ...]:
        """Prompts without results in any sweep."""
        return self.sweeps[0].too_long

    @property
    def progress(self) -> SweepProgress:
        """Progress of all sweeps; `share` includes those that are further."""
        return self._progress([sweep.progress for sweep in self.sweeps])

    def __iter__(self) -> Iterator[SweepProgress]:
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
    """Return a grid with local models and costs measured once. Takes the other options of `GridSweep` and raises its
    errors."""
    first, continued = settings[0], [folder for folder in folders if store.holds_sweep(folder)]
    prompts = store.in_begun_order(continued[0], prompts) if continued and options.get("resume") else prompts
    return GridSweep(backend, prompts, settings, folders, span, costs=lambda: measured(backend, first), **options)
