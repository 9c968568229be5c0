"""A vLLM server as the target: token ids in, the raw logits of its best tokens at every position back.

Knows its HTTP routes (`/v1/models`, `/version`, `/tokenize`, `/v1/completions` with `prompt_logprobs`); knows no
drafters. A server keeps its own cache, but reads a text whole where its prompt's logits are asked for.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
import urllib3
from torch import Tensor

from mars_viz.bounds import shortened
from mars_viz.errors import ModelError
from mars_viz.permissions import PATHS, MayNamePaths, who_may_name_paths
from mars_viz.records import CANDIDATES
from mars_viz.speculators.draft import TopLogits
from mars_viz.walk import Prefix

KEY = "VLLM_API_KEY"
"""Of the environment: the key that the server asks for, by the name under which vLLM itself reads it."""
START = "vllm serve MODEL --logprobs-mode raw_logits"
"""How a server is started that can be a target."""
PATIENCE = 120.0
"""Seconds to wait for one answer."""
_BUSY = (429, 500, 502, 503, 504)
_RETRIES = urllib3.Retry(
    total=5, connect=2, read=1, status=4, backoff_factor=0.5, status_forcelist=_BUSY, allowed_methods=None,
    raise_on_status=False,
)  # fmt: skip
_PROBE = "The cat sat on the mat. 1 + 2 = 3\n"
_ALLOWED = re.compile(r"max allowed: (\d+)")


@dataclass(frozen=True, slots=True)
class ServedText:
    """A greedy text of a server's."""

    tokens: Prefix
    """What it wrote."""
    rows: tuple[dict[int, float], ...]
    """Of each of them, by token the logit, of the best ones there."""


@dataclass(frozen=True, slots=True)
class Server:
    """A vLLM server that has answered, and what it says of itself."""

    address: str
    """As http://HOST:PORT."""
    model: str
    """What requests call the model."""
    root: str
    """Where the server has it from: a hub id, or a folder of its machine."""
    context: int
    """Tokens of a text, at most."""
    version: str
    """Of vLLM."""
    listed: int = CANDIDATES
    """Best tokens that it is asked for at a position."""
    _pool: urllib3.PoolManager = field(default_factory=lambda: _pool(), repr=False, compare=False)

    @classmethod
    def at(cls, address: str) -> Server:
        """Ask who answers there. Raises ModelError, with the remedy, where nobody does that can be a target."""
        pool = _pool()
        served = _asked(pool, address, "/v1/models").get("data")
        found = served[0] if isinstance(served, list) and served else None
        if not isinstance(found, Mapping) or not isinstance(found.get("max_model_len"), int):
            raise ModelError(f"{address} names no model of vLLM's. Give the address of a vLLM server: {START}")
        version = str(_asked(pool, address, "/version").get("version", ""))
        name = str(found["id"])
        return cls(address, name, str(found.get("root") or name), int(found["max_model_len"]), version, _pool=pool)

    def tokens_of(self, text: str) -> list[int]:
        """A text's tokens by the server's tokenizer, none added. Raises ModelError."""
        told = self._ask("/tokenize", {"model": self.model, "prompt": text, "add_special_tokens": False})
        with self._well_laid_out():
            return [int(token) for token in told["tokens"]]

    def scored(self, texts: Sequence[Sequence[int]], begins: Sequence[int]) -> list[list[dict[int, float]]]:
        """Of each text, in one request, what the server says of each place from the one that `begins` names on, and
        after the text's end: by token the logit, of its best tokens and of the one that stands there.

        Raises ModelError for an answer that is none.
        """
        body = self._body([[*text] for text in texts]) | {"prompt_logprobs": self.listed}
        told = self._ask("/v1/completions", body)
        with self._well_laid_out():
            choices = sorted(told["choices"], key=lambda choice: choice["index"])
            found = [_rows(*each) for each in zip(choices, texts, begins, strict=True)]
        if (least := min(len(row) for rows in found for row in rows)) < self.listed:
            raise ModelError(
                f"{self.address} gives {least} tokens of a position where {self.listed} were asked for. Start it with "
                f"--max-logprobs {CANDIDATES} or more: {START}"
            )
        return found

    def written(self, prompt: Prefix, new_tokens: int) -> ServedText:
        """What it writes after a prompt by itself, greedily. Raises ModelError."""
        told = self._ask(
            "/v1/completions", self._body([[*prompt]]) | {"max_tokens": new_tokens, "return_token_ids": True}
        )
        with self._well_laid_out():
            (choice,) = told["choices"]
            tokens, rows = tuple(map(int, choice["token_ids"])), _listed(choice)
            if len(tokens) != len(rows):
                raise ValueError(f"{len(rows)} rows of {len(tokens)} tokens")
        return ServedText(tokens, tuple(rows))

    def _body(self, prompts: list[list[int]]) -> dict[str, Any]:
        return {
            "model": self.model,
            "prompt": prompts,
            "max_tokens": 1,
            "temperature": 0.0,
            "logprobs": self.listed,
            "return_tokens_as_token_ids": True,
        }

    @contextmanager
    def _well_laid_out(self) -> Iterator[None]:
        """Make a sentence of an answer that is not as it should be. Raises ModelError."""
        try:
            yield
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise ModelError(
                f"{self.address} answers without the logits that were asked for ({type(error).__name__}). Start it "
                f"as a target can be: {START}"
            ) from error

    def _ask(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return _asked(self._pool, self.address, path, body)


def check_target(server: Server, tokenize: Any, vocabulary_size: int) -> Server:
    """The server, asked once for what a target must give, with as many of its best tokens as it may list.

    `tokenize` makes token ids of a text, by the tokenizer that it must share. Raises ModelError where its tokens are
    others, where it gives probabilities in place of raw logits, or fewer than two tokens.
    """
    probe = [int(token) for token in tokenize(_PROBE)]
    if server.tokens_of(_PROBE) != probe:
        raise ModelError(
            f"{shortened(server.model)} at {server.address} makes other tokens of a text than the tokenizer here. Take "
            "a drafter of its family."
        )
    try:
        (rows,) = server.scored([probe], [1])
    except ModelError as error:
        allowed = _ALLOWED.search(str(error))
        if allowed is None or not 2 <= int(allowed[1]) < server.listed:
            raise
        server = replace(server, listed=int(allowed[1]))
        (rows,) = server.scored([probe], [1])
    if max(map(max, rows)) >= vocabulary_size:
        raise ModelError(
            f"{shortened(server.model)} at {server.address} has tokens that are none here, where there are "
            f"{vocabulary_size}. Take a drafter of its family."
        )
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
        ordered = [[_best(row)[: self._server.listed] for row in rows] for rows in told]
        drafted = [[rows[i][token] for i, token in enumerate(draft)] for rows, draft in zip(told, drafts, strict=True)]
        pairs = np.array(ordered, np.float64)  # [B, N + 1, K, 2]; ids are far below 2^53
        return TopLogits(
            pairs[..., 0].astype(np.int64),
            pairs[..., 1].astype(np.float32),
            np.array(drafted, np.float32).reshape(tokens.shape),
        )

    def observe(self, drafted: Sequence[Sequence[int]]) -> None:
        """Nothing: see `prefill`."""


def _best(row: Mapping[int, float]) -> list[tuple[int, float]]:
    """Best first, the lower id first among equals."""
    return sorted(row.items(), key=lambda each: (-each[1], each[0]))


def _rows(choice: Mapping[str, Any], text: Sequence[int], begin: int) -> list[dict[int, float]]:
    """Of one text, by place; the last one is what the server would have written."""
    places = choice["prompt_logprobs"]
    if len(places) != len(text):
        raise ValueError(f"{len(places)} places of {len(text)} tokens")
    rows = [{int(token): float(told["logprob"]) for token, told in place.items()} for place in places[begin:]]
    if any(token not in row for row, token in zip(rows, text[begin:], strict=True)):
        raise ValueError("a place without the token that stands there")
    (after,) = _listed(choice)
    return [*rows, after]


def _listed(choice: Mapping[str, Any]) -> list[dict[int, float]]:
    """Of each token that it wrote, the best ones there."""
    return [
        {int(token.removeprefix("token_id:")): float(value) for token, value in row.items()}
        for row in choice["logprobs"]["top_logprobs"]
    ]


def _pool() -> urllib3.PoolManager:
    """Connections that are kept, with the key of the environment; where every visitor may name a server, with none,
    since one of them might be anybody's."""
    key = "" if who_may_name_paths() is MayNamePaths.EVERYBODY else os.environ.get(KEY)
    return urllib3.PoolManager(
        headers={"Authorization": f"Bearer {key}"} if key else None,
        timeout=urllib3.Timeout(connect=5.0, read=PATIENCE),
        retries=_RETRIES,
    )


def _asked(pool: urllib3.PoolManager, address: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The answer to one request, tried again with growing pauses where the server is busy. Raises ModelError, with the
    remedy, where there is none."""
    try:
        answer = pool.request("GET" if body is None else "POST", f"{address}{path}", json=body, redirect=False)
        told = json.loads(answer.data)
    except urllib3.exceptions.HTTPError as error:
        raise ModelError(
            f"No vLLM server answers at {address} ({_reason(error)}). See that it runs there and has finished loading: "
            f"{START}"
        ) from error
    except ValueError as error:
        told = {}
        if answer.status == 200:
            raise ModelError(
                f"{address} answers with half a reply. See whether the server is well, and go on."
            ) from error
    if answer.status == 200 and isinstance(told, dict):
        return told
    if answer.status in (401, 403):
        raise ModelError(
            f"The server at {address} asks for a key. Put it into the environment as {KEY}; it "
            f"is not sent where everybody may name servers ({PATHS})."
        )
    if answer.status in _BUSY:
        raise ModelError(
            f"The server at {address} is too busy or broken: it answered {answer.status} five times. Wait, and go on."
        )
    said = told.get("error", {}) if isinstance(told, dict) else {}
    words = " ".join(str(said.get("message", "") if isinstance(said, dict) else said).split())[:300]
    raise ModelError(
        f"The server at {address} refuses what it is asked ({answer.status}{f': {words}' if words else ''}). Give the "
        f"address of a vLLM server: {START}"
    )


def _reason(error: Exception) -> str:
    """In a few words, without what belongs to the library."""
    cause = getattr(error, "reason", None) or error
    return type(cause).__name__.removesuffix("Error")
