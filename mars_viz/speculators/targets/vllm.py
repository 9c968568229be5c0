"""A vLLM server as the target: token ids in, the raw logits of its best tokens at every position back.

Knows what a target must give; asking over HTTP is `vllm_http`'s. A server keeps its own cache, but reads a text whole
where its prompt's logits are asked for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mars_viz.bounds import shortened
from mars_viz.errors import ModelError
from mars_viz.speculators.draft import TopLogits
from mars_viz.speculators.vllm_http import START, Server
from mars_viz.walk import Prefix

PROBE = "The cat sat on the mat. 1 + 2 = 3\n"
_ALLOWED = re.compile(r"max allowed: (\d+)")


def check_tokens(server: Server, tokenize: Any) -> None:
    """Raise ModelError where the server makes other tokens of a text than `tokenize`."""
    if server.tokens_of(PROBE) != [int(token) for token in tokenize(PROBE)]:
        raise ModelError(
            f"{shortened(server.model)} at {server.address} makes other tokens of a text than the tokenizer here. Take "
            "models of its family."
        )


def check_known(server: Server, token: int, vocabulary_size: int) -> None:
    """Raise ModelError where this token of the server's is none here."""
    if token >= vocabulary_size:
        raise ModelError(
            f"{shortened(server.model)} at {server.address} has tokens that are none here, where there are "
            f"{vocabulary_size}. Take models of its family."
        )


def check_target(server: Server, tokenize: Any, vocabulary_size: int) -> Server:
    """The server, asked once for what a target must give, with as many of its best tokens as it may list.

    `tokenize` makes token ids of a text, by the tokenizer that it must share. Raises ModelError where its tokens are
    others, where it gives probabilities in place of raw logits, or fewer than two tokens.
    """
    check_tokens(server, tokenize)
    probe = [int(token) for token in tokenize(PROBE)]
    try:
        (rows,) = server.scored([probe], [1])
    except ModelError as error:
        allowed = _ALLOWED.search(str(error))
        if allowed is None or not 2 <= int(allowed[1]) < server.listed:
            raise
        server = replace(server, listed=int(allowed[1]))
        (rows,) = server.scored([probe], [1])
    check_known(server, max(map(max, rows)), vocabulary_size)
    best = np.array([sorted(row.values(), reverse=True)[: server.listed] for row in rows])
    shares = np.exp(np.minimum(best, 1.0)).sum(1)
    if (best <= 0).all() and (shares <= 1.001).all() and shares.max() > 0.01:
        raise ModelError(
            f"{server.address} gives log-probabilities, of which no ratio of logits can be made. Start it with raw "
            f"logits: {START}"
        )
    return server


class VllmTarget:
    """Scores all drafts in one request."""

    def __init__(self, server: Server, device: torch.device):
        self._server, self.device = server, device

    def prefill(self, prompts: Sequence[Prefix]) -> None:
        """Nothing: the server reads what it is asked about."""

    def score(self, prefixes: Sequence[Prefix], tokens: Tensor) -> TopLogits:
        """What it says after each prefix and each of the tokens [B, N] behind it. Raises ModelError for an answer that
        is none."""
        drafts = tokens.tolist()
        texts = [[*prefix, *draft] for prefix, draft in zip(prefixes, drafts, strict=True)]
        told = self._server.scored(texts, [len(prefix) for prefix in prefixes])
        drafted = [[rows[i][token] for i, token in enumerate(draft)] for rows, draft in zip(told, drafts, strict=True)]
        return TopLogits.of_rows(told, self._server.listed, drafted)

    def observe(self, drafted: Sequence[Sequence[int]]) -> None:
        """Nothing: see `prefill`."""
