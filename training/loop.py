"""A resumable training loop for the built-in pair. Knows optimisers and checkpoints; not what is being learned."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from tqdm import tqdm
from transformers import PreTrainedModel

from mars_viz.speculators.devices import fit_cores
from mars_viz.writer import replacing
from training.corpus import Mixture
from training.eagle_head import Head

Loss = Callable[..., Tensor]
"""(model, *batch) -> scalar; a batch begins with tokens [B, S + 1] and weights [B, S]."""
Batches = Callable[[int, int, int], tuple[Tensor, ...]]
"""(step, rows, length) -> a batch on the CPU."""

WEIGHT_DECAY = 0.3
"""Of the layers' matrices; high, since the stories are read several times."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long and how hard to train. Warm-up, constant rate, then linear decay to zero on longer rows."""

    steps: int
    """Optimiser steps in all."""
    rate: float = 3e-3
    """Peak learning rate, of AdamW and (matched in root mean square) of Muon."""
    warmup: int = 100
    """Steps over which the rate rises."""
    decay_share: float = 0.4
    """Share of the steps, the last ones, over which the rate falls to zero."""
    tokens_per_step: int = 8192
    short: int = 256
    """Row length until the decay begins."""
    long: int = 512
    """Row length during the decay; the model's context."""
    checkpoint_every: int = 100

    def __post_init__(self) -> None:
        if self.steps < 1 or not 0 < self.decay_share <= 1:
            raise ValueError("a schedule has at least one step and a decay share in (0, 1]")

    @property
    def decay_from(self) -> int:
        """The first step of the decay."""
        return round(self.steps * (1 - self.decay_share))

    def rate_at(self, step: int) -> float:
        """Learning rate of this step."""
        if step < self.decay_from:
            return self.rate * min(1.0, (step + 1) / self.warmup)
        return self.rate * (self.steps - step) / (self.steps - self.decay_from)

    def shape_at(self, step: int) -> tuple[int, int]:
        """Rows and row length of this step's batch."""
        length = self.short if step < self.decay_from else self.long
        return self.tokens_per_step // length, length


def fit(
    model: PreTrainedModel | Head,
    loss: Loss,
    batches: Batches,
    schedule: Schedule,
    checkpoint: Path,
    label: str,
    *,
    compiled: bool = True,
    bfloat16: bool = True,
) -> None:
    """Train `model` in place; go on from `checkpoint` if it is there, and keep it and its curve up to date.

    In bfloat16 where the device multiplies it fast: a processor without it takes 30 times as long as in float32.
    """
    device = model.device
    if device.type == "cpu":
        fit_cores()
    optimizers = _optimizers(model, schedule.rate)
    first = _resume(checkpoint, model, optimizers)
    step_loss = _autocast(loss, device.type) if bfloat16 else loss
    if compiled:
        step_loss = torch.compile(step_loss)
    average, began = torch.tensor(math.nan, device=device), time.perf_counter()
    bar = tqdm(range(first, schedule.steps), initial=first, total=schedule.steps, desc=label, mininterval=5)
    for step in bar:
        batch = [x.to(device, non_blocking=True) for x in batches(step, *schedule.shape_at(step))]
        value = _step(model, step_loss, batch, optimizers, schedule.rate_at(step))
        average = torch.where(average.isnan(), value, average.lerp(value, 0.02))  # read seldom: a GPU is not waited for
        if (step + 1) % schedule.checkpoint_every == 0 or step + 1 == schedule.steps:
            bar.set_postfix(loss=f"{average:.3f}", refresh=False)
            _save(checkpoint, step + 1, model, optimizers)
            with checkpoint.with_suffix(".csv").open("a") as curve:  # step, loss, seconds since this start
                curve.write(f"{step + 1},{average:.4f},{time.perf_counter() - began:.0f}\n")


def _step(
    model: PreTrainedModel | Head, loss: Loss, batch: list[Tensor], optimizers: list[torch.optim.Optimizer], rate: float
) -> Tensor:
    """Train on one batch; its loss."""
    value = loss(model, *batch)
    value.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad()
    return value.detach()


def as_tensors(mixture: Mixture) -> Batches:
    """The mixture's batches as torch tensors."""

    def batches(step: int, rows: int, length: int) -> tuple[Tensor, Tensor]:
        batch = mixture.batch(step, rows, length)
        return torch.from_numpy(batch.tokens), torch.from_numpy(batch.weights)

    return batches


def next_token_loss(model: nn.Module, tokens: Tensor, weights: Tensor) -> Tensor:
    """Weighted cross-entropy of the next token, in nats."""
    logits = model(input_ids=tokens[:, :-1], use_cache=False).logits  # [B, S, V]
    losses = nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
    return (losses * weights.flatten()).sum() / weights.sum()


def _autocast(loss: Loss, device: str) -> Loss:
    def wrapped(model: nn.Module, *batch: Tensor) -> Tensor:
        with torch.autocast(device, torch.bfloat16):
            return loss(model, *batch)

    return wrapped


def _optimizers(model: nn.Module, rate: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, AdamW for embeddings and norms."""
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name and "head" not in name]
    rest = [p for p in model.parameters() if all(p is not m for m in matrices)]
    return [
        torch.optim.Muon(matrices, lr=rate, weight_decay=WEIGHT_DECAY, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, lr=rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True),
    ]


def _save(path: Path, step: int, model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        torch.save(
            {"step": step, "model": model.state_dict(), "optimizers": [o.state_dict() for o in optimizers]}, file
        )


def _resume(path: Path, model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> int:
    if not path.exists():
        return 0
    state = torch.load(path, map_location=next(model.parameters()).device, weights_only=True)
    model.load_state_dict(state["model"])
    for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
        optimizer.load_state_dict(saved)
    return int(state["step"])
