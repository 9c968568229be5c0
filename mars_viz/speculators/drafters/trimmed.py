"""A drafter whose head scores only the most frequent tokens, so that a draft step multiplies less.

Zhao et al. 2025, 'FR-Spec' (arXiv 2502.14856), ranks tokens by their frequency in a corpus; Goel et al. 2025,
'VocabTrim' (arXiv 2506.22694), by their frequency in the target's own text. Nothing is trained: rows of the head are
left out, so q is the drafter's law restricted to the remaining tokens, and lossless rules stay lossless.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable
from itertools import chain

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from mars_viz.errors import SettingError


def most_frequent(text: Iterable[int], count: int, size: int, always: Iterable[int]) -> Tensor:
    """Return `count` of `size` tokens, ascending, int64: those in `always`, then the text's most frequent, then lowest
    ids. Raises SettingError if that is all of them, or fewer than those in `always`."""
    always = sorted(each for each in always if each < size)
    if not len(always) < count < size:
        raise SettingError(
            f"A vocabulary of {size:,} tokens cannot be trimmed to {count:,}; take m from {len(always) + 1:,} to "
            f"{size - 1:,}."
        )
    often = (token for token, _ in sorted(Counter(text).items(), key=lambda each: (-each[1], each[0])) if token < size)
    kept = dict.fromkeys(chain(always, often, range(size)))  # in this order, each once
    return torch.tensor(sorted(list(kept)[:count]), dtype=torch.int64)


def with_vocabulary(model: PreTrainedModel, vocabulary: Tensor) -> PreTrainedModel:
    """Return the model with a head of only these tokens, [V']; everything else is shared."""
    shared = {id(each): each for each in chain(model.parameters(), model.buffers())}
    trimmed: PreTrainedModel = copy.deepcopy(model, shared)
    head = model.get_output_embeddings()
    rows = vocabulary.to(head.weight.device)
    kept = nn.Linear(head.in_features, len(rows), bias=False, device="meta")
    kept.weight = nn.Parameter(head.weight[rows].clone(), requires_grad=False)
    if getattr(head, "bias", None) is not None:
        kept.bias = nn.Parameter(head.bias[rows].clone(), requires_grad=False)
    trimmed.config.tie_word_embeddings = False
    trimmed.set_output_embeddings(kept)
    return trimmed
