"""Tokens per second of many prompts decoded together, side by side in one run: batches of 1, 2, 4, 8 and 12.

    python benchmarks/batch.py [--sizes 1 8] [--target FOLDER --drafter FOLDER | --shapes llama-8b] [--json FILE]

Same pair, same settings, recording throughout, same text checked against each prompt alone. In every turn all prompts
are decoded once at each size, in an order that rotates, so that a noisy machine hits all of them; the ratios are taken
within a turn. Times include reading the prompts.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict

from measuring import show, spread, write_json
from shapes import backend_named, decoding_options
from tqdm import tqdm

from mars_viz.demo.prompts import STORIES
from mars_viz.exploration import walk_all
from mars_viz.rules import rule_named
from mars_viz.run import Settings
from mars_viz.speculators.backend import Backend
from mars_viz.walk import Ending, Prefix


def decoded(pair: Backend, prompts: list[Prefix], settings: Settings, size: int) -> list[Prefix]:
    """The texts after the prompts, `size` of them at a time."""
    rule, ending = rule_named(settings.rule), Ending(pair.eos_ids, settings.max_new_tokens)
    texts: list[Prefix] = []
    for at in range(0, len(prompts), size):
        batch = prompts[at : at + size]
        speculator = pair.speculator(settings)
        speculator.prefill(*batch)
        made: dict[int, Prefix] = dict.fromkeys(range(len(batch)), ())
        for index, round_ in walk_all(speculator, rule, rule.checked_dial(None), batch, ending):
            made[index] += round_.token_ids
        texts += made.values()
    return texts


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    decoding_options(parser, new_tokens=64, repeats=5)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 2, 4, 8, 12], help="the first one is compared with")
    options = parser.parse_args()
    pair = backend_named(options)
    settings = Settings(rule=options.rule, gamma=options.gamma, max_new_tokens=options.new_tokens)
    prompts = [tuple(pair.tokenizer.library(text)["input_ids"]) for text in STORIES]
    sizes: list[int] = options.sizes
    expected = {size: decoded(pair, prompts, settings, size) for size in sizes}  # warm up
    same = all(texts == expected[sizes[0]] for texts in expected.values())
    tokens = sum(map(len, expected[sizes[0]]))
    seconds: dict[int, list[float]] = defaultdict(list)
    for turn in tqdm(range(options.repeats), leave=False):
        for size in sizes[turn % len(sizes) :] + sizes[: turn % len(sizes)]:
            began = time.perf_counter()
            same &= decoded(pair, prompts, settings, size) == expected[sizes[0]]
            seconds[size].append(time.perf_counter() - began)
    speed = {size: spread([tokens / taken for taken in seconds[size]]) for size in sizes}
    ratios = {
        size: spread([a / b for a, b in zip(seconds[sizes[0]], seconds[size], strict=True)]) for size in sizes[1:]
    }
    print(f"{pair.target.name} and {pair.drafter.name}, {pair.dtype}, {pair.device}")
    print(
        f"{options.rule}, γ = {options.gamma}, {len(prompts)} prompts of {options.new_tokens} new tokens, "
        f"{options.repeats} turns; median (min to max)"
    )
    for size in sizes:
        show(f"batch {size}", speed[size], "tokens/s", 0)
    for size, values in ratios.items():
        show(f"batch {size} over batch {sizes[0]}", values, "×")
    print(f"same text at every size: {'yes' if same else 'NO'}")
    figures = {
        "device": pair.device,
        "dtype": pair.dtype,
        "gamma": options.gamma,
        "tokens_per_s": {str(size): values for size, values in speed.items()},
        f"ratio_vs_batch_{sizes[0]}": {str(size): values for size, values in ratios.items()},
        "same_output": same,
        "notes": pair.notes,
    }
    write_json(options.json, figures)


if __name__ == "__main__":
    main()
