"""The load table against real batches: modelled and measured speed-up over the target alone, several texts at once.

    python benchmarks/load.py [--sizes 1 8] [--gamma 4] [--target FOLDER --drafter FOLDER | --shapes llama-8b]

Rounds are measured as by `mars-viz sweep --load`. Then every prompt is decoded with and without drafts and with
recording (`record_all`), so many at once, in an order that rotates. Times are without the prompts' own passes. Without
recording they end with the first text, as if an engine refilled its batches; those of `record_all` shrink, since texts
need different numbers of rounds. Tokens per round are counted on the same texts, and the caches of the measured rounds
are as long as theirs on average.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter, defaultdict

import torch
from measuring import show, spread, write_json
from shapes import backend_named, decoding_options
from tqdm import tqdm

from mars_viz.costs import ratio
from mars_viz.demo.prompts import STORIES
from mars_viz.exploration import walk_all
from mars_viz.recording import record_all
from mars_viz.rules import rule_named
from mars_viz.run import Settings
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.costs import MeasuringBatches
from mars_viz.speculators.devices import inference, wait_for
from mars_viz.walk import Ending, Prefix


def drafted(pair: Backend, prompts: list[Prefix], settings: Settings) -> tuple[int, int, float]:
    """Tokens, rounds and seconds of these prompts, decoded together until the first one is about to end."""
    rule, limit = rule_named(settings.rule), settings.max_new_tokens
    speculator = pair.speculator(settings, rule.needs)
    speculator.prefill(*prompts)
    wait_for(pair.place)
    written, rounds, began = Counter[int](), 0, time.perf_counter()
    for index, each in walk_all(
        speculator, rule, rule.checked_dial(None), prompts, Ending(frozenset(), limit + settings.gamma + 1)
    ):
        written[index] += len(each.token_ids)
        rounds += 1
        if rounds % len(prompts) == 0 and max(written.values()) >= limit:
            break
    wait_for(pair.place)
    return written.total(), rounds, time.perf_counter() - began


def alone(pair: Backend, prompts: list[Prefix], tokens: int) -> float:
    """Seconds of the target alone, which writes so many after each of these prompts."""
    target, texts = pair.target.open(), list(prompts)
    nothing = torch.empty((len(texts), 0), dtype=torch.int64, device=target.device)
    with inference():
        target.prefill([text[:-1] for text in texts])
        wait_for(pair.place)
        began = time.perf_counter()
        for _ in range(tokens):
            following = target.score(texts, nothing)[:, 0].argmax(-1).cpu().tolist()
            target.observe([()] * len(texts))
            texts = [(*text, token) for text, token in zip(texts, following, strict=True)]
        wait_for(pair.place)
        return time.perf_counter() - began


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    decoding_options(parser, new_tokens=64, repeats=5)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 8], help="powers of two")
    options = parser.parse_args()
    pair = backend_named(options)
    settings = Settings(rule=options.rule, gamma=options.gamma, max_new_tokens=options.new_tokens)
    sizes: list[int] = options.sizes
    prompts = [tuple(pair.tokenizer.library(STORIES[n % len(STORIES)])["input_ids"]) for n in range(max(sizes))]
    length = sum(map(len, prompts)) // len(prompts) + options.new_tokens // 2  # of the caches, on average
    measuring = MeasuringBatches(pair, settings, max(sizes), cache_length=length)
    for _ in tqdm(measuring, desc="rounds", leave=False):
        pass
    costs = measuring.costs()
    tokens, rounds, _ = drafted(pair, prompts, settings)  # warm up
    tau, measured = tokens / rounds, dict[int, dict[str, list[float]]]()
    for turn in tqdm(range(options.repeats), desc="decodes", leave=False):
        for size in sizes[turn % len(sizes) :] + sizes[: turn % len(sizes)]:
            spent: dict[str, float] = defaultdict(float)  # seconds per token
            for at in range(0, len(prompts), size):
                group = prompts[at : at + size]
                written, _, seconds = drafted(pair, group, settings)
                spent["drafted"] += seconds / written
                spent["alone"] += alone(pair, group, options.new_tokens) / options.new_tokens / len(group)
                runs = list(record_all(pair, group, settings, batch=size))
                seconds = sum(run.provenance.seconds for run in runs)
                spent["recorded"] += seconds / sum(len(run.token_ids) for run in runs)
            for way in ("drafted", "recorded"):
                measured.setdefault(size, defaultdict(list))[way].append(spent["alone"] / spent[way])
    print(f"{pair.target.name} and {pair.drafter.name}, {pair.dtype}, {pair.device}")
    print(f"{options.rule}, γ = {options.gamma}, τ = {tau:.2f}; speed-up over the target alone with as many texts")
    figures: dict[str, object] = {"device": pair.device, "dtype": pair.dtype, "gamma": options.gamma, "tau": tau}
    for size in sizes:
        row = costs.rounds[costs.sizes.index(size)]
        factor = ratio(row[0], row[options.gamma])
        modelled = {"median": tau * factor.estimate, "min": tau * factor.low, "max": tau * factor.high}
        ways = {"modelled": modelled} | {way: spread(values) for way, values in measured[size].items()}
        for way, values in ways.items():
            show(f"{size} at once, {way}", values, "×")
        figures[str(size)] = ways
    write_json(options.json, figures)


if __name__ == "__main__":
    main()
