"""From a prompt to a Run or a DialMap, and from a run to its prompt's texts under other rules. Combines a backend, a
rule and a walk, and imports the model libraries only for decoding."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from os import PathLike
from typing import TYPE_CHECKING, Any, Unpack

from mars_viz import backend_choice
from mars_viz.axis import RuleDial, Span, Threshold, axis_of, check_span
from mars_viz.chat import NO_HISTORY, History, check_prompt, check_template, checked_system
from mars_viz.controllers import LENGTH, NONE, control_named
from mars_viz.errors import BadInput, EvidenceError, PromptError, SettingError
from mars_viz.exploration import (
    Budget,
    DialMap,
    MapProgress,
    Stand,
    Together,
    Walker,
    explore,
    known_answers,
    walk_all,
    walk_together,
    walkers_of,
)
from mars_viz.options import declared
from mars_viz.records import Round, Speculation, emitted
from mars_viz.rules import rule_named
from mars_viz.run import Keywords, Run, Settings, joined, settings_from
from mars_viz.shapes import CHAIN
from mars_viz.trace import Trace
from mars_viz.walk import AT_ONCE, Answer

if TYPE_CHECKING:
    from mars_viz.speculators.backend import Backend

Prompt = str | Sequence[int]  # a text, or its token ids
Completing = Callable[[Sequence[Speculation]], list[Speculation]]  # returns these speculations with all evidence
OVER_DIAL, OVER_CONTROLLER, OVER_GAMMA = "dial", "controller", "gamma"
"""Values of `over`: map the rule's dial, or a draft-length controller's threshold."""


class Decoding(Keywords, total=False):
    """Keyword arguments of a decode."""

    target: str | PathLike[str] | None
    drafter: str | PathLike[str] | None
    device: str
    dtype: str
    chat: bool | None
    system: str
    history: History


def record(prompt: Prompt, *, backend: Backend | None = None, **keywords: Unpack[Decoding]) -> Run:
    """Decode `prompt` speculatively and return the run with every decision.

    `prompt` is a text or token ids. `backend` holds loaded models (see `mars_viz.backend`). Without it they are loaded
    for this prompt only: `target` is a hub id or a folder (None: the built-in one); `drafter` is one of these or
    'ngram:n=3' for prompt lookup (None: the one that comes with the target, else prompt lookup); `device` and `dtype`
    are 'auto' or a name. The settings are the fields of `mars_viz.Settings`: `rule` is a name from
    `mars_viz.rules.RULES` and `dial` its threshold (None: the rule's default). `gamma` is the number of tokens drafted
    per round (None: 6, or the tree's size). `tree` is the shape of drafts, such as 'dynamic:depth=6,topk=4,nodes=16'
    (None: the backend's, or chains). `controller` shortens drafts, such as 'svip:0.3' (see `controllers`; the models
    still draft γ tokens). `stop` is one text, or several, that end decoding at the token that completes one. `chat`
    sends the prompt through the target's chat template (None: if there is one), `system` is a system prompt, and
    `history` the conversation before the prompt, such as `run.conversation` of an earlier run.

    Raises BadInput with a remedy for arguments that cannot be used.
    """
    settings, others = _divided(backend, keywords)
    rule_named(settings.rule).checked_dial(settings.dial)  # before the models are loaded, as are prompt and names
    models, how = _opened(prompt, backend, others)
    return Recording(models, prompt, settings, **how).finish()


def _divided(backend: Backend | None, keywords: Decoding) -> tuple[Settings, dict[str, Any]]:
    of_settings = {name: value for name, value in keywords.items() if name in declared(Settings)}
    others = {name: value for name, value in keywords.items() if name not in of_settings}
    return settings_from(of_settings, CHAIN if backend is None else backend.tree), others  # type: ignore[arg-type]


def _opened(prompt: Prompt, backend: Backend | None, others: dict[str, Any]) -> tuple[Backend, dict[str, Any]]:
    """Return the backend, loaded by names in `others` if it is None, and arguments of `Recording`. Raises BadInput."""
    names = {name: others.pop(name, None) for name in ("target", "drafter", "device", "dtype")}
    chat, system, history = others.pop("chat", None), others.pop("system", ""), others.pop("history", NO_HISTORY)
    if others:
        raise TypeError(f"There is no argument {', '.join(others)}.")
    how = {"chat": chat, "history": checked_history(prompt, system, history, chat)}
    if backend is None:
        return backend_choice.backend(**names), how
    if not set(names.values()) <= {None, backend_choice.AUTO}:
        raise SettingError("The backend has its models already; leave target, drafter, device and dtype out.")
    return backend, how


def checked_history(prompt: Prompt, system: str, history: History, chat: bool | None) -> History:
    """Return the history with `system`, if given. Raises BadInput for a prompt or system prompt that is unusable."""
    if isinstance(prompt, str) or not isinstance(prompt, Sequence):
        check_prompt(prompt)
    elif system.strip() or history != NO_HISTORY:
        raise PromptError("A prompt of token ids has no system prompt and no history; give the prompt as text.")
    return replace(history, system=checked_system(system or history.system, chat))


def record_all(
    backend: Backend, prompts: Iterable[Prompt], settings: Settings, *, chat: bool | None = None, batch: int = AT_ONCE
) -> Iterator[Run]:
    """Decode the prompts in batches of `batch` and yield their runs in order.

    Each run equals that of `Recording` on the prompt alone, within the batch's rounding (see
    `speculators.networks.batched`). The seconds of a batch are divided among its runs. Raises BadInput for a bad prompt
    after yielding the runs before it.
    """
    if batch < 1:
        raise SettingError(f"A batch of {batch} prompts is none; take at least 1.")
    waiting, refused = iter(prompts), None
    while refused is None:
        together: list[Recording] = []
        try:
            for prompt in islice(waiting, batch):
                together.append(Recording(backend, prompt, settings, chat=chat))
        except BadInput as error:
            refused = error  # those before it have their turn first
        if not together:
            break
        for _ in _decoded(together):
            pass
        yield from (recording.run() for recording in together)
    if refused is not None:
        raise refused


class Recording:
    """A decode in progress: iterate it for rounds, stop at any time, and take the run so far."""

    def __init__(
        self,
        backend: Backend,
        prompt: Prompt,
        settings: Settings,
        *,
        chat: bool | None = None,
        title: str = "",
        history: History = NO_HISTORY,
    ):
        """Tokenise the prompt after the turns before it, and check it against the context. Raises BadInput."""
        check_template(history.system, backend.uses_template(chat), backend.target.name)
        self._backend, self._rule = backend, rule_named(settings.rule)
        self.settings = replace(settings, dial=self._rule.checked_dial(settings.dial))
        if settings.refused_draft:
            raise SettingError(settings.refused_draft)
        backend.check(settings)
        self.prompt_ids = backend.prompt_ids(prompt, settings, history, chat=chat)
        read = prompt if isinstance(prompt, str) else joined(map(backend.tokenizer.pieces.__getitem__, self.prompt_ids))
        self._prompt, self._title, self._history = read, title, history
        self._chat = chat if isinstance(prompt, str) else False
        self._rounds: list[Round] = []
        self._complete: Completing = list
        self._complete_rounds, self._prefill_seconds, self._seconds = 0, 0.0, 0.0

    @property
    def token_ids(self) -> tuple[int, ...]:
        return emitted(self._rounds)

    def __iter__(self) -> Iterator[Round]:
        """Decode to the end, one round at a time; `run` adds the evidence that the decisions did not need. Raises
        BadInput if the device runs out of memory."""
        return _decoded([self])

    def finish(self) -> Run:
        for _ in self:
            pass
        return self.run()

    def run(self) -> Run:
        """Return the rounds so far as a run with all evidence."""
        began = time.perf_counter()
        self._completed()
        self._seconds += time.perf_counter() - began
        return self.framed([round_.speculation for round_ in self._rounds], Trace(self._rounds))

    def _completed(self) -> None:
        lacking = self._rounds[self._complete_rounds :]
        completed = zip(lacking, self._complete([round_.speculation for round_ in lacking]), strict=True)
        self._rounds[self._complete_rounds :] = [replace(round_, speculation=each) for round_, each in completed]
        self._complete_rounds = len(self._rounds)

    def framed(self, speculations: Iterable[Speculation], rounds: Sequence[Round] = ()) -> Run:
        """Return a run of these rounds, with the text of every token in the speculations."""
        ids = set(self.prompt_ids)
        for speculation in speculations:
            ids |= speculation.named
        provenance = self._backend.provenance(self._seconds, self._prefill_seconds, self._chat)
        texts: dict[str, Any] = {"title": self._title, "prompt": self._prompt, "history": self._history}
        return Run(self.settings, provenance, self.prompt_ids, rounds, self._backend.pieces_of(ids), **texts)


def _decoded(recordings: Sequence[Recording]) -> Iterator[Round]:
    """Decode recordings with one backend and settings as one batch. The caller's time between rounds is not counted."""
    from mars_viz.speculators.devices import trim_heap

    first, count = recordings[0], len(recordings)
    speculator = first._backend.speculator(first.settings, first._rule.needs, later=True)
    prompts = [recording.prompt_ids for recording in recordings]
    seconds = speculator.prefill(*prompts)
    for recording in recordings:
        recording._rounds, recording._complete_rounds, recording._complete = [], 0, speculator.complete
        recording._seconds, recording._prefill_seconds = 0.0, seconds / count
    ending = first._backend.ending(first.settings)
    for index, round_ in walk_all(speculator, first._rule, first.settings.dial, prompts, ending):
        recordings[index]._rounds.append(round_)
        recordings[index]._seconds += round_.timing.total
        yield round_
    began = time.perf_counter()
    for recording in recordings:
        recording._completed()
        recording._complete = list  # releases the speculator with both caches
    for recording in recordings:
        recording._seconds += (time.perf_counter() - began) / count
    trim_heap()


def dial_map(
    prompt: Prompt,
    *,
    backend: Backend | None = None,
    over: str = OVER_DIAL,
    low: float | None = None,
    high: float | None = None,
    gammas: Sequence[int] | None = None,
    budget: Budget | None = None,
    **keywords: Unpack[Decoding],
) -> DialMap:
    """Return every text that the rule's dial can produce for `prompt` between `low` and `high` (None: the dial's ends).

    `gammas` are the block lengths, or a tree's numbers of nodes, to map, none above `gamma` (None: `gamma` only); they
    share speculations.

    `over='controller'` maps the threshold of the draft-length controller named by `controller`, from drafts of full
    length and at one `dial` value of the rule: every distinct text, number of rounds and number of drafted tokens.
    Otherwise the rule's dial is mapped, and `controller` cuts drafts at its one threshold.

    The other arguments are those of `record`. A map that stops at its `budget` still knows the ranges in which it is
    exact. Exact means: by the models' answers while mapping, each prefix once. A row's rounding depends on its batch:
    a separate run may differ at a tie of two logits. Raises BadInput with a remedy for arguments that cannot be used.
    """
    settings, others = _divided(backend, keywords)
    if over == OVER_DIAL and settings.dial is not None:
        raise SettingError("A map over the rule's dial has no single dial; leave it out, or give low and high.")
    settings, span = mapping_of(settings, over, low, high, gammas or (settings.gamma,))
    models, how = _opened(prompt, backend, others)
    return Mapping(models, prompt, settings, span, budget=budget, **how).finish()


def mapping_of(
    settings: Settings, over: str, low: float | None, high: float | None, gammas: Iterable[int]
) -> tuple[Settings, Span]:
    """Return the settings and span to map: the rule's dial, or the threshold of the settings' controller on uncut
    drafts. Raises BadInput if there is nothing to map."""
    if over == OVER_DIAL:
        return settings, RuleDial(rule_named(settings.rule)).span(low, high, gammas)
    if over not in (OVER_CONTROLLER, OVER_GAMMA):
        kinds = f"{OVER_DIAL!r}, {OVER_CONTROLLER!r} or {OVER_GAMMA!r}"
        raise SettingError(f"over is {over!r}; a map is one over {kinds}.")
    control = control_named(settings.controller if over == OVER_CONTROLLER else LENGTH.name)
    if over == OVER_GAMMA and settings.control is not None:
        raise SettingError(f"γ is mapped over whole drafts; leave the controller {settings.controller} out.")
    if control is None:
        raise SettingError("There is no controller whose threshold could be mapped; name one, such as svip.")
    rule_named(settings.rule).checked_dial(settings.dial)
    gammas = tuple(gammas)
    span = Threshold(control.controller, max(gammas, default=settings.gamma)).span(low, high, gammas)
    return replace(settings, controller=NONE), span


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
        check_span(settings, span)
        if run is not None:
            _check_models(backend, run)
        self._recording = Recording(backend, prompt, settings, chat=chat, title=title, history=history)
        self._backend, self._settings, self._span, self._budget = backend, settings, span, budget
        if run is not None and run.prompt_ids != self._recording.prompt_ids:
            raise PromptError("The run's prompt has other token ids here, so it cannot be mapped. Decode it again.")
        self._answers: dict[tuple[int, ...], Answer] = {} if run is None else known_answers(run)
        self._complete: Completing = list
        self._passes, self._seconds = 0, 0.0
        if run is not None and run.map is not None and bool(run.map.span.over) == bool(span.over):
            self._passes, self._seconds = run.map.passes, run.map.seconds

    def __iter__(self) -> Iterator[MapProgress]:
        """Map to the end, one batched pass at a time. Raises BadInput if the device runs out of memory."""
        from mars_viz.speculators.devices import trim_heap

        prompt = self._recording.prompt_ids
        ending = self._backend.ending(self._settings)
        rule = rule_named(self._settings.rule)
        dial, axis = rule.checked_dial(self._settings.dial), axis_of(rule, self._settings.gamma, self._span.over)
        speculator = self._backend.speculator(self._settings, (*rule.needs, *axis.needs), later=True)
        self._complete = speculator.complete
        began = time.perf_counter()
        speculator.prefill(prompt)
        walker = Walker(rule, prompt, ending, dial=dial, span=self._span, answers=self._answers, budget=self._budget)
        for _ in explore(speculator, [walker]):
            self._passes += 1
            self._seconds += time.perf_counter() - began
            yield walker.progress
            began = time.perf_counter()
        self._completed()
        self._complete = list  # releases the speculator with both caches
        trim_heap()
        self._seconds += time.perf_counter() - began

    def finish(self) -> DialMap:
        for _ in self:
            pass
        return self.map()

    def map(self) -> DialMap:
        """Return the map so far with all evidence."""
        self._completed()
        frame = self._recording.framed(answer.speculation for answer in self._answers.values())
        return DialMap(frame, self._span, dict(self._answers), self._passes, self._seconds)

    def _completed(self) -> None:
        completed = self._complete([answer.speculation for answer in self._answers.values()])
        for (prefix, answer), speculation in zip(list(self._answers.items()), completed, strict=True):
            self._answers[prefix] = replace(answer, speculation=speculation)


def _check_models(backend: Backend, run: Run) -> None:
    """Raise BadInput unless the backend's models made the run: a text must not mix models."""
    if not backend.has_made(run.provenance):
        raise EvidenceError("This run was made with other weights, or in another dtype. Decode its prompt again.")


class Walking:
    """Walks of several rules from a run's prompt with its seed and settings; iteration can stop at any time."""

    def __init__(self, backend: Backend, run: Run, stands: Sequence[Stand]):
        """Raises BadInput unless the backend's models made the run: a text must not mix models."""
        _check_models(backend, run)
        self._backend, self._run = backend, run
        ending = backend.ending(run.settings)  # the run's own pieces lack tokens of other rules
        self.walkers = walkers_of(stands, run.prompt_ids, ending, known_answers(run))

    def __iter__(self) -> Iterator[Together]:
        speculator = self._backend.speculator(self._run.settings)
        speculator.prefill(self._run.prompt_ids)
        return walk_together(speculator, self.walkers)
