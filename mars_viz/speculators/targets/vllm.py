"""A vLLM server as the target: token ids in, raw logits of its best tokens at every position out.

`vllm_http` does the requests. A server has its own cache, but reads a complete text if its prompt's logits are
requested.
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
    """Raise ModelError if the server tokenizes a text differently from `tokenize`."""
    if server.tokens_of(PROBE) != [int(token) for token in tokenize(PROBE)]:
        raise ModelError(
            f"{shortened(server.model)} at {server.address} makes other tokens of a text than the tokenizer here. Take "
            "models of its family."
        )


def check_known(server: Server, token: int, vocabulary_size: int) -> None:
    """Raise ModelError if this token of the server's does not exist here."""
    if token >= vocabulary_size:
        raise ModelError(
            f"{shortened(server.model)} at {server.address} has token ids beyond the vocabulary "
            f"here ({vocabulary_size}). Take models of its family."
        )


def check_target(server: Server, tokenize: Any, vocabulary_size: int) -> Server:
    """Check a server once as a target, and return it with the largest allowed number of best tokens.

    `tokenize` returns the token ids of a text by the tokenizer that it must share. Raises ModelError if its tokens
    differ, if it returns probabilities instead of raw logits, or fewer than two tokens.
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
        """Do nothing: the server reads each request completely."""

    def score(self, prefixes: Sequence[Prefix], tokens: Tensor) -> TopLogits:
        """Return the server's logits after each prefix and each of the tokens [B, N] that follow. Raises ModelError for
        an invalid answer."""
        drafts = tokens.tolist()
        texts = [[*prefix, *draft] for prefix, draft in zip(prefixes, drafts, strict=True)]
        rows_of_texts = self._server.scored(texts, [len(prefix) for prefix in prefixes])
        drafted = [
            [rows[i][token] for i, token in enumerate(draft)] for rows, draft in zip(rows_of_texts, drafts, strict=True)
        ]
        return TopLogits.of_rows(rows_of_texts, self._server.listed, drafted)

    def observe(self, drafted: Sequence[Sequence[int]]) -> None:
        """Do nothing; see `prefill`."""
