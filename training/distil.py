"""Distilling the drafter: the target's own samples, and the divergence from its law. Knows both models, no files."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from mars_viz.demo import tasks
from training.loop import Loss

BATCH = 64
NEW_TOKENS = 200


def own_samples(
    target: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, texts: list[str], seed: int, batches: int
) -> Iterator[list[np.ndarray]]:
    """Texts that the target writes itself, prompts included, a batch at a time.

    Half are greedy and half are sampled at temperature 1, as the drafter will be asked to follow both; prompts are the
    beginnings of stories and exercises that are not held out.
    """
    torch.manual_seed(seed)
    rng = random.Random(f"samples:{seed}")
    for batch in tqdm(range(batches), desc="target's own samples"):
        prompts = tokenizer([_prompt(texts, rng) for _ in range(BATCH)], padding=True, padding_side="left")
        inputs = {name: torch.tensor(prompts[name], device=target.device) for name in ("input_ids", "attention_mask")}
        # transformers ends a row at the end-of-text token, which every row also begins with and is padded with
        written = target.generate(
            **inputs, do_sample=batch % 2 == 1, temperature=1.0, top_k=0, max_new_tokens=NEW_TOKENS, pad_token_id=0
        ).cpu()
        yield [
            _trimmed(row, int(mask.sum()), inputs["input_ids"].shape[1])
            for row, mask in zip(written.numpy(), inputs["attention_mask"].cpu().numpy(), strict=True)
        ]


def _prompt(texts: list[str], rng: random.Random) -> str:
    if rng.random() < 0.6:
        words = rng.choice(texts).split(" ")
        return " ".join(words[: rng.randint(1, 12)])
    return next(tasks.instances(rng.choice(list(tasks.Task)), rng.randrange(1 << 30), held_out=False)).prompt


def _trimmed(row: np.ndarray, prompt: int, width: int) -> np.ndarray:
    """The prompt's tokens and the text up to its end; padding on both sides removed."""
    text = row[width:]
    ends = np.flatnonzero(text == 0)
    text = text[: ends[0]] if len(ends) else text
    return np.concatenate([row[width - prompt : width], text]).astype(np.int64)


def distillation_loss(target: nn.Module) -> Loss:
    """KL(target || drafter) per token, nats, at every position."""

    def loss(drafter: nn.Module, tokens: Tensor, weights: Tensor) -> Tensor:
        inputs = tokens[:, :-1]
        with torch.no_grad():
            wanted = target(input_ids=inputs, use_cache=False).logits.float().log_softmax(-1)  # [B, S, V]
        given = drafter(input_ids=inputs, use_cache=False).logits.float().log_softmax(-1)
        divergence = (wanted.exp() * (wanted - given)).sum(-1)  # [B, S]
        weights = weights.clamp(min=0.3)  # the target's law over a task's prompt is worth imitating, a little
        return (divergence * weights).sum() / weights.sum()

    return loss
