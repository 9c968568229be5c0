"""Checks of a server with local models: its acceptance, if it speculates by itself, and its logits.

Its acceptance is compared with strict speculation, and its logits at the tokens that it writes with a local model's, to
see whether it runs the model that it claims. The latter is DiFR's idea (arXiv 2511.20621): a trusted reference reads
the server's text. Prompts are sent one by one, as token ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from mars_viz.analysis.engines import AcceptanceCounts
from mars_viz.analysis.intervals import ratio
from mars_viz.analysis.server_checks import RoundDifference, ServerCheck, ServerWatch, WatchedPrompt, first_difference
from mars_viz.chat import EncodedPrompt, check_prompt, in_plain_text
from mars_viz.errors import ModelError, PromptError, SettingError
from mars_viz.exploration import walk
from mars_viz.records import Round
from mars_viz.rules import rule_named
from mars_viz.run import Settings
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.devices import inference
from mars_viz.speculators.draft import TopLogits
from mars_viz.speculators.targets.vllm import PROBE, check_known, check_target, check_tokens
from mars_viz.speculators.vllm_http import SPECULATING, ServedText, Server
from mars_viz.walk import Prefix

LEAST = 3  # minimum number of texts for an interval of a check
_NEEDED = ("draft_ids", "draft_logits")  # additional columns: they show how close the drafter's other tokens are


def speculated(server: Server) -> AcceptanceCounts:
    """Return the server's acceptance in a short text. Raises ModelError with a remedy if it does not speculate or does
    not report its acceptance."""
    counts = server.written(tuple(server.tokens_of(PROBE, special=True)), 2, with_logits=False).counts
    if counts is not None:
        return counts
    problem = {
        True: "speculates without reporting it. Start it with --per-request-spec-decode-metrics detailed",
        False: "does not speculate. Start it so that it does, and reports accepted tokens",
        None: "reports no speculation. Start it so that it speculates, and reports accepted tokens",
    }[server.speculates()]
    raise ModelError(f"{server.address} {problem}: {SPECULATING}")


@dataclass(frozen=True, slots=True)
class HeldText:
    """A server's text compared with our own rounds."""

    alone: Round  # our round of the token that the server's prefill writes
    rounds: tuple[Round, ...]  # our rounds after it
    difference: RoundDifference | None  # the first difference

    @property
    def same_rounds(self) -> int:
        """Number of rounds with a draft before the first difference."""
        if self.difference is not None:
            return max(0, self.difference.round)
        return sum(len(each.speculation) > 0 for each in self.rounds)


def held_against(backend: Backend, settings: Settings, number: int, prompt: Prefix, written: ServedText) -> HeldText:
    """Compare the server's text after prompt `number` with strict speculation. Raises BadInput."""
    if written.counts is None:
        raise ModelError(f"The server does not report its speculation. Start it so that it does: {SPECULATING}")
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
        self._prompts: list[Prefix] = []
        if backend is not None:
            library = backend.tokenizer.library
            check_tokens(server, lambda text: library(text, add_special_tokens=False)["input_ids"])
        for each in asked:
            if backend is None:
                ids = tuple(server.tokens_of(in_plain_text(each.history, each.prompt), special=True))
            else:
                ids = backend.prompt_ids(each.prompt, self._settings, each.history, chat=chat)
            self._prompts.append(ids)
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
                raise ModelError(f"{self._server.address} does not report its speculation. Start it so: {SPECULATING}")
            watched = WatchedPrompt(number, text, written.counts)
            if self._backend is not None:
                check_known(self._server, max(written.tokens, default=0), self._backend.vocabulary_size)
                held = held_against(self._backend, self._settings, number, ids, written)
                drafting = [each for each in held.rounds if len(each.speculation)]
                drafted = np.array([len(each.speculation) for each in drafting], np.int64)
                accepted = np.array([len(each.decision.kept) for each in drafting], np.int64)
                count, gamma = 1 + sum(len(each.token_ids) for each in held.rounds), self._settings.gamma
                here = AcceptanceCounts("here", accepted, drafted, int(drafted.sum()), gamma, count, prefilled=1)
                watched = WatchedPrompt(
                    number, text, written.counts, here, held.same_rounds, here.steps, held.difference
                )
            self._found.append(watched)
            yield watched

    def result(self) -> ServerWatch:
        """Return the results so far. Raises PromptError if there are none."""
        if not self._found:
            raise PromptError("The server answered no prompt yet, so there is nothing to tell.")
        backend, names = self._backend, dict[str, str]()
        if backend is not None:
            names = {"target": backend.target.name, "drafter": backend.drafter.name, "dtype": backend.dtype}
        return ServerWatch(
            server=self._server.model,
            version=self._server.version,
            gamma=self._gamma,
            asked=len(self._prompts),
            prompts=tuple(self._found),
            gamma_here=0 if backend is None else self._settings.gamma,
            **names,
        )


class CheckingServer:
    """A check in progress: iterate it for the finished share, then take the result."""

    def __init__(self, server: Server, backend: Backend, prompts: Sequence[str | Prefix], *, tokens: int = 64):
        """Compare `tokens` tokens that the server writes after each prompt with the target of `backend`.

        Raises BadInput for too few prompts, a text that does not fit the context, and a server without raw logits or
        with other tokens.
        """
        if len(prompts) < LEAST:
            raise PromptError(f"{len(prompts)} prompts say too little of a server; give at least {LEAST}.")
        if tokens < 1:
            raise SettingError(f"{tokens} tokens of each text are none; ask for at least 1.")
        settings = Settings(rule="strict", max_new_tokens=tokens)
        self._prompts = [backend.prompt_ids(prompt, settings) for prompt in prompts]
        longest = max(map(len, self._prompts)) + tokens
        if longest > server.context:
            raise PromptError(
                f"The server's context is {server.context} tokens and {longest} are asked for; ask for fewer."
            )
        library = backend.tokenizer.library
        encode = lambda text: library(text, add_special_tokens=False)["input_ids"]  # noqa: E731
        self._server = check_target(server, encode, backend.vocabulary_size)
        self._backend, self._tokens = backend, tokens
        self._found: list[tuple[float, float, int]] = []  # of each text: distances, other best tokens, tokens
        self._furthest = 0.0

    def __iter__(self) -> Iterator[float]:
        for done, prompt in enumerate(self._prompts, start=1):
            written = self._server.written(prompt, self._tokens)
            if written.tokens:
                self._held_against(prompt, written)
            yield done / len(self._prompts)

    def result(self) -> ServerCheck:
        """Return the results so far. Raises PromptError if the server wrote too little."""
        if len(self._found) < LEAST:
            raise PromptError(
                f"The server wrote something after {len(self._found)} prompts, and {LEAST} are needed; give prompts "
                "that it goes on with."
            )
        distances, differ, tokens = np.array(self._found, np.float64).T
        return ServerCheck(
            server=self._server.model,
            version=self._server.version,
            reference=self._backend.target.name,
            dtype=self._backend.dtype,
            texts=len(self._found),
            tokens=int(tokens.sum()),
            distance=ratio(distances, tokens),
            best_differs=ratio(differ, tokens),
            furthest=self._furthest,
        )

    def _held_against(self, prompt: tuple[int, ...], written: ServedText) -> None:
        target = self._backend.target.open()
        ids = torch.tensor([written.tokens[:-1]], dtype=torch.int64, device=target.device)
        with inference():
            scored = target.score([prompt], ids)
        if isinstance(scored, TopLogits):
            raise ModelError("A server is held against a model of this machine; name its hub id or folder.")
        ours = scored[0].cpu().numpy().astype(np.float64)  # [tokens, V]
        distances = differ = 0.0
        for row, listed in zip(ours, written.rows, strict=True):
            tokens = np.fromiter(listed, np.int64)
            mine, its = row[tokens], np.fromiter(listed.values(), np.float64)
            apart = np.abs(mine - its)
            distances += float(np.sqrt((apart**2).mean()) / mine.std())
            differ += int(row.argmax()) != max(listed, key=listed.__getitem__)
            self._furthest = max(self._furthest, float(apart.max()))
        self._found.append((distances, differ, len(ours)))
