"""From a prompt to its part of a sweep: the exact dial map, reduced to lines and texts.

A sweep gives prompts to a mapper and writes its results. `LocalMapper` uses models of this process: it maps a few
prompts at once, and their requests form one batch. `on_ray.WorkerPool` has the same methods.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from mars_viz.chat import History
from mars_viz.controllers import NONE, Control
from mars_viz.errors import BadInput, SettingError
from mars_viz.exploration import DialMap, Walker, advance, walk
from mars_viz.prompts import PromptItem, PromptSet
from mars_viz.records import Emission, emitted
from mars_viz.rules import Rule, rule_named
from mars_viz.run import Run, joined
from mars_viz.sweep.columns import Lines, ReferenceTexts, lines_of
from mars_viz.sweep.plan import Plan
from mars_viz.sweep.texts import PromptTexts, texts_of
from mars_viz.walk import AT_ONCE, Answer, Prefix, Speculator, cut_by

if TYPE_CHECKING:
    from mars_viz.speculators.backend import Backend


@dataclass(frozen=True, slots=True)
class MappedPrompt:
    """A prompt with its complete map for each requested plan, or without results."""

    index: int  # index in the set
    results: Mapping[int, tuple[Lines, PromptTexts]] = field(default_factory=dict)
    """By the plan's number, lines of the table and texts along the dial; empty without results."""
    error: str = ""  # reason for missing results; empty otherwise


def check_fit(backend: Backend, plan: Plan, prompts: PromptSet) -> None:
    """Raise SettingError if no prompt fits in the context; of a conversation the first turn counts."""
    reasons = []
    for item in prompts.items:
        if item.turn == 1:
            try:
                backend.prompt_ids(item.prompt, plan.settings, item.opening, chat=plan.chat)
                return
            except BadInput as error:
                reasons.append(error)
    why = reasons[0] if reasons else "Take a set that has some."
    raise SettingError(f"None of the {len(prompts)} prompts can be swept. {why}")


@dataclass(slots=True)
class ActivePrompt:
    """A prompt whose maps are in progress."""

    index: int  # index in the set
    item: PromptItem
    prompt: Prefix  # its tokens, including the turns before it
    walkers: dict[int, Walker]  # by the plan's number, its texts for every dial value
    seconds: dict[int, float]  # by the plan's number, its part of the batches' wall-clock time, by requested prefixes


class LocalMapper:
    """Maps prompts with models of this process.

    Several plans form a grid, which differs only in a rule's setting or a controller's threshold. They share the
    models' answers until a prompt is finished, because a speculation does not depend on the rule.
    """

    reach: int  # maximum number of questions in progress or waiting to be written
    done_by: tuple[int, ...] = ()  # number of prompts mapped by each worker; empty if there is only this process

    def __init__(self, backend: Backend, *plans: Plan, batch: int = AT_ONCE) -> None:
        """Map `batch` prompts at once. Raises SettingError for no prompts."""
        if batch < 1:
            raise SettingError(f"{batch} prompts at once are none; take at least 1.")
        self.reach = batch
        self._backend, self._plans, self._plan = backend, plans, plans[0]
        self._ending = backend.ending(plans[0].settings)
        self._hand: dict[int, ActivePrompt] = {}
        self._refused: list[MappedPrompt] = []
        self.shared: dict[Prefix, Answer] = {}
        """The answers of active prompts, for several plans."""

    def check(self, prompts: PromptSet) -> None:
        check_fit(self._backend, self._plan, prompts)

    def begin(self, index: int, item: PromptItem, history: History, plans: Sequence[int] = (0,)) -> None:
        """Add the prompt with this index, after the turns in `history`, for the plans with these numbers."""
        try:
            prompt = self._backend.prompt_ids(item.prompt, self._plan.settings, history, chat=self._plan.chat)
        except BadInput as error:
            after = "" if history == item.opening else "With the turns before it and their answers: "
            self._refused.append(MappedPrompt(index, error=f"{after}{error}"))
            return
        walkers = {}
        for number in plans:
            rule, span, dial = self._plans[number].rule, self._plans[number].span, self._plans[number].settings.dial
            walkers[number] = Walker(rule, prompt, self._ending, dial=dial, span=span, answers={})
        self._hand[index] = ActivePrompt(index, item, prompt, walkers, dict.fromkeys(walkers, 0.0))

    def advance(self) -> list[MappedPrompt]:
        """Extend every active prompt by one round, with one batch per plan for all, and return the finished ones.
        Raises BadInput if it cannot continue."""
        refused, self._refused = self._refused, []
        if refused:
            return refused
        for number, speculator in enumerate(self._speculators if self._hand else ()):
            hand = [each for each in self._hand.values() if number in each.walkers and each.walkers[number].going]
            if not hand:
                continue
            began, requested = time.perf_counter(), [len(active.walkers[number].missing) for active in hand]
            advance(speculator, [active.walkers[number] for active in hand])
            seconds = (time.perf_counter() - began) / max(1, sum(requested))
            for active, count in zip(hand, requested, strict=True):
                active.seconds[number] += count * seconds
        done = [each for each in self._hand.values() if not any(walker.going for walker in each.walkers.values())]
        return [self._mapped(self._hand.pop(active.index)) for active in done]

    def share(self, index: int) -> float:
        """Return the part of the dial with a complete text for an active prompt, as far as known; 0 for others."""
        if index not in self._hand:
            return 0.0
        walkers = self._hand[index].walkers.values()
        return sum(walker.progress.exact for walker in walkers) / len(walkers)

    def clear(self) -> None:
        self._hand.clear()
        self._refused.clear()
        self.shared.clear()

    def _mapped(self, one: ActivePrompt) -> MappedPrompt:
        results, pieces, own = dict[int, tuple[Lines, PromptTexts]](), self._backend.tokenizer.pieces, True
        for number, walker in one.walkers.items():
            plan = self._plans[number]
            frame = Run(plan.settings, plan.provenance, one.prompt, (), pieces, one.item.id, one.item.prompt)
            dial_map = DialMap(frame, plan.span, walker.answers, walker.passes, one.seconds[number])
            texts = self._texts(dial_map, number)
            if plan.checks(one.index) and not results:
                from mars_viz.speculators.backend import writes  # imports torch

                own = writes(self._backend, one.prompt, texts.target)
            lines = lines_of(dial_map, one.index, one.item, replace(texts, own=own), plan.scores)
            results[number] = lines, texts_of(dial_map)
        for prefix in [each for each in self.shared if each[: len(one.prompt)] == one.prompt]:
            del self.shared[prefix]
        return MappedPrompt(one.index, results)

    def _texts(self, made: DialMap, number: int) -> ReferenceTexts:
        """Return the lossless texts from the map's answers; models are used only for prefixes outside the map."""
        prompt, settings = made.frame.prompt_ids, made.frame.settings
        answers = Remembering(dict(made.answers), lambda: self._beside[number])

        def walked(rule: Rule, dial: float | None) -> tuple[int, ...]:
            return emitted(walk(answers, rule, dial, prompt, self._ending))

        target, strict, dial = rule_named("strict"), made.rule, settings.dial
        if not made.span.over:
            strict = strict_reference(made.rule, settings.temperature)
            dial = strict.strict
        text = walked(strict, dial)
        own = text if strict is target else walked(target, target.strict)
        return ReferenceTexts(text, own, self._text, self._ending.ended)

    def _text(self, token_ids: tuple[int, ...]) -> str:
        if token_ids and token_ids[-1] in self._backend.eos_ids:  # not all end tokens are special
            token_ids = token_ids[:-1]
        return joined(map(self._backend.tokenizer.pieces.__getitem__, token_ids))

    def _opened(self) -> list[Speculator]:
        """Return a speculator per plan, over one of the models'."""
        settings = self._plan.settings
        if len(self._plans) == 1:
            return [self._backend.speculator(settings)]
        whole = self._backend.speculator(replace(settings, controller=NONE))
        return [Remembering(self.shared, lambda: whole, plan.settings.control) for plan in self._plans]

    @cached_property
    def _speculators(self) -> list[Speculator]:
        return self._opened()

    @cached_property
    def _beside(self) -> list[Speculator]:
        """Second speculators, which leave the batch's caches unchanged."""
        return self._opened()


class Remembering:
    """Speculator with remembered answers, cut by a controller; opens the models only for unknown prefixes."""

    def __init__(
        self, known: MutableMapping[Prefix, Answer], open_: Callable[[], Speculator], control: Control | None = None
    ):
        self._known, self._open, self._control = known, open_, control

    def speculate(self, prefixes: Sequence[Prefix]) -> list[Answer]:
        missing = [prefix for prefix in dict.fromkeys(prefixes) if prefix not in self._known]
        if missing:
            for prefix, answer in zip(missing, self._open().speculate(missing), strict=True):
                self._known[prefix] = answer
        return [cut_by(self._control, self._known[prefix]) for prefix in prefixes]


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
