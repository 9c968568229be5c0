"""The EAGLE-3 head for SmolLM2 on chat prompts, beside transformers' plain generation.

    python benchmarks/chat_head.py --prompts mt_bench_question.jsonl [--limit N] [--json FILE]

First turns through the chat template, greedy. For each prompt the ways take turns, in an order that rotates; ratios of
times are taken within a turn, and times include reading the prompt and, in ours, recording the evidence.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from pathlib import Path

import torch
from decode import hugging_face
from measuring import json_option, show, spread, write_json
from tqdm import tqdm

from mars_viz.demo import SMOLLM2
from mars_viz.prompts.files import load_prompts
from mars_viz.prompts.items import Turns
from mars_viz.recording import Recording
from mars_viz.run import Run, Settings
from mars_viz.speculators.loading import load_backend
from training.eagle_card import kept_at
from training.evaluation import pooled_tau

TREE = "dynamic:depth=5,topk=4,nodes=16"
THETAS = (0.95, 0.9, 0.85)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=Path, required=True, help="a prompt set such as MT-bench's questions")
    parser.add_argument("--limit", type=int, help="take so many of its prompts only")
    parser.add_argument("--head", help="folder of another head than the one that comes with the product")
    parser.add_argument("--new-tokens", type=int, default=96)
    json_option(parser)
    options = parser.parse_args()
    drafter = "eagle3" if options.head is None else f"eagle3:{options.head}"
    pair = load_backend(SMOLLM2, drafter, device="cpu", dtype="float32")
    limit = {"max_new_tokens": options.new_tokens}
    ways = {
        "chain of 4": Settings(rule="strict", gamma=4, **limit),
        "tree of 16": Settings(rule="strict", tree=TREE, **limit),
        **{f"MARS {theta}": Settings(rule="mars", dial=theta, gamma=4, **limit) for theta in THETAS},
    }
    plain = hugging_face(pair, ways["chain of 4"], assisted=False)
    prompts = [each.prompt for each in load_prompts(options.prompts, limit=options.limit, turns=Turns.FIRST).items]
    runs, seconds, same = defaultdict[str, list[Run]](list), defaultdict[str, list[float]](list), 0
    for turn, prompt in enumerate(tqdm(["Say hello.", *prompts])):  # the first warms up
        ids = pair.tokenizer.encode(prompt)
        order = ["plain", *ways]
        texts = {}
        for name in order[turn % len(order) :] + order[: turn % len(order)]:
            began = time.perf_counter()
            if name == "plain":
                texts[name] = plain(tuple(ids))
            else:
                run = Recording(pair, prompt, ways[name]).finish()
                texts[name] = run.token_ids
                runs[name].append(run)
            seconds[name].append(time.perf_counter() - began)
        same += turn > 0 and texts["plain"] == tuple(texts["chain of 4"]) == tuple(texts["tree of 16"])
    report(pair, {name: some[1:] for name, some in runs.items()}, {k: v[1:] for k, v in seconds.items()}, same, options)


def report(pair, runs, seconds, same, options) -> None:  # type: ignore[no-untyped-def]
    """Print the table and write the JSON."""
    count = len(seconds["plain"])
    figures = {
        "device": pair.device,
        "dtype": pair.dtype,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "prompts": count,
        "new_tokens": options.new_tokens,
        "same_text_as_plain": same,
        "ways": {},
    }
    print(f"{pair.target.name} and {pair.drafter.name}, {pair.dtype}, {pair.device}, {torch.get_num_threads()} threads")
    print(f"{count} prompts, {options.new_tokens} new tokens; median (min to max)")
    for name, made in runs.items():
        ratio = spread([a / b for a, b in zip(seconds["plain"], seconds[name], strict=True)])
        tau = pooled_tau(made)
        kept = kept_at(made, 4) if "tree" not in name else kept_at(made, 5)
        figures["ways"][name] = {"tau": tau, "kept_by_position": kept, "speed_over_plain": ratio}
        show(f"{name}: τ {tau:.2f}, times plain", ratio, "×")
        print(f"    kept by position {' '.join(f'{share:.2f}' for share in kept)}")
    speed = spread([len(run.token_ids) / s for run, s in zip(runs["chain of 4"], seconds["plain"], strict=True)])
    figures["plain_tokens_per_s"] = speed
    show("plain generation", speed, "tokens/s", 1)
    print(f"same text from plain, chain and tree: {same} of {count}")
    write_json(options.json, figures)


if __name__ == "__main__":
    main()
