"""Decoding speed, side by side in one run: ours with recording, Hugging Face's assisted generation, its plain one.

    python benchmarks/decode.py [--target FOLDER --drafter FOLDER | --shapes llama-8b] [--device cuda] [--json FILE]

Same pair, same γ, greedy, same text checked. For each prompt the ways take turns, in an order that rotates, so that a
noisy machine hits all of them; the ratios are taken within a turn. Times include reading the prompt.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable

import torch
from measuring import json_option, show, spread, write_json
from shapes import backend_named, pair_options
from tqdm import tqdm

from mars_viz.demo.prompts import STORIES
from mars_viz.exploration import walk
from mars_viz.rules import RULES
from mars_viz.run import Settings
from mars_viz.speculators.backend import Backend
from mars_viz.walk import Ending

Decoder = Callable[[tuple[int, ...]], tuple[int, ...]]


def ours(pair: Backend, settings: Settings, *, recording: bool) -> Decoder:
    """Strict greedy, so that the text must be the target's own."""
    ending = Ending(pair.eos_ids, settings.max_new_tokens)
    needs = RULES["strict"].needs

    def decode(prompt: tuple[int, ...]) -> tuple[int, ...]:
        speculator = pair.speculator(settings, needs, later=recording)
        speculator.prefill(prompt)
        rounds = list(walk(speculator, RULES["strict"], None, prompt, ending))
        speculator.complete([round_.speculation for round_ in rounds])
        return tuple(token for round_ in rounds for token in round_.token_ids)

    return decode


def hugging_face(pair: Backend, settings: Settings, *, assisted: bool, **more: object) -> Decoder:
    """transformers' generate, with or without the drafter; `more` goes to it."""
    drafter = pair.drafter.model
    drafter.generation_config.num_assistant_tokens = settings.gamma
    drafter.generation_config.num_assistant_tokens_schedule = "constant"
    drafter.generation_config.assistant_confidence_threshold = 0.0
    extra = {"assistant_model": drafter, **more} if assisted else more

    def decode(prompt: tuple[int, ...]) -> tuple[int, ...]:
        ids = torch.tensor([prompt], device=pair.place)
        with torch.inference_mode():
            out = pair.target.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=settings.max_new_tokens,
                pad_token_id=pair.tokenizer.library.pad_token_id,
                **extra,
            )
        return tuple(out[0, len(prompt) :].tolist())

    return decode


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    pair_options(parser)
    parser.add_argument("--gamma", type=int, default=4, help="4 is where the built-in pair is fastest")
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    json_option(parser)
    options = parser.parse_args()
    pair = backend_named(options)
    settings = Settings(rule="strict", gamma=options.gamma, max_new_tokens=options.new_tokens)
    ways = {
        "ours": ours(pair, settings, recording=True),
        "ours_not_recording": ours(pair, settings, recording=False),
        "hf_assisted": hugging_face(pair, settings, assisted=True),
        "hf_plain": hugging_face(pair, settings, assisted=False),
    }
    prompts = [tuple(pair.tokenizer.library(text)["input_ids"]) for text in STORIES]
    for decode in ways.values():
        decode(prompts[0])  # warm up
    seconds, tokens, same = defaultdict(list), [], True
    for turn, prompt in enumerate(tqdm(prompts * options.repeats, leave=False)):
        order = list(ways)[turn % len(ways) :] + list(ways)[: turn % len(ways)]
        texts = {}
        for name in order:
            began = time.perf_counter()
            texts[name] = ways[name](prompt)
            seconds[name].append(time.perf_counter() - began)
        tokens.append(len(texts["hf_plain"]))
        same &= len(set(texts.values())) == 1
    report(pair, seconds, tokens, same, options)


def report(
    pair: Backend, seconds: dict[str, list[float]], tokens: list[int], same: bool, options: argparse.Namespace
) -> None:
    """Print the table and write the JSON."""

    def times(slow: str, fast: str) -> dict[str, float]:
        return spread([a / b for a, b in zip(seconds[slow], seconds[fast], strict=True)])

    overhead = spread([a / b - 1 for a, b in zip(seconds["ours"], seconds["ours_not_recording"], strict=True)])
    speed = {name: spread([n / s for n, s in zip(tokens, taken, strict=True)]) for name, taken in seconds.items()}
    figures = {
        "device": pair.device,
        "dtype": pair.dtype,
        "gamma": options.gamma,
        "turns": len(tokens),
        "tokens_per_s": {name: speed[name] for name in ("ours", "hf_assisted", "hf_plain")},
        "ratio_vs_assisted": times("hf_assisted", "ours"),
        "ratio_vs_plain": times("hf_plain", "ours"),
        "recording_overhead": overhead,
        "same_output": same,
        "notes": pair.notes,
    }
    print(f"{pair.target.name} and {pair.drafter.name}, {pair.dtype}, {pair.device}")
    print(f"γ = {options.gamma}, {options.new_tokens} new tokens, {len(tokens)} turns; median (min to max)")
    show("ours, recording", speed["ours"], "tokens/s", 0)
    show("Hugging Face assisted", speed["hf_assisted"], "tokens/s", 0)
    show("Hugging Face plain", speed["hf_plain"], "tokens/s", 0)
    show("ours over assisted", figures["ratio_vs_assisted"], "×")
    show("ours over plain", figures["ratio_vs_plain"], "×")
    show("recording costs", {k: v * 100 for k, v in overhead.items()}, "% of the time without", 1)
    print(f"same text from all: {'yes' if same else 'NO'}")
    write_json(options.json, figures)


if __name__ == "__main__":
    main()
