"""Forward passes over a cache of rows. Knows transformers' models; knows no text and no drafting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor
from transformers import PreTrainedModel

from mars_viz.speculators.networks.batched import RaggedNetwork
from mars_viz.speculators.networks.cache_pool import CachePool
from mars_viz.speculators.networks.chains import Chain, Pick
from mars_viz.speculators.networks.graphs import CudaCapture
from mars_viz.speculators.networks.hf import PlainNetwork
from mars_viz.speculators.networks.llama_forward import Body, why_not
from mars_viz.speculators.networks.small_llama import PackedLlama, fits, pack

__all__ = ["Chain", "Chaining", "Network", "Opener", "Pick", "opener"]


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


@runtime_checkable
class Chaining(Network, Protocol):
    """A network that drafts by itself, so that the host need not start every step."""

    def chain(
        self,
        tokens: Tensor,
        starts: Sequence[int],
        count: int,
        pick: Pick,
        uniforms: Tensor | None = None,
        slots: Sequence[int] | None = None,
    ) -> Chain:
        """Score the tokens [B, n], pick one after them, score that, and so on until `count` are picked.

        Step s gives `pick` column s of the uniforms [B, count]. All but the last picked token are in the cache then.
        `starts` and `slots` are those of `score`.
        """
        ...


@dataclass(frozen=True, slots=True)
class Opener:
    """Opens passes of one model."""

    open: Callable[[], Network]
    """Another one, with an empty cache of its own."""
    lack: Callable[[], str] = str
    """What keeps its passes from being as fast as they could be, now: what a sentence says of the model, or nothing."""
    batching: str = ""
    """See `Part.batching`."""
    model: PreTrainedModel | None = None
    """Whose they are."""

    def __call__(self) -> Network:
        """Another pass."""
        return self.open()


def opener(model: PreTrainedModel, vocabulary_size: int) -> Opener:
    """What opens passes: packed where the model allows it, else ragged, else transformers' own.

    They score the first `vocabulary_size` tokens.
    """
    if fits(model):
        weights = pack(model, vocabulary_size)
        return Opener(partial(PackedLlama, weights), batching=str(weights.batching), model=model)
    reason = why_not(model)
    if reason:
        said = f"goes through transformers' own pass, one text after the other: {reason}"
        return Opener(partial(PlainNetwork, model, vocabulary_size), lambda: said, model=model)
    body = Body(model, vocabulary_size)
    rooms = CachePool(body, partial(CudaCapture, body.device) if body.device.type == "cuda" else None)
    lack = lambda: rooms.trouble and f"runs without CUDA graphs: {rooms.trouble}"  # noqa: E731
    return Opener(partial(RaggedNetwork, rooms), lack, model=model)
