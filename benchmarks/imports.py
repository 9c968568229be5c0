"""What vLLM tells of its own runs, imported and held against decoding here.

    make engines
    python benchmarks/imports.py --engine .venv-engines [--new-tokens 96] [--gamma 4] [--json FILE]

vLLM serves the built-in target on 127.0.0.1 with the built-in drafter and with the EAGLE-3 head, and logs its drafts by
the plugin under examples/. Its responses and that log are made into runs, which must be those that the strict rule
makes here: texts, drafts, kept tokens. And the bound of the responses alone, of the rejections that θ could have
forgiven, is held against how many MARS really forgives of them, which is known once the drafts are.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
from engines import PATIENCE, WAYS, served, versions
from measuring import json_option, write_json

from mars_viz.analysis.engine_file import RejectionBound, joined, parse_drafts, read_file
from mars_viz.demo.prompts import STORIES
from mars_viz.imports import import_run
from mars_viz.records import Outcome, Round
from mars_viz.run import Run, Settings
from mars_viz.speculators.audits import decoded
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.loading import load_backend

DIALS = (0.5, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98)


def main() -> None:
    """Import, compare, print and write. Exits with 1 where a run is not the one that is made here."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", type=Path, required=True, metavar="FOLDER", help="the environment with vLLM in it")
    parser.add_argument("--gamma", type=int, default=4)
    parser.add_argument("--new-tokens", type=int, default=96)
    json_option(parser)
    options = parser.parse_args()
    if not (options.engine / "bin" / "vllm").exists():
        parser.error(f"There is no vLLM in {options.engine}. Make an environment with it: make engines")
    figures: dict[str, Any] = {"gamma": options.gamma, "new_tokens": options.new_tokens, "drafters": {}}
    for name, (drafter, method, folder) in WAYS.items():
        backend = load_backend(None, drafter, dtype="float32", device="cpu")
        settings = Settings(rule="strict", gamma=options.gamma, max_new_tokens=options.new_tokens)
        speculative = {"method": method, "model": str(folder), "num_speculative_tokens": options.gamma}
        with tempfile.TemporaryDirectory() as logs:
            log = Path(logs) / "drafts.jsonl"
            with served(options.engine, speculative, backend.context, drafts=log) as address:
                responses = [asked(address, backend.prompt_ids(text, settings), settings) for text in STORIES]
            found = imported(backend, settings, "\n".join(responses), log.read_text())
        figures["drafters"][name] = found
        print(
            f"{name}: {found['same']} of {found['runs']} runs the same, {found['rounds']} rounds, {found['ties']} ties;"
            " of {} rejections ".format(found["rejections"])
            + ", ".join(f"θ {e['dial']:g} forgives {e['forgiven']} (bound {e['bound']})" for e in found["dials"])
        )
    figures |= {"versions": {"MARS Viz": dict(backend.versions), "vLLM": versions(options.engine)}}
    write_json(options.json, figures | {"device": backend.device})
    raise SystemExit(any(each["same"] < each["runs"] for each in figures["drafters"].values()))


def asked(address: str, prompt: tuple[int, ...], settings: Settings) -> str:
    """The engine's response, as it is."""
    body = {
        "prompt": list(prompt),
        "max_tokens": settings.max_new_tokens,
        "temperature": 0,
        "logprobs": 20,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
    }
    request = urllib.request.Request(
        f"{address}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=PATIENCE) as opened:
        return opened.read().decode()


def imported(backend: Backend, settings: Settings, responses: str, drafts: str) -> dict[str, Any]:
    """The runs of these responses and drafts beside our own, and the bound beside what MARS forgives."""
    told, log = read_file(responses).served, parse_drafts(drafts)
    made = [import_run(joined(each, log), backend) for each in told]
    bound, stopped = RejectionBound.of(told), [r for run, _ in made for r in run.rounds if is_rejection(r)]
    forgiven = {dial: sum(forgives(each, dial) for each in stopped) for dial in DIALS}
    return {
        "runs": len(made),
        "same": sum(is_ours(backend, settings, run) for run, _ in made),
        "rounds": sum(each.counts.steps for each in told),
        "ties": sum(ties for _, ties in made),
        "rejections": bound.rejections,
        "dials": [{"dial": dial, "forgiven": forgiven[dial], "bound": bound.at(dial)} for dial in DIALS],
    }


def is_rejection(round_: Round) -> bool:
    """True of a round that ended with one."""
    return round_.emission is Outcome.CORRECTED


def forgives(round_: Round, dial: float) -> bool:
    """True if MARS at this θ keeps the token that was rejected."""
    return bool(round_.verdicts.keeps(dial)[round_.stopped_by[0]])


def is_ours(backend: Backend, settings: Settings, run: Run) -> bool:
    """True if the strict rule drafts, keeps and writes here what the run holds, round by round."""
    (first, *rest), prompt = run.rounds, run.prompt_ids
    whole = Settings(rule="strict", gamma=settings.gamma, max_new_tokens=settings.max_new_tokens - 1)
    ours = decoded(backend, whole, prompt + first.token_ids)
    return len(ours) == len(rest) and all(
        np.array_equal(mine.speculation.tokens, its.speculation.tokens)
        and mine.decision.kept == its.decision.kept
        and mine.token_ids == its.token_ids
        for mine, its in zip(ours, rest, strict=True)
    )


if __name__ == "__main__":
    main()
