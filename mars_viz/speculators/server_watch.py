"""Acceptance of a server that speculates by itself, compared with strict speculation by local models.

Prompts are sent one by one, as token ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mars_viz.analysis.counts import AcceptanceCounts
from mars_viz.analysis.round_differences import RoundDifference, first_difference
from mars_viz.analysis.watch_verdict import ServerWatch, WatchedPrompt
from mars_viz.chat import EncodedPrompt, check_prompt, in_plain_text
from mars_viz.errors import ModelError, PromptError, SettingError
from mars_viz.records import Round
from mars_viz.rules import rule_named
from mars_viz.run import Settings
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.targets.vllm import PROBE, check_known, check_tokens
from mars_viz.speculators.vllm_http import SPECULATING, ServedText, Server
from mars_viz.walk import Prefix, walk

_NEEDED = ("draft_ids", "draft_logits")
"""Additional columns: they show how close the drafter's other tokens are."""


def speculated(server: Server) -> AcceptanceCounts:
    """Return the server's acceptance in a short text. Raises ModelError with a remedy if it does not speculate or does
    not report its acceptance."""
    counts = server.written(tuple(server.tokens_of(PROBE, special=True)), 2, with_logits=False).counts
    if counts is not None:
        return counts
    problem = {
        True: "speculates and tells nothing of it. Start it with --per-request-spec-decode-metrics detailed",
        False: "does not speculate. Start it so that it does, and tells what it accepts",
        None: "tells of no speculation. Start it so that it speculates, and tells what it accepts",
    }[server.speculates()]
    raise ModelError(f"{server.address} {problem}: {SPECULATING}")


@dataclass(frozen=True, slots=True)
class HeldText:
    """A server's text compared with our own rounds."""

    alone: Round
    """Our round of the token that the server's prefill writes."""
    rounds: tuple[Round, ...]
    """Our rounds after it."""
    difference: RoundDifference | None
    """The first difference."""

    @property
    def same_rounds(self) -> int:
        """Number of rounds with a draft before the first difference."""
        if self.difference is not None:
            return max(0, self.difference.round)
        return sum(len(each.speculation) > 0 for each in self.rounds)


def held_against(backend: Backend, settings: Settings, number: int, prompt: Prefix, written: ServedText) -> HeldText:
    """Compare the server's text after prompt `number` with strict speculation. Raises BadInput."""
    if written.counts is None:
        raise ModelError(f"The server tells nothing of its speculation. Start it so that it does: {SPECULATING}")
    (alone,) = decoded(backend, replace(settings, max_new_tokens=1), prompt)
    first = written.tokens[:1]
    rounds: list[Round] = []
    if first and not backend.ending(settings).reached(first):
        rounds = decoded(backend, replace(settings, max_new_tokens=settings.max_new_tokens - 1), prompt + first)
    return HeldText(alone, tuple(rounds), first_difference(number, alone, rounds, written.tokens, written.counts))


def decoded(backend: Backend, settings: Settings, prompt: Prefix) -> list[Round]:
    """Return our rounds after a prompt, by a rule without a dial."""
    speculator = backend.speculator(settings, _NEEDED)
    speculator.prefill(prompt)
    return list(walk(speculator, rule_named(settings.rule), None, prompt, backend.ending(settings)))


class WatchingServer:
    """A watch in progress: iterate it for each answered prompt; the result covers those so far."""

    def __init__(
        self,
        server: Server,
        backend: Backend | None,
        prompts: Sequence[str | EncodedPrompt],
        *,
        tokens: int = 64,
        gamma: int | None = None,
        chat: bool | None = None,
    ):
        """Watch `tokens` tokens after each prompt, with the chat template as `chat` states.

        They are compared with strict speculation by `backend`, if given, at `gamma` or the server's draft length.
        Raises BadInput for texts that do not fit, and for a server with other tokens or without reports of its
        acceptance.
        """
        if not prompts:
            raise PromptError("There is no prompt to send; give at least one.")
        if tokens < 2:
            raise SettingError(
                f"{tokens} tokens of each text are too few, since the prefill writes the first; ask for 2."
            )
        if chat and backend is None:
            raise SettingError("The chat template is the target's; name it and the drafter, or leave --chat out.")
        asked = [each if isinstance(each, EncodedPrompt) else EncodedPrompt(each) for each in prompts]
        for each in asked:
            check_prompt(each.prompt)
        self._server, self._backend, self._texts = server, backend, [each.prompt for each in asked]
        self._gamma = speculated(server).gamma
        self._settings = Settings(rule="strict", gamma=self._gamma if gamma is None else gamma, max_new_tokens=tokens)
        if backend is not None:
            library = backend.tokenizer.library
            check_tokens(server, lambda text: library(text, add_special_tokens=False)["input_ids"])
        self._prompts = [self._ids(each, chat) for each in asked]
        longest = max(map(len, self._prompts)) + tokens
        if longest > server.context:
            raise PromptError(
                f"The server's context is {server.context} tokens, and {longest} are asked for at most; "
                "shorten the longest prompt, or ask for fewer."
            )
        self._found: list[WatchedPrompt] = []

    def __len__(self) -> int:
        return len(self._prompts)

    def __iter__(self) -> Iterator[WatchedPrompt]:
        for number, (text, ids) in enumerate(zip(self._texts, self._prompts, strict=True)):
            written = self._server.written(ids, self._settings.max_new_tokens, with_logits=False)
            if written.counts is None:
                raise ModelError(f"{self._server.address} tells nothing of its speculation. Start it so: {SPECULATING}")
            self._found.append(self._held(number, text, ids, written, written.counts))
            yield self._found[-1]

    def result(self) -> ServerWatch:
        """Return the results so far. Raises PromptError if there are none."""
        if not self._found:
            raise PromptError("The server answered no prompt yet, so there is nothing to tell.")
        names = (
            {}
            if self._backend is None
            else {
                "target": self._backend.target.name,
                "drafter": self._backend.drafter.name,
                "dtype": self._backend.dtype,
            }
        )
        return ServerWatch(
            server=self._server.model,
            version=self._server.version,
            gamma=self._gamma,
            asked=len(self._prompts),
            prompts=tuple(self._found),
            gamma_here=0 if self._backend is None else self._settings.gamma,
            **names,
        )

    def _ids(self, asked: EncodedPrompt, chat: bool | None) -> Prefix:
        if self._backend is None:
            return tuple(self._server.tokens_of(in_plain_text(asked.history, asked.prompt), special=True))
        return self._backend.prompt_ids(asked.prompt, self._settings, asked.history, chat=chat)

    def _held(
        self, number: int, text: str, ids: Prefix, written: ServedText, counts: AcceptanceCounts
    ) -> WatchedPrompt:
        if self._backend is None:
            return WatchedPrompt(number, text, counts)
        check_known(self._server, max(written.tokens, default=0), self._backend.vocabulary_size)
        held = held_against(self._backend, self._settings, number, ids, written)
        here = counts_of(held.rounds, self._settings.gamma)
        return WatchedPrompt(number, text, counts, here, held.same_rounds, here.steps, held.difference)


def counts_of(rounds: Sequence[Round], gamma: int) -> AcceptanceCounts:
    """Return the acceptance of rounds after a prefill's token, counted as on a server."""
    drafting = [each for each in rounds if len(each.speculation)]
    drafted = np.array([len(each.speculation) for each in drafting], np.int64)
    accepted = np.array([len(each.decision.kept) for each in drafting], np.int64)
    tokens = 1 + sum(len(each.token_ids) for each in rounds)
    return AcceptanceCounts("here", accepted, drafted, int(drafted.sum()), gamma, tokens, prefilled=1)
