"""Trains the EAGLE-3 head for SmolLM2 again: `python -m training.chat_head --data FOLDER`. Resumable.

The target writes conversations, then the head learns from the target's law on them. More shards or steps than before
go on with what there is. With --part several processes write at once: each takes every N-th shard, and trains nothing.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from pathlib import Path

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from mars_viz.demo import SMOLLM2, SMOLLM2_EAGLE3
from mars_viz.errors import BadInput
from mars_viz.speculators import model_files
from mars_viz.writer import replacing, write_file
from training import command
from training.chat_texts import LONGEST, Shards, Template, Writer, write_shards
from training.eagle import save_head, started, take_over
from training.eagle_head import HeadLoss
from training.loop import Schedule, fit

QUESTIONS = "gsm8k_train.jsonl.gz"
DRAFTED = 4880
"""Tokens that the head can draft; with them its file has 15.9 MB."""
RATE = 1.5e-3
"""Peak learning rate."""
TEMPERATURE = 0.35
"""Of the target's distribution that the head learns: of 1, .6 and .35 the best after 200 steps on greedy answers."""


@command
def main(arguments: list[str] | None = None) -> None:
    """Run the stages that are not done yet."""
    parser = argparse.ArgumentParser(prog="python -m training.chat_head", description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help=f"folder with {QUESTIONS}")
    parser.add_argument("--work", type=Path, default=Path("checkpoints/smollm2"), help="folder for checkpoints")
    parser.add_argument("--shards", type=int, default=24, help="(%(default)s)")
    parser.add_argument("--together", type=int, default=256, help="conversations in a shard (%(default)s)")
    parser.add_argument("--part", type=int, nargs=2, metavar=("K", "N"), help="write shards K, K + N, … only")
    parser.add_argument("--steps", type=int, default=1200, help="(%(default)s)")
    parser.add_argument("--rows", type=int, default=12, help="conversations in a step (%(default)s)")
    parser.add_argument("--head", type=Path, help="folder of a head to begin with; else from the target's last layer")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=SMOLLM2_EAGLE3, help="folder of the head (%(default)s)")
    parser.add_argument("--bfloat16", action="store_true", help="for processors and cards that multiply it fast")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args(arguments)
    file = options.data / QUESTIONS
    if not file.is_file():
        raise BadInput(f"There is no {file}. Give the folder that holds {QUESTIONS}.")
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        questions = [json.loads(line)["question"] for line in lines]
    target, tokenizer = smollm2()
    target = target.to(options.device)
    first, every = options.part or (0, 1)
    with torch.inference_mode():
        writer = Writer(target, torch.bfloat16 if options.bfloat16 else torch.float32)
        numbers, texts = range(first, options.shards, every), options.work / "texts"
        write_shards(writer, Template(tokenizer), questions, texts, options.seed, numbers, options.together)
    if options.part is not None:
        return
    shards = Shards(texts, options.seed)
    counts = {"conversations": len(shards), "tokens": shards.token_count}
    write_file(options.work / "texts.json", json.dumps(counts).encode())
    vocabulary = drafted_tokens(shards, target.config.vocab_size, options.work / "vocabulary.pt")
    head = started(target, vocabulary, options.seed)
    if options.head is not None:
        take_over(head, vocabulary, options.head)
    head = head.to(options.device)
    loss = HeadLoss(target, vocabulary.to(options.device), temperature=TEMPERATURE)
    schedule = Schedule(
        options.steps,
        rate=RATE,
        warmup=40,
        decay_share=0.8,
        tokens_per_step=options.rows * LONGEST,
        short=LONGEST,
        long=LONGEST,
        checkpoint_every=20 if options.device == "cpu" else 100,
    )
    how = {"compiled": False, "bfloat16": options.bfloat16}
    fit(head, loss, shards.batch, schedule, options.work / "head.pt", "head", **how)
    save_head(head, vocabulary, target.config, options.out)


def drafted_tokens(shards: Shards, size: int, path: Path) -> torch.Tensor:
    """Return the most frequent tokens, int64 [DRAFTED], kept at `path` so that later shards don't change them."""
    if not path.exists():
        with replacing(path) as file:
            torch.save(shards.counts(size).topk(DRAFTED).indices.sort().values, file)
    tokens: torch.Tensor = torch.load(path, weights_only=True)
    return tokens


def smollm2() -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """Return the target, float32, and its tokenizer. Raises ModelError if its package is missing."""
    arrival = model_files.Arrival(SMOLLM2, (0.0, 1.0), lambda *_: None)
    model = model_files.loaded_model(SMOLLM2, torch.device("cpu"), torch.float32, arrival)
    tokenizer = model_files.tokenizer_of(SMOLLM2)
    assert isinstance(model, LlamaForCausalLM) and isinstance(tokenizer, PreTrainedTokenizerFast)
    return model.eval(), tokenizer


if __name__ == "__main__":
    sys.exit(main())
