"""Models that share most of another model's weights: fewer layers, or a head that scores fewer tokens.

The target without some layers, skipped in the middle or after an early exit, drafts for itself: Zhang et al. 2023,
'Draft & Verify' (arXiv 2309.08168) and Xia et al. 2024, 'SWIFT' (arXiv 2410.06916) skip layers without training;
Elhoushi et al. 2024, 'LayerSkip' (arXiv 2404.16710) exit early, with the target's last norm and head.

A head that scores only the most frequent tokens makes a draft step multiply less: Zhao et al. 2025, 'FR-Spec' (arXiv
2502.14856), rank tokens by their frequency in a corpus; Goel et al. 2025, 'VocabTrim' (arXiv 2506.22694), by their
frequency in the target's own text. Nothing is trained: rows of the head are left out, so q is the drafter's law
restricted to the remaining tokens, and lossless rules stay lossless.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from mars_viz.errors import ModelError, SettingError
from mars_viz.speculators.networks.layer_inputs import layers_of


def with_layers(model: PreTrainedModel, kept: Sequence[int]) -> PreTrainedModel:
    """Return the model with only these of its layers, counted from 0, in this order; all weights are shared. Raises
    ModelError for a model with unknown layers."""
    shared = {id(each): each for each in chain(model.parameters(), model.buffers())}
    fewer: PreTrainedModel = copy.deepcopy(model, shared)
    name, layers = layers_of(fewer)
    chosen = nn.ModuleList([layers[i] for i in kept])
    for place, layer in enumerate(chosen):
        for part in layer.modules():
            if hasattr(part, "layer_idx"):
                part.layer_idx = place  # type: ignore[assignment]  # of its cache
    fewer.set_submodule(name, chosen)
    config = fewer.config.get_text_config()
    config.num_hidden_layers = len(chosen)
    if kinds := vars(config).get("layer_types"):  # others derive theirs from the number of layers
        config.layer_types = [kinds[i] for i in kept]
    try:
        with torch.inference_mode():
            fewer(input_ids=torch.zeros(1, 2, dtype=torch.int64, device=model.device), use_cache=False)
    except (RuntimeError, ValueError, IndexError) as error:  # such as inputs for each of all the layers
        raise ModelError(
            f"No layers of {model.config.model_type} can be left out here; take another drafter."
        ) from error
    return fewer


def count_of(model: PreTrainedModel) -> int:
    """Return its number of layers. Raises ModelError if they are unknown."""
    return len(layers_of(model)[1])


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
