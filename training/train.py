"""Trains a pair from nothing: `python -m training.train --data FOLDER`. Resumable; knows the stages.

Tokenizer, then target (stories and the tasks of one wording), then the target's own samples, then the drafter
(distilled from the target on those samples and on the text). `training.family` goes on from there.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from mars_viz.errors import BadInput
from training import command
from training.corpus import VOCABULARY, Mixture, Shares, Source, plain_source, stories, text_sources, train_tokenizer
from training.distil import DIVERGENCES, Distillation, gather_samples
from training.loop import Schedule, as_tensors, fit, next_token_loss

CONTEXT = 512

POLISH = Shares(stories=0.38, addition=0.04, sorting=0.08, question=0.50)
"""Who did what to a thing is the last that the target learns, so it gets a stage of its own."""


def target_config() -> LlamaConfig:
    """7.4 M parameters."""
    return _config(width=256, layers=8, heads=4, inner=688)


def drafter_config() -> LlamaConfig:
    """1.3 M parameters."""
    return _config(width=160, layers=2, heads=5, inner=432)


def _config(width: int, layers: int, heads: int, inner: int) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )


@command
def main(arguments: list[str] | None = None) -> None:
    """Run the stages that are not done yet."""
    parser = argparse.ArgumentParser(prog="python -m training.train", description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the training text")
    parser.add_argument("--work", type=Path, default=Path("checkpoints/begun"), help="folder for checkpoints")
    parser.add_argument("--out", type=Path, default=Path("checkpoints/pair"), help="folder of the pair (%(default)s)")
    parser.add_argument("--target-steps", type=int, default=1700, help="steps of 8,192 tokens")
    parser.add_argument("--polish-steps", type=int, default=300, help="more of them, half of them questions")
    parser.add_argument("--sample-batches", type=int, default=24, help="batches of 64 texts by the target")
    parser.add_argument("--drafter-steps", type=int, default=1000, help="steps of 8,192 tokens")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args(arguments)
    texts, _ = stories(options.data)
    torch.manual_seed(options.seed)
    tokenizer = remembered_tokenizer(texts, options.work / "tokenizer")
    for name in ("target", "drafter"):
        tokenizer.save_pretrained(options.out / name)
    target = train_target(tokenizer, texts, options)
    samples = gather_samples(target, tokenizer, texts, options.work / "samples.npz", options)
    own, text = plain_source(1.0, samples), text_sources(tokenizer, texts, Shares())
    train_drafter(target, [own, *text], options)


def model_in(folder: Path, device: str = "cpu") -> LlamaForCausalLM:
    """A model that was trained before, in float32. Raises BadInput where the folder holds none."""
    if not (folder / "config.json").is_file() or not (folder / "model.safetensors").is_file():
        raise BadInput(f"There is no model in {folder}. Name a folder that one was saved in.")
    return LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).to(device)


def remembered_tokenizer(texts: list[str], folder: Path) -> PreTrainedTokenizerFast:
    """The tokenizer of the work folder; trained only if it is not there."""
    if not folder.exists():
        train_tokenizer(texts).save_pretrained(folder)
    return PreTrainedTokenizerFast.from_pretrained(folder)


def train_target(tokenizer: PreTrainedTokenizerFast, texts: list[str], options: argparse.Namespace) -> LlamaForCausalLM:
    """Train the target on stories and tasks, then on more of the task that lags, and write it to its folder in bf16."""
    model = LlamaForCausalLM(target_config()).to(options.device)
    stages = (
        ("target", Shares(), Schedule(options.target_steps)),
        ("polish", POLISH, Schedule(options.polish_steps, rate=2e-3, warmup=20, decay_share=0.6)),
    )
    for seed, (name, shares, schedule) in enumerate(stages, start=options.seed):
        batches = as_tensors(Mixture(text_sources(tokenizer, texts, shares), seed))
        fit(model, next_token_loss, batches, schedule, options.work / f"{name}.pt", name)
    model.to(torch.bfloat16).save_pretrained(options.out / "target")
    return model


def train_drafter(target: LlamaForCausalLM, sources: list[Source], options: argparse.Namespace) -> None:
    """Distil the drafter on text and the target's samples and write it to its folder in bf16."""
    torch.manual_seed(options.seed + 2)
    model = LlamaForCausalLM(drafter_config()).to(options.device)
    schedule = Schedule(options.drafter_steps, rate=4e-3)
    batches = as_tensors(Mixture(sources, options.seed + 2))
    target.requires_grad_(False)
    fit(model, Distillation(target, DIVERGENCES["forward"]), batches, schedule, options.work / "drafter.pt", "drafter")
    model.to(torch.bfloat16).save_pretrained(options.out / "drafter")


if __name__ == "__main__":
    sys.exit(main())
