"""From a prompt to a dial map: combines a backend, a rule and the interval walk."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING

from mars_viz.chat import NO_HISTORY, History
from mars_viz.controllers import NONE, control_named
from mars_viz.dialmap import Budget, DialMap, MapProgress, Span, controller_span, explore, span_of
from mars_viz.errors import EvidenceError, PromptError, SettingError
from mars_viz.recording import (
    Completing,
    Prompt,
    Recording,
    checked_history,
    given_or_loaded,
    nothing_waits,
    tree_of,
)
from mars_viz.rules import rule_named
from mars_viz.run import Run, Settings, stops
from mars_viz.run_with_map import known_answers
from mars_viz.shapes import drafted_tokens
from mars_viz.walk import Answer

if TYPE_CHECKING:
    from mars_viz.speculators.backend import Backend

OVER_DIAL, OVER_CONTROLLER = "dial", "controller"
"""Values of `over`: map the rule's dial, or a draft-length controller's threshold."""


def dial_map(
    prompt: Prompt,
    *,
    backend: Backend | None = None,
    target: str | PathLike[str] | None = None,
    drafter: str | PathLike[str] | None = None,
    rule: str = "mars",
    dial: float | None = None,
    over: str = OVER_DIAL,
    low: float | None = None,
    high: float | None = None,
    gamma: int | None = None,
    tree: str | None = None,
    controller: str = NONE,
    gammas: Sequence[int] | None = None,
    temperature: float = 0.0,
    top_p: float = 1.0,
    top_k: int = 0,
    seed: int = 0,
    max_new_tokens: int = 128,
    stop: str | Iterable[str] = (),
    device: str = "auto",
    dtype: str = "auto",
    chat: bool | None = None,
    system: str = "",
    history: History = NO_HISTORY,
    budget: Budget | None = None,
) -> DialMap:
    """Return every text that the rule's dial can produce for `prompt` between `low` and `high` (None: the dial's ends).

    `gammas` are the block lengths, or a tree's numbers of nodes, to map, none above `gamma` (None: `gamma` only); they
    share speculations.

    `over='controller'` maps the threshold of the draft-length controller named by `controller`, from drafts of full
    length and at one `dial` value of the rule: every distinct text, number of rounds and number of drafted tokens.
    Otherwise the rule's dial is mapped, and `controller` cuts drafts at its one threshold.

    The other arguments are those of `record`. A map that stops at its `budget` still knows the ranges in which it is
    exact. Exact means: by the models' answers while mapping, each prefix once. If a row's rounding depends on its batch
    (all but small models in float32 on the CPU), a separate run may differ at a tie of two logits. Raises BadInput with
    a remedy for arguments that cannot be used.
    """
    tree = tree_of(tree, backend)
    settings = Settings(
        rule=rule,
        dial=dial,
        gamma=drafted_tokens(gamma, tree),
        tree=tree,
        controller=controller,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        seed=seed,
        max_new_tokens=max_new_tokens,
        stop=stops(stop),
    )
    if over == OVER_DIAL and dial is not None:
        raise SettingError(
            "A map over the rule's dial is not at one value of it; leave dial out, or give low and high."
        )
    settings, span = mapping_of(settings, over, low, high, gammas or (settings.gamma,))
    history = checked_history(prompt, system, history, chat)
    models = given_or_loaded(backend, target, drafter, device, dtype)
    return Mapping(models, prompt, settings, span, chat=chat, history=history, budget=budget).finish()


def mapping_of(
    settings: Settings, over: str, low: float | None, high: float | None, gammas: Iterable[int]
) -> tuple[Settings, Span]:
    """Return the settings and span to map: the rule's dial, or the threshold of the settings' controller on uncut
    drafts. Raises BadInput if there is nothing to map."""
    if over == OVER_DIAL:
        return settings, span_of(rule_named(settings.rule), low, high, gammas)
    if over != OVER_CONTROLLER:
        raise SettingError(f"over is {over!r}; a map is one over {OVER_DIAL!r} or over {OVER_CONTROLLER!r}.")
    control = control_named(settings.controller)
    if control is None:
        raise SettingError("There is no controller whose threshold could be mapped; name one, such as svip.")
    rule_named(settings.rule).checked_dial(settings.dial)
    return replace(settings, controller=NONE), controller_span(control.controller, low, high, gammas)


class Mapping:
    """A map in progress: iterate it, stop at any time, and take the map so far."""

    def __init__(
        self,
        backend: Backend,
        prompt: Prompt,
        settings: Settings,
        span: Span,
        *,
        chat: bool | None = None,
        title: str = "",
        history: History = NO_HISTORY,
        budget: Budget | None = None,
        run: Run | None = None,
    ):
        """Tokenise the prompt and check it against the context. Raises BadInput.

        `run` has the same models, prompt and settings (its dial may differ). Answers in it and in its map are reused,
        so the new map contains the same ones; answers that its map cut to shorter blocks are requested again. For a
        controller's threshold, the run's dial is the map's.
        """
        if span.over and settings.controller != NONE:
            raise SettingError("A controller's threshold is mapped from drafts that no controller cuts; leave it out.")
        if span.over and settings.drafts_trees:
            raise SettingError("Draft-length controllers cut chains; map drafts that are chains (--tree chain).")
        if span.over and span.gammas != (settings.gamma,):
            raise SettingError(
                "A controller's threshold is mapped at one draft length, the run's own γ; leave others out."
            )
        if max(span.gammas) > settings.gamma:
            draft = settings.draft_of(max(span.gammas))
            raise SettingError(f"{draft} is to be mapped, but only {settings.gamma} tokens are drafted.")
        if settings.drafts_trees and settings.temperature > 0 and span.gammas != (settings.gamma,):
            raise SettingError(
                "Above temperature 0 what a smaller tree emits was not drawn, so trees of one size are mapped; leave "
                "the others out."
            )
        if run is not None and not backend.has_made(run.provenance):
            raise EvidenceError(
                "This run was made with other weights than those at hand, or in another dtype, so its map cannot be "
                "made here. Decode its prompt again, and map that."
            )
        self._recording = Recording(backend, prompt, settings, chat=chat, title=title, history=history)
        self._backend, self._settings, self._span, self._budget = backend, settings, span, budget
        if run is not None and run.prompt_ids != self._recording.prompt_ids:
            raise PromptError(
                "The run's prompt was read otherwise than here, so its map cannot be made; decode it anew."
            )
        self._answers: dict[tuple[int, ...], Answer] = {} if run is None else known_answers(run)
        self._complete: Completing = nothing_waits
        before = None if run is None else run.controller_map if span.over else run.dial_map
        self._passes_before = self._passes = 0 if before is None else before.passes
        self._seconds = 0.0 if before is None else before.seconds

    def __iter__(self) -> Iterator[MapProgress]:
        """Map to the end, one batched pass at a time. Raises BadInput if the device runs out of memory."""
        from mars_viz.speculators.memory import trim_heap

        prompt = self._recording.prompt_ids
        ending = self._backend.ending(self._settings)
        rule = rule_named(self._settings.rule)
        controller, dial = self._span.controller, rule.checked_dial(self._settings.dial)
        needs = rule.needs if controller is None else (*rule.needs, *controller.needs)
        speculator = self._backend.speculator(self._settings, needs, later=True)
        self._complete = speculator.complete
        began = time.perf_counter()
        speculator.prefill(prompt)
        for progress in explore(speculator, rule, self._span, prompt, ending, self._answers, self._budget, dial):
            self._passes = self._passes_before + progress.passes
            self._seconds += time.perf_counter() - began
            yield progress
            began = time.perf_counter()
        self._completed()
        self._complete = nothing_waits  # releases the speculator with both caches
        trim_heap()
        self._seconds += time.perf_counter() - began

    def finish(self) -> DialMap:
        """Map to the end and return the map."""
        for _ in self:
            pass
        return self.map()

    def map(self) -> DialMap:
        """Return the map so far with all evidence."""
        self._completed()
        return DialMap(
            frame=self._recording.framed(answer.speculation for answer in self._answers.values()),
            span=self._span,
            answers=dict(self._answers),
            passes=self._passes,
            seconds=self._seconds,
        )

    def _completed(self) -> None:
        """Add all evidence to the answers that lack some."""
        completed = self._complete([answer.speculation for answer in self._answers.values()])
        for (prefix, answer), speculation in zip(list(self._answers.items()), completed, strict=True):
            self._answers[prefix] = replace(answer, speculation=speculation)
