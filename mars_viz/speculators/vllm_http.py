"""A vLLM server over HTTP: what it serves, its tokens, the raw logits of given texts, and what it writes by itself.

Knows its routes (`/v1/models`, `/version`, `/tokenize`, `/v1/completions`, `/metrics`) and what their answers hold;
knows no drafters and imports no model library.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import urllib3

from mars_viz.analysis.counts import AcceptanceCounts
from mars_viz.analysis.vllm_metrics import vllm_counts
from mars_viz.errors import ModelError, RunFileError
from mars_viz.permissions import PATHS, MayNamePaths, who_may_name_paths
from mars_viz.records import CANDIDATES
from mars_viz.walk import Prefix

KEY = "VLLM_API_KEY"
"""Of the environment: the key that the server asks for, by the name under which vLLM itself reads it."""
START = "vllm serve MODEL --logprobs-mode raw_logits"
"""How a server is started that can be a target."""
SPECULATING = "vllm serve MODEL --speculative-config '{…}' --per-request-spec-decode-metrics detailed"
"""How one is started that speculates by itself and tells what it accepted in every round."""
PATIENCE = 120.0
"""Seconds to wait for one answer."""
_BUSY = (429, 500, 502, 503, 504)
_RETRIES = urllib3.Retry(
    total=5, connect=2, read=1, status=4, backoff_factor=0.5, status_forcelist=_BUSY, allowed_methods=None,
    raise_on_status=False,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ServedText:
    """A greedy text of a server's."""

    tokens: Prefix
    """What it wrote."""
    rows: tuple[dict[int, float], ...]
    """Of each of them, by token the logit, of the best ones there; empty where none were asked for."""
    counts: AcceptanceCounts | None = None
    """What it accepted of its own drafts on the way, the token apart that its prefill writes; None where it tells
    nothing of them."""


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
    start: str = START
    """How it is started so that it gives what it is asked for."""
    _pool: urllib3.PoolManager = field(default_factory=lambda: _pool(), repr=False, compare=False)

    @classmethod
    def at(cls, address: str, start: str = START) -> Server:
        """Ask who answers there. Raises ModelError where no vLLM server does; the remedy names `start`."""
        pool = _pool()
        served = _asked(pool, address, "/v1/models", start=start).get("data")
        found = served[0] if isinstance(served, list) and served else None
        if not isinstance(found, Mapping) or not isinstance(found.get("max_model_len"), int):
            raise ModelError(f"{address} names no model of vLLM's. Give the address of a vLLM server: {start}")
        version = str(_asked(pool, address, "/version", start=start).get("version", ""))
        name, context = str(found["id"]), int(found["max_model_len"])
        return cls(address, name, str(found.get("root") or name), context, version, start=start, _pool=pool)

    def tokens_of(self, text: str, *, special: bool = False) -> list[int]:
        """A text's tokens by the server's tokenizer; `special` adds those that begin a prompt. Raises ModelError."""
        told = self._ask("/tokenize", {"model": self.model, "prompt": text, "add_special_tokens": special})
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
                f"--max-logprobs {CANDIDATES} or more: {self.start}"
            )
        return found

    def written(self, prompt: Prefix, new_tokens: int, *, with_logits: bool = True) -> ServedText:
        """What it writes after a prompt by itself, greedily. Raises ModelError."""
        body = self._body([[*prompt]]) | {"max_tokens": new_tokens, "return_token_ids": True}
        if not with_logits:
            del body["logprobs"]
        told = self._ask("/v1/completions", body)
        with self._well_laid_out():
            (choice,) = told["choices"]
            tokens = tuple(map(int, choice["token_ids"]))
            rows = _listed(choice) if with_logits else []
            if with_logits and len(tokens) != len(rows):
                raise ValueError(f"{len(rows)} rows of {len(tokens)} tokens")
        return ServedText(tokens, tuple(rows), self._counts(told))

    def speculates(self) -> bool | None:
        """Whether it drafts by itself, as its page for Prometheus has it; None where there is no such page."""
        try:
            answer = self._pool.request("GET", f"{self.address}/metrics", redirect=False)
        except urllib3.exceptions.HTTPError:
            return None
        return b"vllm:spec_decode" in answer.data if b"vllm:" in answer.data else None

    def _counts(self, told: Mapping[str, Any]) -> AcceptanceCounts | None:
        metrics = told.get("metrics")
        found = metrics.get("speculative_decoding") if isinstance(metrics, Mapping) else None
        if not isinstance(found, Mapping):
            return None
        usage = told.get("usage")
        try:
            return vllm_counts(
                found, "request 1", usage.get("completion_tokens") if isinstance(usage, Mapping) else None
            )
        except RunFileError as error:
            raise ModelError(f"{self.address} counts wrongly what it accepted. {error}") from error

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
                f"{self.address} answers without what it was asked for ({type(error).__name__}). Start it so that it "
                f"gives it: {self.start}"
            ) from error

    def _ask(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return _asked(self._pool, self.address, path, body, self.start)


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


def _asked(
    pool: urllib3.PoolManager, address: str, path: str, body: Mapping[str, Any] | None = None, start: str = START
) -> dict[str, Any]:
    """The answer to one request, tried again with growing pauses where the server is busy. Raises ModelError, with the
    remedy, where there is none."""
    try:
        answer = pool.request("GET" if body is None else "POST", f"{address}{path}", json=body, redirect=False)
        told = json.loads(answer.data)
    except urllib3.exceptions.HTTPError as error:
        raise ModelError(
            f"No vLLM server answers at {address} ({_reason(error)}). See that it runs there and has finished loading: "
            f"{start}"
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
        f"address of a vLLM server: {start}"
    )


def _reason(error: Exception) -> str:
    """In a few words, without what belongs to the library."""
    cause = getattr(error, "reason", None) or error
    return type(cause).__name__.removesuffix("Error")
