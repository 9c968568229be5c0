"""From a prompt to its part of a sweep: the exact dial map, reduced to lines and texts.

A sweep gives prompts to a mapper and writes its results. `LocalMapper` uses models of this process: it maps a few
prompts at once, and their requests form one batch. `on_ray.WorkerPool` has the same methods.
"""

from __future__ import annotations

import time
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from mars_viz.chat import History
from mars_viz.errors import BadInput, PromptError, SettingError
from mars_viz.exploration import DialMap, Walker, advance, walk
from mars_viz.prompts import PromptItem
from mars_viz.records import Emission, emitted
from mars_viz.rules import Rule, rule_named
from mars_viz.run import Run, joined
from mars_viz.sweep.columns import Lines, ReferenceTexts, lines_of
from mars_viz.sweep.plan import Plan
from mars_viz.sweep.texts import PromptTexts, texts_of
from mars_viz.walk import AT_ONCE, Answer, Ending, Prefix, Speculator

if TYPE_CHECKING:
    from mars_viz.speculators.backend import Backend


@dataclass(frozen=True, slots=True)
class MappedPrompt:
    """A prompt with its complete map, or without results."""

    index: int  # index in the set
    lines: Lines | None = None  # lines of the table; None without results
    texts: PromptTexts | None = None  # texts along the dial; None without results
    error: str = ""  # reason for missing results; empty otherwise


@dataclass(slots=True)
class ActivePrompt:
    """A prompt whose map is in progress."""

    index: int  # index in the set
    item: PromptItem
    prompt: Prefix  # its tokens, including the turns before it
    walker: Walker  # its texts for every dial value
    seconds: float = 0.0  # its part of the batches' wall-clock time, by requested prefixes


class LocalMapper:
    """Maps prompts with models of this process."""

    reach: int  # maximum number of questions in progress or waiting to be written
    done_by: tuple[int, ...] = ()  # number of prompts mapped by each worker; empty if there is only this process

    def __init__(
        self, backend: Backend, plan: Plan, *, batch: int = AT_ONCE, open_: Callable[[], Speculator] | None = None
    ) -> None:
        """Map `batch` prompts at once with speculators from `open_` (None: the backend's).
        Raises SettingError for no prompts."""
        self.reach = batch
        if self.reach < 1:
            raise SettingError(f"{batch} prompts at once are none; take at least 1.")
        self._backend, self._plan, self._rule = backend, plan, plan.rule
        self._open = open_ or (lambda: backend.speculator(plan.settings))
        self._hand: dict[int, ActivePrompt] = {}
        self._refused: list[MappedPrompt] = []

    def objections(self, items: Sequence[PromptItem]) -> list[str]:
        """Return, for each item, the reason why it cannot be decoded even alone; empty if it can."""
        reasons = []
        for item in items:
            try:
                self._tokens(item, item.opening)
                reasons.append("")
            except BadInput as error:
                reasons.append(str(error))
        return reasons

    def begin(self, index: int, item: PromptItem, history: History) -> None:
        """Add the prompt with this index, after the turns in `history`."""
        try:
            prompt = self._tokens(item, history)
        except BadInput as error:
            self._refused.append(MappedPrompt(index, error=str(error)))
            return
        span, dial = self._plan.span, self._plan.settings.dial
        walker = Walker(self._rule, prompt, self._ending, dial=dial, span=span, answers={})
        self._hand[index] = ActivePrompt(index, item, prompt, walker)

    def advance(self) -> list[MappedPrompt]:
        """Extend every active prompt by one round, with one batch for all, and return the finished ones."""
        refused, self._refused = self._refused, []
        if refused or not self._hand:
            return refused
        hand = list(self._hand.values())
        began, requested = time.perf_counter(), [len(active.walker.missing) for active in hand]
        advance(self._speculator, [active.walker for active in hand])
        seconds = (time.perf_counter() - began) / max(1, sum(requested))
        for active, count in zip(hand, requested, strict=True):
            active.seconds += count * seconds
        done = [active for active in hand if not active.walker.going]
        for active in done:
            del self._hand[active.index]
        return [self._mapped(active) for active in done]

    def share(self, index: int) -> float:
        """Return the part of the dial with a complete text for an active prompt; 0 for others."""
        return self._hand[index].walker.progress.exact if index in self._hand else 0.0

    def clear(self) -> None:
        """Drop all unfinished prompts."""
        self._hand.clear()
        self._refused.clear()

    def _tokens(self, item: PromptItem, history: History) -> Prefix:
        try:
            return self._backend.prompt_ids(item.prompt, self._plan.settings, history, chat=self._plan.chat)
        except BadInput as error:
            if history == item.opening:
                raise
            raise PromptError(f"With the turns before it and their answers: {error}") from error

    def _mapped(self, one: ActivePrompt) -> MappedPrompt:
        plan, item, pieces = self._plan, one.item, self._backend.tokenizer.pieces
        frame = Run(plan.settings, plan.provenance, one.prompt, (), pieces, item.id, item.prompt)
        dial_map = DialMap(frame, plan.span, one.walker.answers, one.walker.passes, one.seconds)
        texts = self._texts(dial_map)
        if plan.checks(one.index):
            from mars_viz.speculators.backend import writes  # imports torch

            texts = replace(texts, own=writes(self._backend, one.prompt, texts.target))
        lines = lines_of(dial_map, one.index, item, texts, plan.scores)
        return MappedPrompt(one.index, lines, texts_of(dial_map))

    def _texts(self, made: DialMap) -> ReferenceTexts:
        """Return the lossless texts from the map's answers; models are used only for prefixes outside the map."""
        prompt, settings = made.frame.prompt_ids, self._plan.settings
        answers = Remembering(dict(made.answers), lambda: self._beside)

        def walked(rule: Rule, dial: float | None) -> tuple[int, ...]:
            return emitted(walk(answers, rule, dial, prompt, self._ending))

        target, strict, dial = rule_named("strict"), self._rule, settings.dial
        if not made.span.over:
            strict = strict_reference(self._rule, settings.temperature)
            dial = None if strict.dial is None else strict.dial.strict
        text = walked(strict, dial)
        own = text if strict is target else walked(target, None if target.dial is None else target.dial.strict)
        return ReferenceTexts(text, own, self._text, self._ending.ended)

    def _text(self, token_ids: tuple[int, ...]) -> str:
        if token_ids and token_ids[-1] in self._backend.eos_ids:  # not all end tokens are special
            token_ids = token_ids[:-1]
        return joined(map(self._backend.tokenizer.pieces.__getitem__, token_ids))

    @cached_property
    def _speculator(self) -> Speculator:
        return self._open()

    @cached_property
    def _beside(self) -> Speculator:
        """A second speculator, which leaves the batch's caches unchanged."""
        return self._open()

    @property
    def _ending(self) -> Ending:
        return self._backend.ending(self._plan.settings)


class Remembering:
    """Speculator with remembered answers; opens the models only for unknown prefixes and remembers their answers."""

    def __init__(self, known: MutableMapping[Prefix, Answer], open_: Callable[[], Speculator]):
        self._known, self._open = known, open_

    def speculate(self, prefixes: Sequence[Prefix]) -> list[Answer]:
        """Return one answer per prefix."""
        missing = [prefix for prefix in dict.fromkeys(prefixes) if prefix not in self._known]
        if missing:
            for prefix, answer in zip(missing, self._open().speculate(missing), strict=True):
                self._known[prefix] = answer
        return [self._known[prefix] for prefix in prefixes]


def strict_reference(rule: Rule, temperature: float) -> Rule:
    """Return the lossless rule whose text equals that of the rule's strict end, token for token.

    At temperature 0 that is strict matching. Above, it depends on the rule's emission after a rejection: the target's
    own sample, a residual sample, or its best token. The last is greedy decoding at any temperature; it has no rule of
    its own and is the strict end of another rule.
    """
    if temperature == 0 or rule.on_rejection is Emission.SAMPLE:
        return rule_named("strict")
    if rule.on_rejection is Emission.ARGMAX:
        return rule_named("mars-margin" if rule.name == "mars" else "mars")
    return rule_named("rejection-sampling")
