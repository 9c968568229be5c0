"""A drafter whose head scores the most frequent tokens of the vocabulary alone, so that a draft step multiplies less.

Zhao et al. 2025, 'FR-Spec' (arXiv 2502.14856), ranks tokens by how often a corpus has them; Goel et al. 2025,
'VocabTrim' (arXiv 2506.22694), by how often the target's own text does. Nothing is trained: rows of the
head are left out, so q is the drafter's law given that the token is one of those that are kept, and a rule that keeps
the target's law goes on doing so.
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
    """int64 [count], ascending; of `size` tokens those to `always` keep, then those that the text has most often, then
    those of the lowest ids. Raises SettingError where that is all of them, or not even those to keep."""
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
    """The model with the head of these tokens alone, [V']; all else is the model's own."""
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
