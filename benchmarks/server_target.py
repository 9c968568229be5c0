"""The built-in target on a vLLM server held against itself on this machine, and what a round costs there.

    make engines
    python benchmarks/server_target.py --engine .venv-engines [--new-tokens 96] [--json FILE]

vLLM serves the built-in target on 127.0.0.1, and MARS Viz decodes the same prompts with it and with the local one: the
built-in drafter's chains and trees, and prompt lookup, by MARS at θ = .9. Texts, verdicts and breakpoints must agree;
where a text parts from the local one, the two logits of the target there say whether it is a tie within rounding. A
round's time is held against that of its own HTTP request and of its drafting; requests are counted by the connection.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import urllib3
from engines import served, versions
from measuring import json_option, write_json

from mars_viz import demo
from mars_viz.analysis.checks import ROUNDING, distance
from mars_viz.demo.prompts import STORIES
from mars_viz.exploration import walk
from mars_viz.records import Round, emitted
from mars_viz.rules import rule_named
from mars_viz.run import Settings
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.loading import load_backend

WAYS = {
    "drafter, chains of 6": (demo.DRAFTER, "chain", 6),
    "drafter, trees of 16": (demo.DRAFTER, "dynamic:depth=6,topk=4,nodes=16", 16),
    "ngram:n=3, chains of 6": ("ngram:n=3", "chain", 6),
}


def main() -> None:
    """Decode with both, compare, print and write. Exits with 1 where a difference is no tie."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", type=Path, required=True, metavar="FOLDER", help="the environment with vLLM in it")
    parser.add_argument("--new-tokens", type=int, default=96)
    json_option(parser)
    options = parser.parse_args()
    if not (options.engine / "bin" / "vllm").exists():
        parser.error(f"There is no vLLM in {options.engine}. Make an environment with it: make engines")
    figures: dict[str, Any] = {"new_tokens": options.new_tokens, "prompts": len(STORIES), "ways": {}}
    with served(options.engine, None, 512) as address, requests() as spent:
        for name, (drafter, tree, gamma) in WAYS.items():
            settings = Settings(rule="mars", tree=tree, gamma=gamma, max_new_tokens=options.new_tokens)
            remote, local = (
                load_backend(address, str(drafter), device="cpu"),
                load_backend(None, str(drafter) if drafter != demo.DRAFTER else None, device="cpu"),
            )
            figures["ways"][name] = found = compared(remote, local, settings, spent)
            print(
                f"{name}: {found['same']} of {len(STORIES)} texts the same, {found['rounds']} rounds, "
                f"{found['verdicts_apart']} verdicts apart, breakpoints at most {found['breakpoints_apart']:.1e}; "
                f"{found['requests_per_round']:.2f} requests a round; a round over its request and drafting "
                f"{found['overhead']:.3f} ({found['overhead_low']:.3f} to {found['overhead_high']:.3f}) ×, "
                f"{found['seconds_per_round'] * 1e3:.0f} ms"
            )
            for each in found["differences"]:
                print(f"  {'tie' if each['tie'] else 'UNEXPLAINED'}: {each}")
    figures |= {
        "versions": {"MARS Viz": dict(local.versions), "vLLM": versions(options.engine)},
        "device": local.device,
    }
    write_json(options.json, figures)
    raise SystemExit(any(not each["tie"] for way in figures["ways"].values() for each in way["differences"]))


class Spent:
    """What requests to the server took."""

    def __init__(self) -> None:
        self.count, self.seconds = 0, 0.0


@contextmanager
def requests() -> Iterator[Spent]:
    """Count and time every HTTP request of the block."""
    asked, spent = urllib3.PoolManager.request, Spent()

    def timed(pool: urllib3.PoolManager, *arguments: Any, **named: Any) -> Any:
        began = time.perf_counter()
        try:
            return asked(pool, *arguments, **named)
        finally:
            spent.seconds += time.perf_counter() - began
            spent.count += 1

    urllib3.PoolManager.request = timed  # type: ignore[method-assign, assignment]
    try:
        yield spent
    finally:
        urllib3.PoolManager.request = asked  # type: ignore[method-assign]


def compared(remote: Backend, local: Backend, settings: Settings, spent: Spent) -> dict[str, Any]:
    """Texts, verdicts and breakpoints of all prompts, and what the rounds took."""
    same = rounds = apart = asked = 0
    furthest, seconds, ratios, differences = 0.0, 0.0, [], []
    for index, text in enumerate(STORIES):
        prompt = remote.prompt_ids(text, settings)
        count, inside, began = spent.count, spent.seconds, time.perf_counter()
        far = decoded(remote, settings, prompt)
        took, requested = time.perf_counter() - began, spent.seconds - inside
        near = decoded(local, settings, prompt)
        asked, seconds, rounds = asked + spent.count - count, seconds + took, rounds + len(far)
        ratios.append(took / (requested + sum(each.timing.draft for each in far)))
        same += emitted(far) == emitted(near)
        for mine, its in zip(near, far, strict=False):
            if mine.token_ids != its.token_ids:
                differences.append(difference(index, mine, its))
                break
            apart += mine.outcomes != its.outcomes
            points = mine.verdicts.breakpoints, its.verdicts.breakpoints
            if len(points[0]) == len(points[1]):
                furthest = max(furthest, float(np.nanmax(np.abs(points[0] - points[1]), initial=0.0)))
    return {
        "same": same,
        "rounds": rounds,
        "verdicts_apart": apart,
        "breakpoints_apart": furthest,
        "requests_per_round": asked / rounds,
        "seconds_per_round": seconds / rounds,
        "overhead": float(np.median(ratios)),
        "overhead_low": min(ratios),
        "overhead_high": max(ratios),
        "differences": differences,
    }


def decoded(backend: Backend, settings: Settings, prompt: tuple[int, ...]) -> list[Round]:
    """The rounds after a prompt."""
    rule = rule_named(settings.rule)
    speculator = backend.speculator(settings)
    speculator.prefill(prompt)
    return list(walk(speculator, rule, rule.checked_dial(None), prompt, backend.ending(settings)))


def difference(prompt: int, mine: Round, its: Round) -> dict[str, Any]:
    """Where two rounds part: how far the local logits of both tokens are apart."""
    tokens = next((pair for pair in zip(mine.token_ids, its.token_ids, strict=False) if pair[0] != pair[1]), None)
    ids, logits = mine.speculation.top_ids, mine.speculation.top_logits
    gaps = [] if tokens is None else [distance(*row, *tokens) for row in zip(ids, logits, strict=True)]
    gap = min((each for each in gaps if each is not None), default=None)
    return {"prompt": prompt, "tokens": tokens, "gap": gap, "tie": gap is not None and gap <= ROUNDING}


if __name__ == "__main__":
    main()
