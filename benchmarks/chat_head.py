"""The EAGLE-3 head for SmolLM2 on chat prompts, beside transformers' plain generation.

    python benchmarks/chat_head.py --prompts mt_bench_question.jsonl [--limit N] [--timed N] [--json FILE]

First turns through the chat template, greedy. Acceptance is of all prompts, decoded in batches. Speed is of some of
them, spread over the set, one at a time: the ways take turns, in an order that rotates. Ratios of times are taken
within a turn, and times include reading the prompt and, in ours, recording the evidence.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from pathlib import Path

import torch
from measuring import json_option, show, spread, write_json
from tqdm import tqdm

from mars_viz.demo import SMOLLM2
from mars_viz.prompts.files import load_prompts
from mars_viz.prompts.items import Turns
from mars_viz.recording import Recording, record_all
from mars_viz.run import Run, Settings
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.loading import load_backend

sys.path.append(str(Path(__file__).parents[1]))

from training.eagle_card import kept_at  # noqa: E402
from training.evaluation import pooled_tau  # noqa: E402

TREE = "dynamic:depth=5,topk=4,nodes=16"
THETAS = (0.95, 0.9, 0.85)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=Path, required=True, help="a prompt set such as MT-bench's questions")
    parser.add_argument("--limit", type=int, help="take so many of its prompts only")
    parser.add_argument("--timed", type=int, default=20, help="prompts whose decodes are timed (%(default)s)")
    parser.add_argument("--head", help="folder of another head than the one that comes with the product")
    parser.add_argument("--new-tokens", type=int, default=96)
    parser.add_argument("--batch", type=int, default=8, help="prompts decoded together for acceptance (%(default)s)")
    json_option(parser)
    options = parser.parse_args()
    drafter = "eagle3" if options.head is None else f"eagle3:{options.head}"
    pair = load_backend(SMOLLM2, drafter, device="cpu", dtype="float32")
    limit = {"max_new_tokens": options.new_tokens}
    ways = {
        "chain of 2": Settings(rule="strict", gamma=2, **limit),
        "chain of 4": Settings(rule="strict", gamma=4, **limit),
        "tree of 16": Settings(rule="strict", tree=TREE, **limit),
        **{f"MARS {theta}": Settings(rule="mars", dial=theta, gamma=4, **limit) for theta in THETAS},
    }
    prompts = [each.prompt for each in load_prompts(options.prompts, limit=options.limit, turns=Turns.FIRST).items]
    runs = {
        name: list(tqdm(record_all(pair, prompts, settings, batch=options.batch), name, len(prompts)))
        for name, settings in ways.items()
    }
    seconds, same = timed(pair, prompts[:: -(-len(prompts) // options.timed)], ways)
    report(pair, runs, seconds, same, options)


def timed(pair: Backend, prompts: list[str], ways: dict[str, Settings]) -> tuple[dict[str, list[float]], int]:
    """Return the seconds of each way and prompt, and for how many prompts strict decodes wrote the plain text."""
    model, seconds, same = pair.target.passes.model, defaultdict[str, list[float]](list), 0
    order = ["plain", *ways]
    for turn, prompt in enumerate(tqdm(["Say hello.", *prompts], "timed")):  # the first warms up
        texts = {}
        for name in order[turn % len(order) :] + order[: turn % len(order)]:
            began = time.perf_counter()
            if name == "plain":
                ids = torch.tensor([pair.tokenizer.encode(prompt, chat=True)])
                more = {"do_sample": False, "max_new_tokens": ways["chain of 4"].max_new_tokens}
                with torch.inference_mode():
                    out = model.generate(ids, attention_mask=torch.ones_like(ids), **more)
                texts[name] = tuple(out[0, ids.shape[1] :].tolist())
            else:
                texts[name] = Recording(pair, prompt, ways[name]).finish().token_ids
            seconds[name].append(time.perf_counter() - began)
        same += turn > 0 and texts["plain"] == texts["chain of 2"] == texts["chain of 4"] == texts["tree of 16"]
    return {name: some[1:] for name, some in seconds.items()}, same


def report(
    pair: Backend, runs: dict[str, list[Run]], seconds: dict[str, list[float]], same: int, options: argparse.Namespace
) -> None:
    """Print the table and write the JSON."""
    prompts, timed_prompts, ways = len(runs["chain of 4"]), len(seconds["plain"]), {}
    print(f"{pair.target.name} and {pair.drafter.name}, {pair.dtype}, {pair.device}, {torch.get_num_threads()} threads")
    print(f"{prompts} prompts, {timed_prompts} of them timed, {options.new_tokens} new tokens; median (min to max)")
    for name, made in runs.items():
        ratio = spread([a / b for a, b in zip(seconds["plain"], seconds[name], strict=True)])
        tau, kept = pooled_tau(made), kept_at(made, 5 if "tree" in name else made[0].settings.gamma)
        ways[name] = {"tau": tau, "kept_by_position": kept, "speed_over_plain": ratio}
        show(f"{name}: τ {tau:.2f}, times plain", ratio, "×")
        print(f"    kept by position {' '.join(f'{share:.2f}' for share in kept)}")
    print(f"plain, chains and tree write the same text: {same} of {timed_prompts}")
    figures: dict[str, object] = {
        "device": pair.device,
        "dtype": pair.dtype,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "prompts": prompts,
        "timed_prompts": timed_prompts,
        "new_tokens": options.new_tokens,
        "same_text_as_plain": same,
        "seconds_plain": spread(seconds["plain"]),
        "ways": ways,
    }
    write_json(options.json, figures)


if __name__ == "__main__":
    main()
