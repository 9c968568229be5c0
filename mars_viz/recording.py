"""From a prompt to a Run: combines a backend, a rule and a walk. Imports the model libraries only for decoding."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from os import PathLike
from typing import TYPE_CHECKING

from mars_viz.chat import NO_HISTORY, History, check_prompt, check_template, checked_system
from mars_viz.controllers import NONE
from mars_viz.errors import BadInput, PromptError, SettingError
from mars_viz.records import Round, Speculation, emitted
from mars_viz.rules import rule_named
from mars_viz.run import Run, Settings, joined, stops
from mars_viz.shapes import CHAIN, drafted_tokens
from mars_viz.speculators.names import check_names
from mars_viz.trace import Trace
from mars_viz.walk import Step, walk_all

if TYPE_CHECKING:
    from mars_viz.speculators.backend import Backend

Prompt = str | Sequence[int]
"""A text, or its token ids."""
Completing = Callable[[Sequence[Speculation]], list[Speculation]]
"""Returns these speculations with all evidence."""


def record(
    prompt: Prompt,
    *,
    backend: Backend | None = None,
    target: str | PathLike[str] | None = None,
    drafter: str | PathLike[str] | None = None,
    rule: str = "mars",
    dial: float | None = None,
    gamma: int | None = None,
    tree: str | None = None,
    controller: str = NONE,
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
) -> Run:
    """Decode `prompt` speculatively and return the run with every decision.

    `prompt` is a text or token ids. `backend` holds loaded models (see `mars_viz.backend`). Without it they are loaded
    for this prompt only: `target` is a hub id or a folder (None: the built-in one); `drafter` is one of these or
    'ngram:n=3' for prompt lookup (None: the one that comes with the target, else prompt lookup). `rule` is a name from
    `mars_viz.rules.RULES` and `dial` its threshold (None: the rule's default). `gamma` is the number of tokens drafted
    per round (None: 6, or the tree's size). `tree` is the shape of drafts, such as 'dynamic:depth=6,topk=4,nodes=16'
    (None: the backend's, or chains). `controller` shortens drafts, such as 'svip:0.3' (see `controllers`; the models
    still draft γ tokens). `stop` is one text, or several, that end decoding at the token that completes one. `chat`
    sends the prompt through the target's chat template (None: if there is one), `system` is a system prompt, and
    `history` the conversation before the prompt, such as `run.conversation` of an earlier run.

    Raises BadInput with a remedy for arguments that cannot be used.
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
    rule_named(rule).checked_dial(dial)  # before the models are loaded, as are prompt and names
    history = checked_history(prompt, system, history, chat)
    models = given_or_loaded(backend, target, drafter, device, dtype)
    return Recording(models, prompt, settings, chat=chat, history=history).finish()


def checked_history(prompt: Prompt, system: str, history: History, chat: bool | None) -> History:
    """Return the history with `system`, if given, as its system prompt. Raises BadInput for a prompt or system prompt
    that no model accepts."""
    if isinstance(prompt, str) or not isinstance(prompt, Sequence):
        check_prompt(prompt)
    elif system.strip() or history != NO_HISTORY:
        raise PromptError("A prompt of token ids has no system prompt and no history; give the prompt as text.")
    return replace(history, system=checked_system(system or history.system, chat))


def tree_of(tree: str | None, backend: Backend | None) -> str:
    """Return the requested shape of drafts, or the backend's, or chains."""
    return tree or (CHAIN if backend is None else backend.tree)


def given_or_loaded(
    backend: Backend | None,
    target: str | PathLike[str] | None,
    drafter: str | PathLike[str] | None,
    device: str,
    dtype: str,
) -> Backend:
    """Return the backend, or load models by name if it is None. Raises BadInput if both are given."""
    if backend is not None:
        if (target, drafter, device, dtype) != (None, None, "auto", "auto"):
            raise SettingError(
                "The backend has its models already; leave target, drafter, device and dtype out, or name them to "
                "mars_viz.backend."
            )
        return backend
    check_names(target, drafter, device=device, dtype=dtype)
    from mars_viz.speculators.loading import load_backend

    return load_backend(target, drafter, device=device, dtype=dtype)


def record_all(
    backend: Backend,
    prompts: Iterable[Prompt],
    settings: Settings,
    *,
    chat: bool | None = None,
    batch: int | None = None,
) -> Iterator[Run]:
    """Decode the prompts in batches of `batch` and yield their runs in order.

    `batch` None is 8 for models whose rows do not depend on their batch, otherwise 1. Each run equals that of
    `Recording` on the prompt alone, within the batch's rounding (see `speculators.networks.batched`). The seconds of a
    batch are divided among its runs. Raises BadInput for a bad prompt after yielding the runs before it.
    """
    batch = backend.batch if batch is None else batch
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
        rule = rule_named(settings.rule)
        self._rule = rule
        self._settings = replace(settings, dial=rule.checked_dial(settings.dial))
        if settings.refused_draft:
            raise SettingError(settings.refused_draft)
        backend.check(settings)
        self._backend = backend
        self.prompt_ids = backend.prompt_ids(prompt, settings, history, chat=chat)
        read = prompt if isinstance(prompt, str) else joined(map(backend.tokenizer.pieces.__getitem__, self.prompt_ids))
        self._prompt, self._title, self._history = read, title, history
        self._chat = chat if isinstance(prompt, str) else False
        self._rounds: list[Round] = []
        self._complete: Completing = nothing_waits
        self._complete_rounds = 0
        self._prefill_seconds = 0.0
        self._seconds = 0.0

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The tokens emitted so far."""
        return emitted(self._rounds)

    def __iter__(self) -> Iterator[Round]:
        """Decode to the end, one round at a time; `run` adds the evidence that the decisions did not need. Raises
        BadInput if the device runs out of memory."""
        return (step.round for step in _decoded([self]))

    def finish(self) -> Run:
        """Decode to the end and return the run."""
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
        """Add all evidence to the rounds that lack some."""
        lacking = self._rounds[self._complete_rounds :]
        completed = self._complete([round_.speculation for round_ in lacking])
        self._rounds[self._complete_rounds :] = map(Round.with_speculation, lacking, completed)
        self._complete_rounds = len(self._rounds)

    def framed(self, speculations: Iterable[Speculation], rounds: Sequence[Round] = ()) -> Run:
        """Return a run of these rounds, with the text of every token in the speculations."""
        ids = set(self.prompt_ids)
        for speculation in speculations:
            ids |= speculation.named
        return Run(
            settings=self._settings,
            provenance=self._backend.provenance(self._seconds, self._prefill_seconds, self._chat),
            prompt_ids=self.prompt_ids,
            rounds=rounds,
            pieces=self._backend.pieces_of(ids),
            title=self._title,
            prompt=self._prompt,
            history=self._history,
        )


def _decoded(recordings: Sequence[Recording]) -> Iterator[Step]:
    """Decode recordings of one backend with equal settings to their ends, in one batch. The caller's time between two
    rounds is not counted."""
    from mars_viz.speculators.memory import trim_heap

    first = recordings[0]
    speculator = first._backend.speculator(first._settings, first._rule.needs, later=True)
    prompts = [recording.prompt_ids for recording in recordings]
    seconds = speculator.prefill(*prompts)
    for recording in recordings:
        recording._rounds, recording._seconds, recording._complete = [], 0.0, speculator.complete
        recording._complete_rounds = 0
        recording._prefill_seconds = seconds / len(recordings)
    ending = first._backend.ending(first._settings)
    for step in walk_all(speculator, first._rule, first._settings.dial, prompts, ending):
        recordings[step.index]._rounds.append(step.round)
        recordings[step.index]._seconds += step.round.timing.total
        yield step
    began = time.perf_counter()
    for recording in recordings:
        recording._completed()
    share = (time.perf_counter() - began) / len(recordings)
    for recording in recordings:
        recording._seconds += share
        recording._complete = nothing_waits  # releases the speculator with both caches
    trim_heap()


def nothing_waits(speculations: Sequence[Speculation]) -> list[Speculation]:
    """Return the speculations, whose evidence is complete."""
    return list(speculations)
