"""Distilling the drafter: texts to learn on, and how far it is from the target's law. Knows models; no stages.

Divergences as in DistillSpec (Zhou et al. 2024, arXiv 2310.08461); which tokens to learn on as in AdaSPEC (Hu et al.
2025, arXiv 2510.19779).
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from mars_viz.demo import tasks
from mars_viz.writer import replacing
from training.corpus import learned

BATCH = 64
NEW_TOKENS = 200
SELECTED = 0.4
"""Share of a batch's tokens that AdaSPEC learns on: those at which a reference drafter is furthest ahead."""


def gather_samples(
    writer: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    texts: list[str],
    path: Path,
    options: argparse.Namespace,
) -> list[np.ndarray]:
    """What `own_texts` writes, kept at `path`; made again only if it is not there."""
    if not path.exists():
        made = own_texts(writer.eval(), tokenizer, texts, options.seed, options.sample_batches)
        rows = [row for batch in made for row in batch]
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            np.savez(file, tokens=np.concatenate(rows), lengths=[len(row) for row in rows])
    with np.load(path) as saved:
        return np.split(saved["tokens"], np.cumsum(saved["lengths"])[:-1])


def own_texts(
    writer: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, texts: list[str], seed: int, batches: int
) -> Iterator[list[np.ndarray]]:
    """Texts that a model writes itself, prompts included, a batch at a time.

    Half are greedy and half are sampled at temperature 1, as the drafter will be asked to follow both; prompts are the
    beginnings of stories and exercises that are not held out.
    """
    torch.manual_seed(seed)
    rng = random.Random(f"samples:{seed}")
    for batch in tqdm(range(batches), desc="the model's own texts"):
        prompts = tokenizer([_prompt(texts, rng) for _ in range(BATCH)], padding=True, padding_side="left")
        inputs = {name: torch.tensor(prompts[name], device=writer.device) for name in ("input_ids", "attention_mask")}
        # transformers ends a row at the end-of-text token, which every row also begins with and is padded with
        written = writer.generate(
            **inputs, do_sample=batch % 2 == 1, temperature=1.0, top_k=0, max_new_tokens=NEW_TOKENS, pad_token_id=0
        ).cpu()
        yield [
            _trimmed(row, int(mask.sum()), inputs["input_ids"].shape[1])
            for row, mask in zip(written.numpy(), inputs["attention_mask"].cpu().numpy(), strict=True)
        ]


def _prompt(texts: list[str], rng: random.Random) -> str:
    if rng.random() < 0.5:
        words = rng.choice(texts).split(" ")
        return " ".join(words[: rng.randint(1, 12)])
    return learned(rng.choice(list(tasks.Task)), rng).prompt


def _trimmed(row: np.ndarray, prompt: int, width: int) -> np.ndarray:
    """The prompt's tokens and the text up to its end; padding on both sides removed."""
    text = row[width:]
    ends = np.flatnonzero(text == 0)
    text = text[: ends[0]] if len(ends) else text
    return np.concatenate([row[width - prompt : width], text]).astype(np.int64)


Divergence = Callable[[Tensor, Tensor], Tensor]
"""Of log laws [B, S, V], the target's and the drafter's: nats (total variation: a share) at each position [B, S]."""

DIVERGENCES: dict[str, Divergence] = {
    "forward": lambda wanted, given: (wanted.exp() * (wanted - given)).sum(-1),
    "reverse": lambda wanted, given: (given.exp() * (given - wanted)).sum(-1),
    "total-variation": lambda wanted, given: (wanted.exp() - given.exp()).abs().sum(-1) / 2,
}


class Distillation:
    """How far the drafter is from the target's law, at every position or at those that are worth learning."""

    def __init__(self, target: nn.Module, divergence: Divergence, reference: nn.Module | None = None):
        """With a reference: at the `SELECTED` share of positions at which it is furthest ahead of the drafter."""
        self._target, self._divergence, self._reference = target, divergence, reference

    def __call__(self, drafter: nn.Module, tokens: Tensor, weights: Tensor) -> Tensor:
        """A mean over tokens [B, S + 1] with weights [B, S]."""
        inputs = tokens[:, :-1]
        with torch.no_grad():
            wanted = _law(self._target, inputs)
        given = _law(drafter, inputs)
        apart = self._divergence(wanted, given)
        weights = weights.clamp(min=0.3)  # the target's law over a task's prompt is worth imitating, a little
        if self._reference is not None:
            with torch.no_grad():
                ahead = apart - self._divergence(wanted, _law(self._reference, inputs))
                least = ahead.flatten().quantile(1 - SELECTED)
                weights = weights * (ahead >= least)
        return (apart * weights).sum() / weights.sum()


def _law(model: nn.Module, inputs: Tensor) -> Tensor:
    logits: Tensor = model(input_ids=inputs, use_cache=False).logits
    return logits.float().log_softmax(-1)
