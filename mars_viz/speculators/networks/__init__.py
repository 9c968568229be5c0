"""Forward passes over a cache of rows. Knows transformers' models; knows no text and no drafting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from transformers import PreTrainedModel

from mars_viz.speculators.devices import inference
from mars_viz.speculators.networks.base import Network
from mars_viz.speculators.networks.batched import CachePool, CudaCapture, RaggedNetwork
from mars_viz.speculators.networks.hf import PlainNetwork, apart, rewind_of, rounding
from mars_viz.speculators.networks.llama_forward import Body, why_not

__all__ = ["Network", "Opener", "differs", "opener"]

FIRST_BLOCK = 8  # tokens on which a pass of this package is compared with transformers'


@dataclass(frozen=True, slots=True)
class Opener:
    """Opens passes of one model."""

    open: Callable[[], Network]  # returns a pass with an empty cache
    lack: Callable[[], str] = str
    """Returns why passes are slower than they could be, as a predicate of the model; empty if they are not."""
    model: PreTrainedModel | None = None  # model of the passes

    def __call__(self) -> Network:
        return self.open()


def opener(model: PreTrainedModel, vocabulary_size: int, *, cuda_graphs: bool = True) -> Opener:
    """Return an opener of batched passes if the model allows them, else of transformers' own.

    They score the first `vocabulary_size` tokens. Without `cuda_graphs`, CUDA models use transformers' own. Other
    passes are compared with transformers' on a first block, which replaces them if they differ beyond rounding.
    """
    reason, faster = why_not(model), None
    if not reason and model.device.type == "cuda" and not cuda_graphs:
        reason = "CUDA graphs were not wanted (--no-cuda-graphs)"
    if not reason:
        body = Body(model, vocabulary_size)
        pool = CachePool(body, partial(CudaCapture, body.device) if body.device.type == "cuda" else None)
        lack = lambda: pool.trouble and f"runs without CUDA graphs: {pool.trouble}"  # noqa: E731
        faster = Opener(partial(RaggedNetwork, pool), lack, model)
    if faster is not None and not (reason := differs(faster(), model)):
        return faster
    rewind = rewind_of(model, vocabulary_size)
    notes = ["goes through transformers' own pass, one text after the other: " + reason, rewind.value]
    return Opener(partial(PlainNetwork, model, vocabulary_size, rewind), lambda: "; ".join(filter(None, notes)), model)


def differs(network: Network, model: PreTrainedModel) -> str:
    """Return why transformers' own pass is used: how far the network's logits of a first block are from the model's.
    Empty if that is within rounding."""
    size = int(model.get_output_embeddings().weight.shape[0])
    ids = torch.arange(FIRST_BLOCK, device=model.device).unsqueeze(0) * 7919 % size
    with inference():
        logits = network.score(ids, [0], FIRST_BLOCK)  # [1, 8, V]
        difference = apart(logits, model(input_ids=ids, use_cache=False).logits[..., : logits.shape[-1]].float())
    if difference <= rounding(model.dtype):
        return ""
    return f"the faster one gives other logits here, by up to {difference:.2g} of the largest"
