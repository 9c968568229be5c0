"""A sweep in the making: every prompt's exact dial map, reduced to its lines and written.

A few neighbouring prompts are in hand at once, and what their maps ask goes out as one batch; they are written in the
set's order. A later turn of a conversation waits for the target's own answers to the turns before it, which it follows
at every dial value. Knows walks, maps and the sweep's folder; what the models are is the backend's business. Nothing of
a prompt is kept in memory once it is written, but for the answers of a conversation that is not at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from mars_viz.chat import History
from mars_viz.costs import Costs, objection
from mars_viz.dialmap import DialMap, Exploration, Span
from mars_viz.errors import BadInput, Disturbed, PromptError, SettingError
from mars_viz.locks import held
from mars_viz.prompts import PromptItem, PromptSet
from mars_viz.records import Emission, emitted
from mars_viz.rules import Rule, rule_named
from mars_viz.run import Run, Settings, joined
from mars_viz.sweep import store
from mars_viz.sweep.active_prompts import ActivePrompts, Conversations, advance, unanswered
from mars_viz.sweep.columns import Lines, ReferenceTexts, failed_lines, lines_of
from mars_viz.sweep.plan import plan_of
from mars_viz.sweep.result import SweepResult, load_sweep
from mars_viz.sweep.texts import PromptTexts, texts_of
from mars_viz.walk import Answer, Ending, Prefix, Speculator, walk

if TYPE_CHECKING:
    from mars_viz.speculators.backend import Backend


@dataclass(frozen=True, slots=True)
class _Done:
    """A prompt that waits to be written."""

    lines: Lines
    """Of the table."""
    texts: PromptTexts | None = None
    """What it reads along the dial; None where it has no results."""


_AHEAD = 4
"""How far ahead of the first prompt that is not written others are begun, in batches: so many lines wait at most."""


@dataclass(frozen=True, slots=True)
class SweepProgress:
    """How far a sweep has come."""

    finished: int
    """Prompts that are written, those of earlier sittings included."""
    prompts: int
    """All of them."""
    failed: int
    """Prompts of this sitting that have no results."""
    share: float
    """Of the next prompt to be written, the part of the dial whose text is complete; 0 between prompts."""


@dataclass(frozen=True, slots=True)
class TooLong:
    """A prompt that cannot be decoded."""

    id: str
    """Its name in the set."""
    reason: str
    """Why not, and the remedy."""


class Sweep:
    """Iterate it for its progress, stop whenever, and take the result so far.

    A prompt that does not fit in the context is known before anything is decoded (`too_long`), unless it is a later
    turn, which may not fit once its history is known; it gets a line that says so, as do the turns after it, is
    counted, and the others go on.
    """

    def __init__(
        self,
        backend: Backend,
        prompts: PromptSet,
        settings: Settings,
        span: Span,
        out: str | PathLike[str],
        *,
        chat: bool = False,
        resume: bool = False,
        costs: Costs | None = None,
        batch: int | None = None,
        open_: Callable[[], Speculator] | None = None,
    ):
        """Begin in a new folder, or with `resume` go on where there is a sweep, and to what `prompts` has after those
        that it was begun with. `batch` prompts are mapped at once (None: as many as the backend says), by
        speculators that `open_` opens (None: the backend's). Raises BadInput
        where the folder, the plan or all of the prompts do not allow it."""
        self._batch = backend.batch if batch is None else batch
        if self._batch < 1:
            raise SettingError(f"{batch} prompts at once are none; take at least 1.")
        self._provenance = backend.provenance()
        backend.check(settings)
        plan = plan_of(settings, span, chat, prompts, self._provenance)
        self._settings = plan.settings
        self._backend, self._prompts, self._rule, self._chat = backend, prompts, rule_named(settings.rule), chat
        self._open = open_ or (lambda: backend.speculator(self._settings))
        self._span = span
        self.too_long = _too_long(self._tokens, prompts)
        """Prompts that will have no results, as far as that is known yet."""
        if len(self.too_long) == len(prompts):
            raise SettingError(f"No prompt of the set can be decoded. The first one: {self.too_long[0].reason}")
        folder = Path(out)
        self._store = (store.begin if resume else store.create)(folder, plan, costs, prompts)
        self._finished = self._store.finished()
        self._failed = 0

    @property
    def folder(self) -> Path:
        """Where the results are."""
        return self._store.folder

    @property
    def progress(self) -> SweepProgress:
        """How far it has come."""
        return self._progress(0.0)

    def __iter__(self) -> Iterator[SweepProgress]:
        """Sweep to the end, and hold the folder until then. Raises BadInput when somebody else holds it, the disk
        refuses, or the device runs out of memory."""
        with held(self.folder):
            yield from self.steps()

    def steps(self) -> Iterator[SweepProgress]:
        """The same for whoever holds the folder already."""
        self._store.take_on(self._prompts)
        self._store.tidy()
        self._finished = self._store.finished()  # others may have gone on with it since
        yield from self._steps()

    def _steps(self) -> Iterator[SweepProgress]:
        hand: dict[int, ActivePrompts] = {}
        done: dict[int, _Done] = {}  # that wait for those before them
        talks = self._resumed()
        while self._finished < len(self._prompts):
            self._join(hand, done, talks)
            if (ready := done.pop(self._finished, None)) is not None:
                self._write(ready, talks)
                yield self.progress
                continue
            advance(self._speculator, list(hand.values()))
            first = hand[self._finished]
            for one in [one for one in hand.values() if not one.exploration.going]:
                del hand[one.index]
                done[one.index] = ready = self._done(one)
                talks.answered(one.item, ready.lines["answer"][0])
            yield self._progress(first.share)

    def _resumed(self) -> Conversations:
        """What was answered of the conversation in whose middle the sweep was left."""
        talks, items = Conversations(), self._prompts.items
        if self._finished < len(items) and items[self._finished].turn > 1:
            begins = self._finished - items[self._finished].turn + 1
            turns = items[begins : self._finished]
            for item, told in zip(turns, self._store.told(begins, self._finished), strict=True):
                if told.error:
                    talks.failed(item)
                else:
                    talks.answered(item, told.answer)
        return talks

    def _write(self, ready: _Done, talks: Conversations) -> None:
        """The next prompt."""
        index, items = self._finished, self._prompts.items
        self._store.append(index, ready.lines, ready.texts)
        self._failed += bool(ready.lines["error"][0])
        self._finished += 1
        if self._finished == len(items) or items[self._finished].unit != items[index].unit:
            talks.forget(items[index])

    def finish(self) -> SweepResult:
        """Sweep to the end and return the result."""
        for _ in self:
            pass
        return self.result()

    def result(self) -> SweepResult:
        """What is finished so far."""
        return load_sweep(self.folder)

    def _progress(self, share: float) -> SweepProgress:
        return SweepProgress(self._finished, len(self._prompts), self._failed, share)

    def _join(self, hand: dict[int, ActivePrompts], done: dict[int, _Done], talks: Conversations) -> None:
        """Begin the prompts that come next: of as many questions as may be in hand, those whose history is known."""
        for index in in_reach(self._prompts, self._finished, self._batch):
            item = self._prompts.items[index]
            if index in hand or index in done:
                continue
            try:
                history = talks.before(item)
                if history is not None:
                    hand[index] = self._begun(index, item, history)
            except BadInput as error:
                done[index] = _Done(failed_lines(self._store.plan, index, item, str(error)))
                talks.failed(item)

    def _begun(self, index: int, item: PromptItem, history: History) -> ActivePrompts:
        prompt = self._tokens(item, history)
        exploration = Exploration(self._rule, self._span, prompt, self._ending, {}, dial=self._settings.dial)
        return ActivePrompts(index, item, prompt, exploration)

    def _done(self, mapped: ActivePrompts) -> _Done:
        """A prompt whose map is complete."""
        item, exploration, pieces = mapped.item, mapped.exploration, self._backend.tokenizer.pieces
        frame = Run(self._settings, self._provenance, mapped.prompt, (), pieces, item.id, item.prompt)
        made = DialMap(frame, self._span, exploration.answers, exploration.passes, mapped.seconds)
        lines = lines_of(made, mapped.index, item, self._texts(made), self._store.plan.scores)
        return _Done(lines, texts_of(made))

    def _texts(self, made: DialMap) -> ReferenceTexts:
        """The lossless texts, walked over the map's own answers; models are asked only where they leave the map."""
        prompt = made.frame.prompt_ids
        known = Remembering(dict(made.answers), lambda: self._beside)

        def walked(rule: Rule) -> tuple[int, ...]:
            dial = None if rule.dial is None else rule.dial.strict
            return emitted(walk(known, rule, dial, prompt, self._ending))

        target = rule_named("strict")
        if made.span.over:
            whole = emitted(walk(known, self._rule, self._settings.dial, prompt, self._ending))
            return ReferenceTexts(whole, walked(target), self._text)
        strict = strict_reference(self._rule, self._settings.temperature)
        text = walked(strict)
        return ReferenceTexts(text, text if strict is target else walked(target), self._text)

    @cached_property
    def _speculator(self) -> Speculator:
        return self._open()

    @cached_property
    def _beside(self) -> Speculator:
        """Another one, so that the batch's caches stay as they are."""
        return self._open()

    @property
    def _ending(self) -> Ending:
        return self._backend.ending(self._settings)

    def _text(self, token_ids: Prefix) -> str:
        return joined(map(self._backend.tokenizer.pieces.__getitem__, token_ids))

    def _tokens(self, item: PromptItem, history: History = ()) -> Prefix:
        """Raises BadInput where it does not fit in the context."""
        try:
            return self._backend.prompt_ids(item.prompt, self._settings, history, chat=self._chat)
        except BadInput as error:
            if not history:
                raise
            raise PromptError(f"With the turns before it and their answers: {error}") from error


class Remembering:
    """Answers from what is known already; the models, opened only then, are asked about the rest, which is known from
    then on."""

    def __init__(self, known: MutableMapping[Prefix, Answer], open_: Callable[[], Speculator]):
        self._known, self._open = known, open_

    def speculate(self, prefixes: Sequence[Prefix]) -> list[Answer]:
        """One answer a prefix."""
        missing = [prefix for prefix in dict.fromkeys(prefixes) if prefix not in self._known]
        if missing:
            for prefix, answer in zip(missing, self._open().speculate(missing), strict=True):
                self._known[prefix] = answer
        return [self._known[prefix] for prefix in prefixes]


def sweep_prompts(
    backend: Backend,
    prompts: PromptSet,
    settings: Settings,
    span: Span,
    out: str | PathLike[str],
    *,
    chat: bool = False,
    resume: bool = False,
    batch: int | None = None,
) -> Sweep:
    """A sweep with local models, this device's costs measured first, where the machine is not too busy; resumed, again
    where they can not be believed. Raises BadInput as `Sweep` does."""
    plan, costs = plan_of(settings, span, chat, prompts, backend.provenance()), None
    if resume and store.holds_sweep(Path(out)):
        mended(store.resume(Path(out), plan, prompts), backend, settings)
    else:
        store.check_new(Path(out), resume=resume)
        costs = measured(backend, settings)
    return Sweep(backend, prompts, settings, span, out, chat=chat, resume=resume, costs=costs, batch=batch)


def measured(backend: Backend, settings: Settings) -> Costs | None:
    """This device's costs; None where the machine is too busy, for a sweep's exact figures need none."""
    from mars_viz.speculators.costs import measure_costs

    try:
        return measure_costs(backend, settings.gamma, settings=settings)
    except Disturbed:
        return None


def mended(kept: store.SweepStore, backend: Backend, settings: Settings) -> None:
    """Measure again, and keep it, where nothing can be modelled from what a sweep has. Raises BadInput where the disk
    refuses."""
    if objection(kept.costs) and (costs := measured(backend, settings)) is not None:
        store.keep_costs(kept.folder, costs)


def in_reach(prompts: PromptSet, finished: int, batch: int) -> range:
    """The prompts that may be in hand after so many finished ones: those of the next `batch` questions, but no more
    than a few batches of them."""
    units: set[str] = set()
    end = min(finished + _AHEAD * batch, len(prompts))
    for index in range(finished, end):
        units.add(prompts.items[index].unit)
        if len(units) > batch:
            return range(finished, index)
    return range(finished, end)


def strict_reference(rule: Rule, temperature: float) -> Rule:
    """The lossless rule whose text the rule's strict end gives back, token for token.

    At temperature 0 that is strict matching. Above, it follows what the rule emits on a rejection: the target's own
    sample, a residual sample, or its best token, which is greedy decoding whatever the temperature; that one has no
    name of its own and is the strict end of another rule.
    """
    if temperature == 0 or rule.on_rejection is Emission.SAMPLE:
        return rule_named("strict")
    if rule.on_rejection is Emission.ARGMAX:
        return rule_named("mars-margin" if rule.name == "mars" else "mars")
    return rule_named("rejection-sampling")


def _too_long(tokens: Callable[[PromptItem], Prefix], prompts: PromptSet) -> tuple[TooLong, ...]:
    """Those that do not fit even by themselves, and the turns after them."""
    found: list[TooLong] = []
    before: PromptItem | None = None
    for item in prompts.items:
        if before is not None and item.turn > 1:
            found.append(TooLong(item.id, unanswered(before)))
            continue
        before = None
        try:
            tokens(item)
        except BadInput as error:
            found.append(TooLong(item.id, str(error)))
            before = item
    return tuple(found)
