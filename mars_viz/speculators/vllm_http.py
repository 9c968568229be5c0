"""A vLLM server over HTTP: its models, its tokens, raw logits of given texts, and its own texts.

Uses the routes `/v1/models`, `/version`, `/tokenize` and `/v1/completions`. Imports no model library.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import urllib3

from mars_viz.analysis.engine_counts import counts_in
from mars_viz.analysis.engines import AcceptanceCounts
from mars_viz.errors import ModelError, RunFileError
from mars_viz.permissions import PATHS, MayNamePaths, who_may_name_paths
from mars_viz.records import CANDIDATES
from mars_viz.walk import Prefix

KEY = "VLLM_API_KEY"  # environment variable with the server's key, under vLLM's own name
START = "vllm serve MODEL --logprobs-mode raw_logits"  # command that starts a server which can be a target
SPECULATING = "vllm serve MODEL --speculative-config '{…}' --per-request-spec-decode-metrics detailed"
"""Command that starts a server which speculates and reports accepted tokens per round."""
PATIENCE = 120.0  # seconds to wait for one answer
_BUSY = (429, 500, 502, 503, 504)
_RETRIES = urllib3.Retry(
    total=5, connect=2, read=1, status=4, backoff_factor=0.5, status_forcelist=_BUSY, allowed_methods=None,
    raise_on_status=False,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ServedText:
    """A greedy text written by a server."""

    tokens: Prefix
    rows: tuple[dict[int, float], ...]  # logits of the best tokens at each place, by token; empty if not requested
    counts: AcceptanceCounts | None = None
    """Its acceptance of its own drafts, without the token that its prefill writes; None if not reported."""


@dataclass(frozen=True, slots=True)
class Server:
    """A vLLM server that has answered, with its own description."""

    address: str  # in the form http://HOST:PORT
    model: str  # the model's name in requests
    root: str  # the model's origin: a hub id, or a folder on the server
    context: int  # maximum number of tokens of a text
    version: str  # version of vLLM
    listed: int = CANDIDATES  # number of best tokens requested per position
    start: str = START  # command that starts it with all needed options
    _pool: urllib3.PoolManager = field(default_factory=lambda: _pool(), repr=False, compare=False)

    @classmethod
    def at(cls, address: str, start: str = START) -> Server:
        """Connect to a server. Raises ModelError if no vLLM server answers; the remedy includes `start`."""
        server = cls(address, "", "", 0, "", start=start)
        served = server._ask("/v1/models").get("data")
        model = served[0] if isinstance(served, list) and served else None
        if not isinstance(model, Mapping) or not isinstance(model.get("max_model_len"), int):
            raise ModelError(f"{address} names no model of vLLM's. Give the address of a vLLM server: {start}")
        version, name = str(server._ask("/version").get("version", "")), str(model["id"])
        root, context = str(model.get("root") or name), int(model["max_model_len"])
        return replace(server, model=name, root=root, context=context, version=version)

    def tokens_of(self, text: str, *, special: bool = False) -> list[int]:
        """Return a text's tokens by the server; `special` adds those that start a prompt. Raises ModelError."""
        answer = self._ask("/tokenize", {"model": self.model, "prompt": text, "add_special_tokens": special})
        with self._well_laid_out():
            return [int(token) for token in answer["tokens"]]

    def scored(self, texts: Sequence[Sequence[int]], begins: Sequence[int]) -> list[list[dict[int, float]]]:
        """Return, in one request, the server's logits at each place of each text from `begins` on, and after its end.
        Each place has logits by token: its best tokens and the present one. Raises ModelError for an invalid answer."""
        body = self._body([[*text] for text in texts]) | {"prompt_logprobs": self.listed}
        answer = self._ask("/v1/completions", body)
        with self._well_laid_out():
            choices = sorted(answer["choices"], key=lambda choice: choice["index"])
            rows_of_texts = [_rows(*each) for each in zip(choices, texts, begins, strict=True)]
        if (least := min(len(row) for rows in rows_of_texts for row in rows)) < self.listed:
            raise ModelError(
                f"{self.address} gives {least} tokens of a position where {self.listed} were asked for. Start it with "
                f"--max-logprobs {CANDIDATES} or more: {self.start}"
            )
        return rows_of_texts

    def written(self, prompt: Prefix, new_tokens: int, *, with_logits: bool = True) -> ServedText:
        body = self._body([[*prompt]]) | {"max_tokens": new_tokens, "return_token_ids": True}
        if not with_logits:
            del body["logprobs"]
        answer = self._ask("/v1/completions", body)
        with self._well_laid_out():
            (choice,) = answer["choices"]
            tokens = tuple(map(int, choice["token_ids"]))
            rows = _listed(choice) if with_logits else []
            if with_logits and len(tokens) != len(rows):
                raise ValueError(f"{len(rows)} rows of {len(tokens)} tokens")
        return ServedText(tokens, tuple(rows), self._counts(answer))

    def _counts(self, answer: Mapping[str, Any]) -> AcceptanceCounts | None:
        metrics = answer.get("metrics")
        if not isinstance(metrics, Mapping) or not isinstance(metrics.get("speculative_decoding"), Mapping):
            return None
        try:
            (((_, counts), _), *_), _ = counts_in([answer])
        except RunFileError as error:
            raise ModelError(f"{self.address} counts wrongly what it accepted. {error}") from error
        return counts if isinstance(counts, AcceptanceCounts) else None

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
        try:
            yield
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise ModelError(
                f"{self.address} answers without what it was asked for ({type(error).__name__}). Start it so that it "
                f"gives it: {self.start}"
            ) from error

    def _ask(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer to a request, retried with growing pauses if the server is busy. Raises ModelError with a
        remedy if there is no answer."""
        address, start, method = self.address, self.start, "GET" if body is None else "POST"
        try:
            answer = self._pool.request(method, f"{address}{path}", json=body, redirect=False)
        except urllib3.exceptions.HTTPError as error:
            why = type(getattr(error, "reason", None) or error).__name__.removesuffix("Error")
            raise ModelError(
                f"No vLLM server answers at {address} ({why}). See that it runs there and has finished loading: {start}"
            ) from error
        reply = None
        with suppress(ValueError):
            reply = json.loads(answer.data)
        if answer.status == 200 and isinstance(reply, dict):
            return reply
        details = reply.get("error", {}) if isinstance(reply, dict) else {}
        words = " ".join(str(details.get("message", "") if isinstance(details, dict) else details).split())[:300]
        if answer.status in (401, 403):
            where = f"it is not sent if every visitor may name servers ({PATHS})"
            problem = f"asks for a key. Put it into the environment as {KEY}; {where}."
        elif answer.status in _BUSY:
            problem = f"is too busy or broken: it answered {answer.status} five times. Wait, and go on."
        else:
            said = f"{answer.status}: {words}" if words else f"{answer.status}"
            problem = f"gave no usable answer ({said}). Give the address of a vLLM server: {start}"
        raise ModelError(f"The server at {address} {problem}")


def _rows(choice: Mapping[str, Any], text: Sequence[int], begin: int) -> list[dict[int, float]]:
    """Return one text's logits by place; the last row is the server's next token."""
    places = choice["prompt_logprobs"]
    if len(places) != len(text):
        raise ValueError(f"{len(places)} places of {len(text)} tokens")
    rows = [{int(token): float(entry["logprob"]) for token, entry in place.items()} for place in places[begin:]]
    if any(token not in row for row, token in zip(rows, text[begin:], strict=True)):
        raise ValueError("a position without its own token")
    (after,) = _listed(choice)
    return [*rows, after]


def _listed(choice: Mapping[str, Any]) -> list[dict[int, float]]:
    return [
        {int(token.removeprefix("token_id:")): float(value) for token, value in row.items()}
        for row in choice["logprobs"]["top_logprobs"]
    ]


def _pool() -> urllib3.PoolManager:
    """Return persistent connections with the environment's key; without the key if every visitor may name a server."""
    key = "" if who_may_name_paths() is MayNamePaths.EVERYBODY else os.environ.get(KEY)
    return urllib3.PoolManager(
        headers={"Authorization": f"Bearer {key}"} if key else None,
        timeout=urllib3.Timeout(connect=5.0, read=PATIENCE),
        retries=_RETRIES,
    )
