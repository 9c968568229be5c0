"""Checks of EAGLE-3 heads and of vLLM servers with local models.

A head is checked along texts that the target writes greedily. After each of their tokens the head drafts. Its first
token uses only the target's true features; each further one uses the head's own states. So the first tokens of
consecutive drafts show the agreement at each depth with true features, and the drafts themselves the actual agreement;
the gap between the two is the cost of the head's own states. If the layers that the head reads are a guess, or it
hardly agrees, it also drafts along the texts with other layers.

A server's acceptance is compared with strict speculation, and its logits at the tokens that it writes with a local
model's, to see whether it runs the model that it claims. The latter is DiFR's idea (arXiv 2511.20621): a trusted
reference reads the server's text. Prompts are sent one by one, as token ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
import torch

from mars_viz.analysis.engines import AcceptanceCounts
from mars_viz.analysis.head_agreement import LOW, DepthAgreement, HeadCheck, LayerTrial, counts
from mars_viz.analysis.intervals import ratio
from mars_viz.analysis.server_checks import RoundDifference, ServerCheck, ServerWatch, WatchedPrompt, first_difference
from mars_viz.chat import EncodedPrompt, check_prompt, in_plain_text
from mars_viz.errors import ModelError, PromptError, SettingError
from mars_viz.exploration import walk
from mars_viz.records import Round
from mars_viz.rules import rule_named
from mars_viz.run import Settings
from mars_viz.speculators.backend import Backend, decode_alone
from mars_viz.speculators.devices import inference
from mars_viz.speculators.draft import TopLogits
from mars_viz.speculators.drafters.eagle3 import Eagle3Drafter
from mars_viz.speculators.drafters.eagle3_checkpoint import Reading
from mars_viz.speculators.targets import PROBE, check_known, check_target, check_tokens
from mars_viz.speculators.vllm_http import SPECULATING, ServedText, Server
from mars_viz.walk import Prefix

TOGETHER = 16  # number of drafts made at once
LEAST = 3  # minimum number of texts for an interval
_NEEDED = ("draft_ids", "draft_logits")  # additional columns: they show how close the drafter's other tokens are


class CheckingHead:
    """A check in progress: iterate it for the finished share, then take the result."""

    def __init__(self, backend: Backend, prompts: Sequence[str | Prefix], *, depth: int = 6, tokens: int = 64):
        """Check along `tokens` tokens after each prompt. Raises BadInput for too few prompts, a drafter that is no
        head, and a text that does not fit the context."""
        if len(prompts) < LEAST:
            raise PromptError(f"{len(prompts)} prompts say too little of a head; give at least {LEAST}.")
        self._least = 2 * depth - 1  # tokens, behind the first of which true features can tell of every depth
        if depth < 1 or tokens < self._least:
            least = max(self._least, 1)
            raise SettingError(f"A check to depth {depth} needs at least {least} tokens of each text; ask for more.")
        self._settings = Settings(rule="strict", gamma=depth, max_new_tokens=tokens)
        drafter = backend.drafter.open(self._settings)
        if not isinstance(drafter, Eagle3Drafter):
            raise SettingError(f"{backend.drafter.name} is no head; take a drafter such as eagle3:HEADDIR.")
        self._readings, self._vocabulary = drafter.readings, drafter.vocabulary
        self._backend, self._depth = backend, depth
        self._prompts = [backend.prompt_ids(prompt, self._settings) for prompt in prompts]
        self._texts: list[tuple[Prefix, Prefix]] = []  # prompts, and what the target wrote after them
        self._agreed: list[np.ndarray] = []  # of each text, bool [drafts, depth]
        self._others: list[list[np.ndarray]] = []  # the same of each reading after the first
        self._held: list[np.ndarray] = []  # of each text, float64 [positions, 2]

    def __iter__(self) -> Iterator[float]:
        for done, prompt in enumerate(self._prompts, start=1):
            text = decode_alone(self._backend, prompt, self._settings)[0]
            if len(text) >= self._least:
                self._texts.append((prompt, text))
                self._agreed.append(self._drafted_along(prompt, text, self._readings[0]))
                self._held.append(self._reach(prompt, text))
            yield done / len(self._prompts)
        if self.tells and (self._readings[0].guess or np.concatenate(self._agreed)[:, 0].mean() < LOW):
            for reading in self._readings[1:]:
                self._others.append([self._drafted_along(*each, reading) for each in self._texts])
                yield 1.0

    @property
    def tells(self) -> bool:
        """True once there are enough texts for an interval."""
        return len(self._agreed) >= LEAST

    def result(self) -> HeadCheck:
        """Return the results so far. Raises PromptError if the target ended most texts early."""
        if not self.tells:
            raise PromptError(
                f"The target wrote at least {self._least} tokens after {len(self._agreed)} prompts, and {LEAST} are "
                "needed; give prompts that it goes on with."
            )
        numbers = np.array([counts(agreed) for agreed in self._agreed], np.float64)
        true, with_own = numbers[:, 0], numbers[:, 1]  # [texts, depth, 2]
        reached = [d for d in range(self._depth) if true[:, d, 1].sum() and with_own[:, d, 1].sum()]
        held = np.array([each.sum(0) for each in self._held])
        positions = np.array([len(each) for each in self._held], np.float64)
        return HeadCheck(
            head=self._backend.drafter.name,
            target=self._backend.target.name,
            texts=len(self._agreed),
            drafts=sum(map(len, self._agreed)),
            depths=tuple(
                DepthAgreement(d + 1, ratio(true[:, d, 0], true[:, d, 1]), ratio(with_own[:, d, 0], with_own[:, d, 1]))
                for d in reached
            ),
            coverage=ratio(held[:, 0], positions),
            best_held=ratio(held[:, 1], positions),
            guess=self._readings[0].guess,
            tried=self._trials() if self._others else (),
        )

    def _trials(self) -> tuple[LayerTrial, ...]:
        """Return the results of each tried reading, the present one first."""
        drafts, trials = np.array([len(each) for each in self._agreed], np.float64), []
        present = np.array([np.logical_and.accumulate(each, axis=1).sum() for each in self._agreed], np.float64)
        for reading, agreed in zip(self._readings, [self._agreed, *self._others], strict=False):
            first = np.array([each[:, 0].sum() for each in agreed], np.float64)
            kept = np.array([np.logical_and.accumulate(each, axis=1).sum() for each in agreed], np.float64)
            shares = (ratio(values, drafts) for values in (first, kept, kept - present))
            trials.append(LayerTrial(reading.words, reading.setting, *shares))
        return tuple(trials)

    def _drafted_along(self, prompt: Prefix, text: Prefix, reading: Reading) -> np.ndarray:
        """Return whether each token of the draft after each token of the text is its next one, bool [drafts, depth]."""
        target, drafter = self._backend.target.open(), self._backend.drafter.open(self._settings)
        assert isinstance(drafter, Eagle3Drafter)
        drafter.layers = reading.layers
        drafter.follow(target)
        tokens_all, depth = prompt + text, self._depth
        prefixes = iter([tokens_all[:end] for end in range(len(prompt), len(tokens_all) - depth + 1)])
        agreed: list[list[bool]] = []
        with inference():
            target.prefill([prompt])
            drafter.prefill([prompt])
            while some := list(islice(prefixes, TOGETHER)):
                draft = drafter.draft(some, depth)
                for prefix, tokens in zip(some, draft.tokens.tolist(), strict=True):
                    following = tokens_all[len(prefix) : len(prefix) + depth]
                    agreed.append([one == other for one, other in zip(tokens, following, strict=True)])
        return np.array(agreed, bool)

    def _reach(self, prompt: Prefix, text: Prefix) -> np.ndarray:
        """Return the target's probability on the head's tokens, and 1 if its best is one of them: [positions, 2]."""
        target = self._backend.target.open()
        with inference():
            scored = target.score([prompt], torch.tensor([text[:-1]], dtype=torch.int64, device=target.device))
            assert not isinstance(scored, TopLogits), "a head reads a model of this machine"
            laws = scored[0].softmax(-1)  # [positions, V]
            tokens = torch.arange(laws.shape[-1]) if self._vocabulary is None else self._vocabulary
            inside = laws[:, tokens].sum(-1)
            best = torch.isin(laws.argmax(-1), tokens.to(laws.device))
        return torch.stack([inside.double(), best.double()], 1).cpu().numpy()


def _check_context(server: Server, prompts: Sequence[Prefix], tokens: int) -> None:
    """Raise PromptError if the longest prompt and `tokens` new tokens exceed the server's context."""
    if (longest := max(map(len, prompts)) + tokens) > server.context:
        raise PromptError(
            f"The server's context is {server.context} tokens, and {longest} are asked for at most; shorten the "
            "longest prompt, or ask for fewer."
        )


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


def held_against(
    backend: Backend, settings: Settings, number: int, prompt: Prefix, written: ServedText
) -> tuple[list[Round], RoundDifference | None]:
    """Compare the server's text after prompt `number` with strict speculation. Returns our rounds, the first for the
    token that the server's prefill writes, and the first difference. Raises BadInput."""
    if written.counts is None:
        raise ModelError(f"The server does not report its speculation. Start it so that it does: {SPECULATING}")
    (alone,) = decoded(backend, replace(settings, max_new_tokens=1), prompt)
    first = written.tokens[:1]
    rounds: list[Round] = []
    if first and not backend.ending(settings).reached(first):
        rounds = decoded(backend, replace(settings, max_new_tokens=settings.max_new_tokens - 1), prompt + first)
    return [alone, *rounds], first_difference(number, alone, rounds, written.tokens, written.counts)


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
            check_tokens(server, backend.tokenizer.library)
        for each in asked:
            if backend is None:
                ids = tuple(server.tokens_of(in_plain_text(each.history, each.prompt), special=True))
            else:
                ids = backend.prompt_ids(each.prompt, self._settings, each.history, chat=chat)
            self._prompts.append(ids)
        _check_context(server, self._prompts, tokens)
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
                rounds, difference = held_against(self._backend, self._settings, number, ids, written)
                drafting = [each for each in rounds[1:] if len(each.speculation)]
                same = len(drafting) if difference is None else max(0, difference.round)
                drafted = np.array([len(each.speculation) for each in drafting], np.int64)
                accepted = np.array([len(each.decision.kept) for each in drafting], np.int64)
                count, gamma = 1 + sum(len(each.token_ids) for each in rounds[1:]), self._settings.gamma
                here = AcceptanceCounts("here", accepted, drafted, int(drafted.sum()), gamma, count, prefilled=1)
                watched = WatchedPrompt(number, text, written.counts, here, same, here.steps, difference)
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
        _check_context(server, self._prompts, tokens)
        self._server = check_target(server, backend.tokenizer.library, backend.vocabulary_size)
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
