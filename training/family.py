"""Trains a pair on, so that it reasons in free wording: `python -m training.family --data FOLDER --pair FOLDER`.

Begins with a pair that `training.train` made; teaches the target the free-wording tasks and to say what it will say
after half of its layers already; then distils the drafter from the new target. Resumable; knows the stages.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoTokenizer, LlamaForCausalLM

from mars_viz.demo import PAIR
from training import command
from training.corpus import Mixture, Shares, Source, plain_source, stories, text_sources
from training.distil import DIVERGENCES, Distillation, gather_samples
from training.loop import Schedule, as_tensors, fit, next_token_loss
from training.train import CONTEXT, model_in

EXIT = 4
"""Layers after which the target is trained to say its next token as well: half of them."""
EXIT_WEIGHT = 0.3
"""What that weighs in the loss."""
TOKENS = 2048
"""Of a step."""

_SMALL = {"tokens_per_step": TOKENS, "long": CONTEXT, "checkpoint_every": 20}

LEARN = Shares(stories=0.18, addition=0.05, sorting=0.13, question=0.15, counting=0.21, holders=0.13, turns=0.15)
"""What the target learns from: much of what is new, and so much of what it knew that it keeps it."""
DISTIL = Shares(stories=0.62, addition=0.05, sorting=0.08, question=0.10, counting=0.07, holders=0.06, turns=0.02)
"""What the drafter learns from besides the target's own texts."""


@command
def main(arguments: list[str] | None = None) -> None:
    """Run the stages that are not done yet."""
    parser = argparse.ArgumentParser(prog="python -m training.family", description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the training text")
    parser.add_argument("--pair", type=Path, default=Path("checkpoints/pair"), help="folder of the pair to begin with")
    parser.add_argument("--out", type=Path, default=PAIR, help="folder of the pair to write (%(default)s)")
    parser.add_argument("--work", type=Path, default=Path("checkpoints/family"), help="folder for checkpoints")
    parser.add_argument("--target-steps", type=int, default=2000, help=f"steps of {TOKENS} tokens (%(default)s)")
    parser.add_argument("--drafter-steps", type=int, default=400, help="as many tokens each (%(default)s)")
    parser.add_argument("--sample-batches", type=int, default=12, help="batches of 64 texts by the target")
    parser.add_argument("--divergence", choices=tuple(DIVERGENCES), default="forward", help="from the target's law")
    parser.add_argument("--on-policy", action="store_true", help="learn on the drafter's own texts, not the target's")
    parser.add_argument("--reference", type=Path, help="a drafter: learn where it could learn most (AdaSPEC)")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--bfloat16", action="store_true", help="for processors and cards that multiply it fast")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args(arguments)
    texts, _ = stories(options.data)
    target, drafter = (model_in(options.pair / name, options.device) for name in ("target", "drafter"))
    reference = None if options.reference is None else model_in(options.reference, options.device).eval()
    tokenizer = AutoTokenizer.from_pretrained(options.pair / "target")
    train_target(target, text_sources(tokenizer, texts, LEARN), options)
    target.eval().requires_grad_(False)
    samples = gather_samples(target, tokenizer, texts, options.work / "samples.npz", options)
    if options.on_policy:
        samples = gather_samples(drafter.eval(), tokenizer, texts, options.work / "own.npz", options)
    text = text_sources(tokenizer, texts, DISTIL)
    loss = Distillation(target, DIVERGENCES[options.divergence], reference)
    train_drafter(drafter, loss, [plain_source(1.0, samples), *text], options)
    for name, model in (("target", target), ("drafter", drafter)):
        model.to(torch.bfloat16).save_pretrained(options.out / name)
        tokenizer.save_pretrained(options.out / name)


def train_target(target: LlamaForCausalLM, sources: list[Source], options: argparse.Namespace) -> None:
    """Teach it what is new."""
    schedule = Schedule(options.target_steps, rate=2.5e-3, warmup=20, decay_share=0.7, **_SMALL)
    batches = as_tensors(Mixture(sources, options.seed))
    fit(target, _with_exit, batches, schedule, options.work / "target.pt", "target", **_how(options))


def train_drafter(
    drafter: LlamaForCausalLM, loss: Distillation, sources: list[Source], options: argparse.Namespace
) -> None:
    """Distil it."""
    schedule = Schedule(options.drafter_steps, rate=2e-3, warmup=20, decay_share=0.7, **_SMALL)
    batches = as_tensors(Mixture(sources, options.seed + 1))
    fit(drafter.train(), loss, batches, schedule, options.work / "drafter.pt", "drafter", **_how(options))


def _how(options: argparse.Namespace) -> dict[str, bool]:
    return {"compiled": False, "bfloat16": options.bfloat16}


def _with_exit(model: Any, tokens: Tensor, weights: Tensor) -> Tensor:
    """The loss of the next token, and a share of that of leaving after `EXIT` layers, as LayerSkip trains it (Elhoushi
    et al. 2024, arXiv 2404.16710)."""
    states: list[Any] = []
    hook = model.model.layers[EXIT].register_forward_pre_hook(lambda _, given: states.append(given[0]))
    last = next_token_loss(model, tokens, weights)
    hook.remove()
    early = nn.functional.cross_entropy(
        model.lm_head(model.model.norm(states[0])).float().flatten(0, 1), tokens[:, 1:].flatten(), reduction="none"
    )
    return (last + EXIT_WEIGHT * (early * weights.flatten()).sum() / weights.sum()) / (1 + EXIT_WEIGHT)


if __name__ == "__main__":
    sys.exit(main())
