"""What a round takes over the bare model passes that it cannot avoid, side by side in one run, with recording on.

    python benchmarks/overhead.py [--gamma 4] [--target FOLDER --drafter FOLDER | --shapes llama-8b] [--json FILE]

Unavoidable are γ passes of the drafter over one position and one of the target over γ + 1. While a text is decoded,
every round is followed by these passes, at the same cache length, on networks of their own; the ratio is that of a
text's rounds to its bare passes. They go the faster of two ways, the product's or transformers' own, which is found
out first. Afterwards the parts of a round are timed one by one, waiting for the device between them.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from measuring import show, spread, write_json
from shapes import backend_named, decoding_options
from tqdm import tqdm

from mars_viz import walk as walking
from mars_viz.demo.prompts import STORIES
from mars_viz.exploration import walk
from mars_viz.records import Speculation
from mars_viz.rules import rule_named
from mars_viz.run import Settings
from mars_viz.speculators import evidence
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.devices import wait_for
from mars_viz.speculators.drafters.model import ModelDrafter, Picking
from mars_viz.speculators.evidence import Waiting
from mars_viz.speculators.networks import Network
from mars_viz.speculators.networks.hf import PlainNetwork
from mars_viz.speculators.targets import CachedModel
from mars_viz.walk import Ending, Prefix

GREEDY = Picking.by(Settings())


class Bare:
    """The passes of a round and nothing else."""

    def __init__(self, target: Network, drafter: Network, gamma: int, vocabulary: int):
        self._target, self._drafter = target, drafter
        ids = torch.arange(gamma + 1, device=target.device) * 7919 % vocabulary
        self._block = ids.unsqueeze(0)  # [1, γ + 1]
        self._tokens = list(self._block.split(1, 1))[:gamma]

    def read(self, prompt: Prefix) -> None:
        """Fill both caches."""
        ids = torch.tensor([prompt], device=self._block.device)
        with torch.inference_mode():
            for network in (self._target, self._drafter):
                network.score(ids, [0], 1)

    def seconds(self, length: int) -> float:
        """How long they take after a prefix of `length` tokens whose last one is unread."""
        began = self._now()
        with torch.inference_mode():
            self._drafter.chain(self._tokens[0], [length - 1], len(self._tokens), GREEDY, None, None)
            self._target.score(self._block, [length - 1], len(self._tokens) + 1)
        return self._now() - began

    def _now(self) -> float:
        wait_for(self._block.device)
        return time.perf_counter()


def fastest_passes(pair: Backend, gamma: int, prompt: Prefix) -> Bare:
    """The faster of the ways this device has to run them, tried in turn."""
    size = pair.vocabulary_size
    ways = [Bare(pair.target.passes(), pair.drafter.passes(), gamma, size)]
    if not isinstance(pair.target.passes(), PlainNetwork):
        ways.append(Bare(PlainNetwork(pair.target.model, size), PlainNetwork(pair.drafter.model, size), gamma, size))
    for way in ways:
        way.read(prompt)
    seconds = [[way.seconds(len(prompt)) for way in ways] for _ in range(20)]
    best = min(range(len(ways)), key=lambda index: min(turn[index] for turn in seconds))
    return ways[best]


def rounds_over_passes(pair: Backend, prompt: Prefix, settings: Settings, bare: Bare) -> float:
    """The time of a text's rounds over that of as many bare passes."""
    rule, ending = rule_named(settings.rule), Ending(pair.eos_ids, settings.max_new_tokens)
    asked = pair.speculator(settings, rule.needs, later=True)
    asked.prefill(prompt)
    bare.read(prompt)
    length, rounds, passes, made = len(prompt), 0.0, 0.0, list[Speculation]()
    for round_ in walk(asked, rule, rule.checked_dial(None), prompt, ending):
        if len(round_.speculation) == settings.gamma:  # the context's end shortens the last ones
            rounds += round_.timing.total
            passes += bare.seconds(length)
        length += len(round_.token_ids)
        made.append(round_.speculation)
    began = time.perf_counter()
    asked.complete(made)
    return (rounds + time.perf_counter() - began) / passes


class Stopwatch:
    """Adds up the time within functions, what they call under another name left out."""

    def __init__(self, device: torch.device, undo: ExitStack):
        """`undo` takes the functions' own back."""
        self.seconds: dict[str, float] = defaultdict(float)
        self._device, self._undo = device, undo
        self._inner: list[float] = []

    def wrap(self, owner: Any, name: str, part: str) -> None:
        """Let calls of this function count for that part."""
        function: Callable[..., Any] = getattr(owner, name)

        def timed(*args: Any, **named: Any) -> Any:
            wait_for(self._device)
            began = time.perf_counter()
            self._inner.append(0.0)
            try:
                return function(*args, **named)
            finally:
                wait_for(self._device)
                taken = time.perf_counter() - began
                self.seconds[part] += taken - self._inner.pop()
                if self._inner:
                    self._inner[-1] += taken

        self._undo.callback(setattr, owner, name, function)
        setattr(owner, name, timed)


def breakdown(pair: Backend, prompts: list[Prefix], settings: Settings) -> dict[str, float]:
    """Milliseconds of a round by part, averaged over whole texts."""
    with ExitStack() as undo:
        return _parts(pair, prompts, settings, Stopwatch(pair.place, undo))


def _parts(pair: Backend, prompts: list[Prefix], settings: Settings, watch: Stopwatch) -> dict[str, float]:
    rule, ending = rule_named(settings.rule), Ending(pair.eos_ids, settings.max_new_tokens)
    watch.wrap(ModelDrafter, "draft", "drafting")
    watch.wrap(evidence, "gather_evidence", "evidence")
    watch.wrap(Waiting, "take", "evidence")
    watch.wrap(Waiting, "complete", "evidence")
    watch.wrap(evidence, "to_host", "transfers")
    for name in ("rewind", "observe"):
        watch.wrap(CachedModel, name, "commit and rollback")
    watch.wrap(walking, "settle", "judging")
    watch.wrap(type(rule), "judge", "judging")
    rounds, whole = 0, 0.0
    for prompt in prompts:
        asked = pair.speculator(settings, rule.needs, later=True)
        made: list[Speculation] = []
        asked.prefill(prompt)
        watch.wrap(asked._target, "score", "verification")
        for round_ in walk(asked, rule, rule.checked_dial(None), prompt, ending):
            rounds += 1
            made.append(round_.speculation)
            whole += round_.timing.total
        began = time.perf_counter()
        asked.complete(made)
        whole += time.perf_counter() - began
    parts = {part: 1000 * taken / rounds for part, taken in watch.seconds.items()}
    parts["other"] = 1000 * whole / rounds - sum(parts.values())
    return parts


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    decoding_options(parser, new_tokens=128, repeats=3)
    options = parser.parse_args()
    pair = backend_named(options)
    settings = Settings(rule=options.rule, gamma=options.gamma, max_new_tokens=options.new_tokens)
    prompts = [tuple(pair.tokenizer.library(text)["input_ids"]) for text in STORIES]
    bare = fastest_passes(pair, options.gamma, prompts[0])
    rounds_over_passes(pair, prompts[0], settings, bare)  # warm up
    ratios = [
        rounds_over_passes(pair, prompt, settings, bare) for prompt in tqdm(prompts * options.repeats, leave=False)
    ]
    parts = breakdown(pair, prompts, settings)
    figures: dict[str, object] = {
        "device": pair.device,
        "dtype": pair.dtype,
        "gamma": options.gamma,
        "rule": options.rule,
        "overhead": spread(ratios),
        "breakdown_ms": parts,
        "notes": pair.notes,
    }
    print(f"{pair.target.name} and {pair.drafter.name}, {pair.dtype}, {pair.device}")
    print(f"{options.rule}, γ = {options.gamma}, {len(ratios)} texts of {options.new_tokens} new tokens, recording")
    show("a round over its bare passes", figures["overhead"], "×", 3)  # type: ignore[arg-type]
    for part, taken in parts.items():
        print(f"  {part:<42} {taken:9.3f} ms a round")
    write_json(options.json, figures)


if __name__ == "__main__":
    main()
