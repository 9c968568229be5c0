"""Forward passes over a cache of rows. Knows transformers' models; knows no text and no drafting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor
from transformers import PreTrainedModel

from mars_viz.speculators.device_errors import inference
from mars_viz.speculators.device_map import is_spread
from mars_viz.speculators.networks.batched import RaggedNetwork
from mars_viz.speculators.networks.cache_pool import CachePool
from mars_viz.speculators.networks.chains import Chain, Pick
from mars_viz.speculators.networks.graphs import CudaCapture
from mars_viz.speculators.networks.hf import PlainNetwork, rewind_of, rounding
from mars_viz.speculators.networks.layer_inputs import LayerInputs
from mars_viz.speculators.networks.llama_forward import Body, why_not
from mars_viz.speculators.networks.small_llama import PackedLlama, fits, pack
from mars_viz.speculators.networks.tree_mask import TreeMask

__all__ = ["Chain", "Chaining", "Network", "Opener", "Pick", "TreeMask", "differs", "opener"]

FIRST_BLOCK = 8
"""Tokens on which a pass of our own is held against transformers'."""


class Network(Protocol):
    """Scores tokens after what rows of its cache hold."""

    device: torch.device
    """Where tokens and logits lie."""
    inputs: LayerInputs
    """What entered some of its layers, of every token that the cache holds; of no layers, unless it is given others
    before it reads anything."""

    def score(
        self,
        tokens: Tensor,
        starts: Sequence[int],
        rows: int,
        slots: Sequence[int] | None = None,
        tree: TreeMask | None = None,
    ) -> Tensor:
        """Raw float32 logits [B, rows, V] after the last `rows` of the tokens [B, n].

        Row b of the batch is row slots[b] of the cache; its tokens are written from place starts[b] on, over what was
        there. The slots are neighbours in any order; None stands for 0, 1, … B - 1. Each token sees all before it,
        unless a `tree` says otherwise.
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


def opener(model: PreTrainedModel, vocabulary_size: int, *, cuda_graphs: bool = True) -> Opener:
    """What opens passes: packed where the model allows it, else batched, else transformers' own.

    They score the first `vocabulary_size` tokens. Without `cuda_graphs` it is transformers' own on CUDA. A pass of our
    own is held against transformers' on a first block, and gives way to it where they differ beyond rounding.
    """
    if not is_spread(model) and fits(model):
        weights = pack(model, vocabulary_size)
        ours = Opener(partial(PackedLlama, weights), batching=str(weights.batching), model=model)
    elif reason := why_not(model):
        return _transformers(model, vocabulary_size, reason)
    elif model.device.type == "cuda" and not cuda_graphs:
        return _transformers(model, vocabulary_size, "CUDA graphs were not wanted (--no-cuda-graphs)")
    else:
        body = Body(model, vocabulary_size)
        pool = CachePool(body, partial(CudaCapture, body.device) if body.device.type == "cuda" else None)
        lack = lambda: pool.trouble and f"runs without CUDA graphs: {pool.trouble}"  # noqa: E731
        ours = Opener(partial(RaggedNetwork, pool), lack, model=model)
    why = differs(ours(), model)
    return _transformers(model, vocabulary_size, why) if why else ours


def differs(network: Network, model: PreTrainedModel) -> str:
    """Why transformers' own pass is taken: how far the network's logits of a first block lie from the model's.

    Empty if that is within rounding.
    """
    size = int(model.get_output_embeddings().weight.shape[0])
    ids = torch.arange(FIRST_BLOCK, device=model.device).unsqueeze(0) * 7919 % size
    with inference():
        ours = network.score(ids, [0], FIRST_BLOCK)  # [1, 8, V]
        theirs = model(input_ids=ids, use_cache=False).logits[..., : ours.shape[-1]].float()
        off = float((ours - theirs).abs().amax() / theirs.abs().amax())
    return (
        ""
        if off <= rounding(model.dtype)
        else f"the faster one gives other logits here, by up to {off:.2g} of the largest"
    )


def _transformers(model: PreTrainedModel, vocabulary_size: int, reason: str) -> Opener:
    rewind = rewind_of(model, vocabulary_size)
    notes = ["goes through transformers' own pass, one text after the other: " + reason, rewind.value]
    lack = "; ".join(filter(None, notes))
    return Opener(partial(PlainNetwork, model, vocabulary_size, rewind), lambda: lack, model=model)
