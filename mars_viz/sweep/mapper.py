"""From a prompt to what a sweep writes of it: its exact dial map, reduced to lines and texts.

A sweep hands out prompts and writes what comes back; who maps them is a `PromptMapper`. `LocalMapper` does with models
of this process: a few prompts are in hand at once, and what their maps ask goes out as one batch. Knows walks, maps and
plans; knows no folder and no order in which prompts are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from mars_viz.chat import History
from mars_viz.dialmap import DialMap, Exploration
from mars_viz.errors import BadInput, PromptError, SettingError
from mars_viz.prompts import PromptItem
from mars_viz.records import Emission, emitted
from mars_viz.rules import Rule, rule_named
from mars_viz.run import Run, joined
from mars_viz.sweep.active_prompts import ActivePrompts, advance
from mars_viz.sweep.columns import Lines, ReferenceTexts, lines_of
from mars_viz.sweep.plan import Plan
from mars_viz.sweep.texts import PromptTexts, texts_of
from mars_viz.walk import Answer, Ending, Prefix, Speculator, walk

if TYPE_CHECKING:
    from mars_viz.speculators.backend import Backend


@dataclass(frozen=True, slots=True)
class MappedPrompt:
    """A prompt whose map is complete, or that has none."""

    index: int
    """Its place in the set."""
    lines: Lines | None = None
    """Of the table; None where it has no results."""
    texts: PromptTexts | None = None
    """What it reads along the dial; None where it has no results."""
    error: str = ""
    """Why it has no results; empty where it has."""


class PromptMapper(Protocol):
    """Whoever maps the prompts of a sweep."""

    @property
    def reach(self) -> int:
        """How many questions may be begun or wait to be written at once."""
        ...

    @property
    def done_by(self) -> tuple[int, ...]:
        """Prompts that each worker has mapped; empty where there is only this process."""
        ...

    def objections(self, items: Iterable[PromptItem]) -> list[str]:
        """Why each of them cannot be decoded even by itself; empty where it can."""
        ...

    def begin(self, index: int, item: PromptItem, history: History) -> None:
        """Take on the prompt at this place of the set, after the turns before it."""
        ...

    def advance(self) -> Sequence[MappedPrompt]:
        """Go on for a moment, and return what is done. Raises BadInput where that cannot be."""
        ...

    def share(self, index: int) -> float:
        """Of the prompt at this place, the part of the dial whose text is complete, as far as it is known."""
        ...

    def clear(self) -> None:
        """Let go of what was begun: nobody waits for it any more."""
        ...


class LocalMapper:
    """With models of this process."""

    reach: int
    done_by: tuple[int, ...] = ()

    def __init__(
        self, backend: Backend, plan: Plan, *, batch: int | None = None, open_: Callable[[], Speculator] | None = None
    ) -> None:
        """`batch` prompts are mapped at once (None: as many as the backend says), by speculators that `open_` opens
        (None: the backend's). Raises SettingError for no prompts."""
        self.reach = backend.batch if batch is None else batch
        if self.reach < 1:
            raise SettingError(f"{batch} prompts at once are none; take at least 1.")
        self._backend, self._plan, self._rule = backend, plan, plan.rule
        self._open = open_ or (lambda: backend.speculator(plan.settings))
        self._hand: dict[int, ActivePrompts] = {}
        self._refused: list[MappedPrompt] = []

    @property
    def room(self) -> int:
        """How many more prompts it can take on now."""
        return self.reach - len(self._hand)

    @property
    def busy(self) -> bool:
        """True while something that it took on is not done."""
        return bool(self._hand or self._refused)

    def objections(self, items: Iterable[PromptItem]) -> list[str]:
        """Why each of them cannot be decoded even by itself; empty where it can."""
        return [self._objection(item) for item in items]

    def begin(self, index: int, item: PromptItem, history: History) -> None:
        """Take on a prompt."""
        try:
            prompt = self._tokens(item, history)
        except BadInput as error:
            self._refused.append(MappedPrompt(index, error=str(error)))
            return
        span, dial = self._plan.span, self._plan.settings.dial
        exploration = Exploration(self._rule, span, prompt, self._ending, {}, dial=dial)
        self._hand[index] = ActivePrompts(index, item, prompt, exploration)

    def advance(self) -> list[MappedPrompt]:
        """One round further for every prompt in hand; those that are done."""
        found, self._refused = self._refused, []
        if found or not self._hand:
            return found
        advance(self._speculator, list(self._hand.values()))
        done = [one for one in self._hand.values() if not one.exploration.going]
        for one in done:
            del self._hand[one.index]
        return [self._mapped(one) for one in done]

    def share(self, index: int) -> float:
        """Of a prompt in hand, the part of the dial whose text is complete; 0 of others."""
        return self._hand[index].share if index in self._hand else 0.0

    def clear(self) -> None:
        """Let go of what is in hand."""
        self._hand.clear()
        self._refused.clear()

    def _objection(self, item: PromptItem) -> str:
        try:
            self._tokens(item, item.opening)
        except BadInput as error:
            return str(error)
        return ""

    def _tokens(self, item: PromptItem, history: History) -> Prefix:
        """Raises BadInput where it does not fit in the context."""
        try:
            return self._backend.prompt_ids(item.prompt, self._plan.settings, history, chat=self._plan.chat)
        except BadInput as error:
            if history == item.opening:
                raise
            raise PromptError(f"With the turns before it and their answers: {error}") from error

    def _mapped(self, one: ActivePrompts) -> MappedPrompt:
        """A prompt whose map is complete."""
        plan, item, pieces = self._plan, one.item, self._backend.tokenizer.pieces
        frame = Run(plan.settings, plan.provenance, one.prompt, (), pieces, item.id, item.prompt)
        made = DialMap(frame, plan.span, one.exploration.answers, one.exploration.passes, one.seconds)
        texts = self._texts(made)
        if plan.checks(one.index):
            from mars_viz.speculators.autoregressive import writes  # imports torch

            texts = replace(texts, own=writes(self._backend, one.prompt, texts.target))
        lines = lines_of(made, one.index, item, texts, plan.scores)
        return MappedPrompt(one.index, lines, texts_of(made))

    def _texts(self, made: DialMap) -> ReferenceTexts:
        """The lossless texts, walked over the map's own answers; models are asked only where they leave the map."""
        prompt, settings = made.frame.prompt_ids, self._plan.settings
        known = Remembering(dict(made.answers), lambda: self._beside)

        def walked(rule: Rule) -> tuple[int, ...]:
            dial = None if rule.dial is None else rule.dial.strict
            return emitted(walk(known, rule, dial, prompt, self._ending))

        target = rule_named("strict")
        if made.span.over:
            whole = emitted(walk(known, self._rule, settings.dial, prompt, self._ending))
            return ReferenceTexts(whole, walked(target), self._text)
        strict = strict_reference(self._rule, settings.temperature)
        text = walked(strict)
        return ReferenceTexts(text, text if strict is target else walked(target), self._text)

    def _text(self, token_ids: tuple[int, ...]) -> str:
        if token_ids and token_ids[-1] in self._backend.eos_ids:  # not all end tokens are special
            token_ids = token_ids[:-1]
        return joined(map(self._backend.tokenizer.pieces.__getitem__, token_ids))

    @cached_property
    def _speculator(self) -> Speculator:
        return self._open()

    @cached_property
    def _beside(self) -> Speculator:
        """Another one, so that the batch's caches stay as they are."""
        return self._open()

    @property
    def _ending(self) -> Ending:
        return self._backend.ending(self._plan.settings)


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
