"""Check whether a server runs the model that it claims: compare its logits with a local model's at the tokens it
writes.

This is DiFR's idea (arXiv 2511.20621): a trusted reference reads the server's text, and the numbers are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from mars_viz.analysis.intervals import ratio
from mars_viz.analysis.server_agreement import ServerCheck
from mars_viz.errors import ModelError, PromptError, SettingError
from mars_viz.run import Settings
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.devices import inference
from mars_viz.speculators.draft import TopLogits
from mars_viz.speculators.targets.vllm import check_target
from mars_viz.speculators.vllm_http import ServedText, Server
from mars_viz.walk import Prefix

LEAST = 3
"""Minimum number of texts for an interval."""


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
