"""The target itself as its drafter, without some layers: skipped in the middle, or after an early exit.

Zhang et al. 2023, 'Draft & Verify' (arXiv 2309.08168) and Xia et al. 2024, 'SWIFT' (arXiv 2410.06916) skip layers
without training; Elhoushi et al. 2024, 'LayerSkip' (arXiv 2404.16710) exit early, with the target's last norm and head.
The model shares the target's weights, and `ModelDrafter` drafts with it: q is complete.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import chain

import torch
from torch import nn
from transformers import PreTrainedModel

from mars_viz.errors import ModelError
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
