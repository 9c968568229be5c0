"""Chains and trees of several drafters side by side in one run: tokens per second, τ, and what a round costs over its
bare passes.

    python benchmarks/trees.py [--new-tokens 96] [--repeats 2] [--json FILE]

The built-in target, greedy. Strictly all ways write the target's own text, which is checked; they take turns at each
prompt, in an order that rotates, and ratios are taken within a turn. Prompts are stories, and stories that say their
first sentences again, from which prompt lookup lives. MARS at θ = .9 is decoded once a prompt for its τ. A round's bare
passes are the very calls of both networks that it made, made again on networks of their own.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from decode import hugging_face
from measuring import json_option, show, spread, write_json
from tqdm import tqdm

from mars_viz.demo.prompts import STORIES
from mars_viz.exploration import walk
from mars_viz.rules import rule_named
from mars_viz.run import Settings
from mars_viz.speculators.backend import Backend, decode_alone
from mars_viz.speculators.drafters.model import model_drafter
from mars_viz.speculators.loading import load_backend, model_target
from mars_viz.speculators.networks import Network, Opener
from mars_viz.walk import Prefix

BARE = "drafter tree 16"
"""The way whose rounds are held against their bare passes."""


@dataclass(frozen=True, slots=True)
class Way:
    """A drafter and a shape of drafts."""

    drafter: str | None
    """None for the built-in one."""
    settings: Settings
    """Strict."""


def ways(new_tokens: int) -> dict[str, Way]:
    """What is compared, by name."""
    strict = Settings(rule="strict", max_new_tokens=new_tokens)

    def tree(depth: int, children: int, nodes: int) -> Settings:
        return replace(strict, tree=f"dynamic:depth={depth},topk={children},nodes={nodes}")

    return {
        "drafter chain 4": Way(None, replace(strict, gamma=4)),
        "drafter tree 16": Way(None, tree(5, 4, 16)),
        "eagle3 chain 4": Way("eagle3", replace(strict, gamma=4)),
        "eagle3 tree 8": Way("eagle3", tree(4, 3, 8)),
        "eagle3 tree 16": Way("eagle3", tree(5, 4, 16)),
        "eagle3 tree 32": Way("eagle3", tree(6, 6, 32)),
        "ngram chain 6": Way("ngram:n=3", replace(strict, gamma=6)),
    }


def decoded(backend: Backend, settings: Settings, prompt: Prefix) -> tuple[Prefix, int]:
    """The text, and its rounds."""
    rule, ending = rule_named(settings.rule), backend.ending(settings)
    speculator = backend.speculator(settings, rule.needs)
    speculator.prefill(prompt)
    rounds = list(walk(speculator, rule, rule.checked_dial(settings.dial), prompt, ending))
    return tuple(token for round_ in rounds for token in round_.token_ids), len(rounds)


class Noting(Network):
    """A network that notes the calls that are made of it."""

    def __init__(self, network: Network, calls: list[tuple[str, tuple[Any, ...]]]):
        self._network, self._calls = network, calls
        self.device, self.inputs = network.device, network.inputs

    def score(self, *about: Any) -> torch.Tensor:
        """As the network does."""
        self._calls.append(("score", about))
        return self._network.score(*about)

    def copy(self, *about: Any) -> None:
        """As the network does."""
        self._calls.append(("copy", about))
        self._network.copy(*about)


def over_bare_passes(pair: Backend, settings: Settings, prompt: Prefix) -> float:
    """The time of a text's rounds over that of the calls that they made, made again."""
    calls: dict[str, list[tuple[str, tuple[Any, ...]]]] = {"target": [], "drafter": []}
    parts = {"target": pair.target, "drafter": pair.drafter}

    def noting(name: str) -> Opener:
        return Opener(lambda: Noting(parts[name].passes(), calls[name]))  # type: ignore[misc, return-value]

    noted = replace(
        pair, target=model_target(noting("target"), "noted"), drafter=model_drafter(noting("drafter"), "noted")
    )
    decoded(noted, settings, prompt)
    bare = 0.0
    for name, made in calls.items():
        network = parts[name].passes()  # type: ignore[misc]
        with torch.inference_mode():
            for at, (function, about) in enumerate(made):
                began = time.perf_counter()
                getattr(network, function)(*about)
                bare += (time.perf_counter() - began) if at else 0.0  # the first reads the prompt
    rule, ending = rule_named(settings.rule), pair.ending(settings)
    speculator = pair.speculator(settings, rule.needs)
    speculator.prefill(prompt)
    rounds = walk(speculator, rule, None, prompt, ending)
    return sum(round_.timing.total for round_ in rounds) / bare


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--new-tokens", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=2)
    json_option(parser)
    options = parser.parse_args()
    compared = ways(options.new_tokens)
    backends = {name: load_backend(None, name) for name in {way.drafter for way in compared.values()}}
    pair = backends[None]
    plain = Settings(rule="strict", gamma=4, max_new_tokens=options.new_tokens)
    sets = {"stories": list(STORIES), "stories told twice": [f"{text} {text} {text[:12]}" for text in STORIES[:6]]}
    figures: dict[str, Any] = {"device": pair.device, "dtype": pair.dtype, "new_tokens": options.new_tokens}
    for name, texts in sets.items():
        prompts = [tuple(pair.tokenizer.library(text)["input_ids"]) for text in texts]
        figures[name] = compare(pair, backends, compared, plain, prompts * options.repeats)
    prompts = [tuple(pair.tokenizer.library(text)["input_ids"]) for text in STORIES]
    way = compared[BARE]
    over_bare_passes(pair, way.settings, prompts[0])  # warm up
    figures["round_over_bare_passes"] = spread([over_bare_passes(pair, way.settings, prompt) for prompt in prompts])
    show(f"a round of '{BARE}' over its bare passes", figures["round_over_bare_passes"], "×", 3)
    write_json(options.json, figures)


def compare(
    pair: Backend, backends: dict[str | None, Backend], compared: dict[str, Way], plain: Settings, prompts: list[Prefix]
) -> dict[str, Any]:
    """Time all ways in turn, print the table and return it."""
    decoders: dict[str, Callable[[Prefix], tuple[Prefix, int]]] = {
        name: lambda prompt, way=way: decoded(backends[way.drafter], way.settings, prompt)  # type: ignore[misc]
        for name, way in compared.items()
    }
    decoders["target alone"] = lambda prompt: ((alone := decode_alone(pair, prompt, plain)[0]), len(alone))
    for name, assisted in (("hf assisted 4", True), ("hf plain", False)):
        generate = hugging_face(pair, plain, assisted=assisted)
        decoders[name] = lambda prompt, generate=generate: (generate(prompt), 0)  # type: ignore[misc]
    lookup = hugging_face(pair, plain, assisted=False, prompt_lookup_num_tokens=6)
    decoders["hf prompt lookup 6"] = lambda prompt: (lookup(prompt), 0)
    for decode in decoders.values():
        decode(prompts[0])  # warm up
    seconds, tau, same = defaultdict(list), defaultdict(list), True
    for turn, prompt in enumerate(tqdm(prompts, leave=False)):
        order = list(decoders)[turn % len(decoders) :] + list(decoders)[: turn % len(decoders)]
        texts = {}
        for name in order:
            began = time.perf_counter()
            texts[name], rounds = decoders[name](prompt)
            seconds[name].append((time.perf_counter() - began) / len(texts[name]))
            if rounds:
                tau[name].append(len(texts[name]) / rounds)
        same &= len(set(texts.values())) == 1
    found: dict[str, Any] = {"same_text": same, "turns": len(prompts), "ways": {}}
    print(f"{pair.target.name}, {pair.dtype}, {pair.device}; {len(prompts)} turns; median (min to max)")
    for name in decoders:
        speed = spread([1 / each for each in seconds[name]])
        ratio = spread([a / b for a, b in zip(seconds["target alone"], seconds[name], strict=True)])
        found["ways"][name] = {"tokens_per_s": speed, "over_target_alone": ratio}
        if tau[name]:
            found["ways"][name]["tau"] = sum(tau[name]) / len(tau[name])
        show(f"{name}, tokens/s", speed, "", 0)
        show("  over the target alone", ratio, f"×, τ {found['ways'][name]['tau']:.2f}" if tau[name] else "×")
    for name, way in compared.items():
        if way.drafter == "ngram:n=3":
            continue
        relaxed = replace(way.settings, rule="mars", dial=0.9)
        gains = [decoded(backends[way.drafter], relaxed, prompt) for prompt in dict.fromkeys(prompts)]
        mars = sum(len(text) / rounds for text, rounds in gains) / len(gains)
        found["ways"][name]["tau_mars_0.9"] = mars
        print(f"{name:<28} τ {found['ways'][name]['tau']:.2f}, MARS at .9 {mars:.2f}")
    print(f"same text from all: {'yes' if same else 'NO'}")
    return found


if __name__ == "__main__":
    main()
