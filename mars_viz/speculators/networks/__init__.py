"""Forward passes over a cache of rows. Knows transformers' models; knows no text and no drafting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel

from mars_viz.speculators.networks.packed import PackedLlama, fits, pack
from mars_viz.speculators.networks.plain import PlainNetwork

__all__ = ["Network", "opener"]


class Network(Protocol):
    """Scores tokens after what rows of its cache hold."""

    device: torch.device
    """Where tokens and logits lie."""

    def score(self, tokens: Tensor, starts: Sequence[int], rows: int, slots: Sequence[int] | None = None) -> Tensor:
        """Raw float32 logits [B, rows, V] after the last `rows` of the tokens [B, n].

        Row b of the batch is row slots[b] of the cache; its tokens are written from place starts[b] on, over what was
        there. The slots are neighbours in any order; None stands for 0, 1, … B - 1.
        """
        ...

    def copy(self, source: int, slot: int, length: int) -> None:
        """Make row `slot` of the cache what row `source` is, up to `length` places."""
        ...


def opener(model: PreTrainedModel, vocabulary_size: int) -> Callable[[], Network]:
    """What opens passes with empty caches of their own: packed where the model allows it, else transformers'.

    They score the first `vocabulary_size` tokens.
    """
    if fits(model):
        return partial(PackedLlama, pack(model, vocabulary_size))
    return partial(PlainNetwork, model, vocabulary_size)
