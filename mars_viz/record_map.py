"""From a prompt to a dial map. Knows how to bring a backend, a rule and the interval walk together."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING

from mars_viz.dialmap import Budget, DialMap, MapProgress, Span, explore, span_of
from mars_viz.errors import PromptError, SettingError
from mars_viz.recording import Completing, Prompt, Recording, nothing_waits
from mars_viz.rules import rule_named
from mars_viz.run import Run, Settings, stops
from mars_viz.run_with_map import known_answers
from mars_viz.shapes import CHAIN, drafted_tokens
from mars_viz.walk import Answer

if TYPE_CHECKING:
    from mars_viz.speculators.backend import Backend


def dial_map(
    prompt: Prompt,
    *,
    target: str | PathLike[str] | None = None,
    drafter: str | PathLike[str] | None = None,
    rule: str = "mars",
    low: float | None = None,
    high: float | None = None,
    gamma: int | None = None,
    tree: str = CHAIN,
    gammas: Sequence[int] | None = None,
    temperature: float = 0.0,
    top_p: float = 1.0,
    top_k: int = 0,
    seed: int = 0,
    max_new_tokens: int = 128,
    stop: str | Iterable[str] = (),
    device: str = "auto",
    dtype: str = "auto",
    chat: bool = False,
    budget: Budget | None = None,
) -> DialMap:
    """Every text that the rule's dial can make of `prompt` between `low` and `high` (None: the dial's ends), exactly.

    `gammas` are the block lengths, or numbers of a tree's nodes, to map, none above `gamma` (None: `gamma` alone); they
    share their speculations. The
    other arguments are those of `record`. A map cut short by its `budget` says where it is exact. Exact means: by what
    the models answered while it was mapped, each prefix once. Where a row's rounding depends on its batch (all but
    small models in float32 on the CPU), a run by itself may part from it at a tie of two logits. Raises BadInput, with
    the remedy, for anything that cannot be done.
    """
    settings = Settings(
        rule=rule,
        gamma=drafted_tokens(gamma, tree),
        tree=tree,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        seed=seed,
        max_new_tokens=max_new_tokens,
        stop=stops(stop),
    )
    span = span_of(rule_named(rule), low, high, gammas or (settings.gamma,))
    from mars_viz.speculators.loading import load_backend

    backend = load_backend(target, drafter, device=device, dtype=dtype)
    return Mapping(backend, prompt, settings, span, chat=chat, budget=budget).finish()


class Mapping:
    """A map in the making: iterate it for its progress, stop whenever, and take the map so far."""

    def __init__(
        self,
        backend: Backend,
        prompt: Prompt,
        settings: Settings,
        span: Span,
        *,
        chat: bool = False,
        title: str = "",
        budget: Budget | None = None,
        run: Run | None = None,
    ):
        """Tokenise the prompt and check it against the context. Raises BadInput.

        `run` is one with the same models, prompt and settings (its dial may be any): what it and its map were answered
        is not asked again, so that the map holds the very same. Answers that its map cut to shorter blocks are.
        """
        if max(span.gammas) > settings.gamma:
            asked = settings.draft_of(max(span.gammas))
            raise SettingError(f"{asked} is to be mapped, but only {settings.gamma} tokens are drafted.")
        if settings.drafts_trees and settings.temperature > 0 and span.gammas != (settings.gamma,):
            raise SettingError(
                "Above temperature 0 what a smaller tree emits was not drawn, so trees of one size are mapped; leave "
                "the others out."
            )
        self._recording = Recording(backend, prompt, settings, chat=chat, title=title)
        self._backend, self._settings, self._span, self._budget = backend, settings, span, budget
        if run is not None and run.prompt_ids != self._recording.prompt_ids:
            raise PromptError(
                "The run's prompt was read otherwise than here, so its map cannot be made; decode it anew."
            )
        self._answers: dict[tuple[int, ...], Answer] = {} if run is None else known_answers(run)
        self._complete: Completing = nothing_waits
        before = None if run is None else run.dial_map
        self._passes_before = self._passes = 0 if before is None else before.passes
        self._seconds = 0.0 if before is None else before.seconds

    def __iter__(self) -> Iterator[MapProgress]:
        """Map to the end, a batched pass at a time. Raises BadInput when the device runs out of memory."""
        prompt = self._recording.prompt_ids
        ending = self._backend.ending(self._settings)
        rule = rule_named(self._settings.rule)
        speculator = self._backend.speculator(self._settings, rule.needs, later=True)
        self._complete = speculator.complete
        began = time.perf_counter()
        speculator.prefill(prompt)
        for progress in explore(speculator, rule, self._span, prompt, ending, self._answers, self._budget):
            self._passes = self._passes_before + progress.passes
            self._seconds += time.perf_counter() - began
            yield progress
            began = time.perf_counter()
        self._completed()
        self._complete = nothing_waits  # and so lets the speculator go, with both caches
        self._seconds += time.perf_counter() - began

    def finish(self) -> DialMap:
        """Map to the end and return the map."""
        for _ in self:
            pass
        return self.map()

    def map(self) -> DialMap:
        """The map so far, with all of its evidence."""
        self._completed()
        return DialMap(
            frame=self._recording.framed(answer.speculation for answer in self._answers.values()),
            span=self._span,
            answers=dict(self._answers),
            passes=self._passes,
            seconds=self._seconds,
        )

    def _completed(self) -> None:
        """All evidence, for the answers that lack some."""
        found = self._complete([answer.speculation for answer in self._answers.values()])
        for (prefix, answer), speculation in zip(list(self._answers.items()), found, strict=True):
            self._answers[prefix] = replace(answer, speculation=speculation)
