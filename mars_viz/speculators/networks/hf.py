"""Any model's own forward pass and cache from transformers, one row after the other."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from mars_viz.speculators.networks.layer_inputs import LayerInputs
from mars_viz.speculators.threads import on_shared_cores


class PlainNetwork:
    """Keeps a cache per row, so that rows of unequal length need no padding and any cache that can be cropped works."""

    def __init__(self, model: PreTrainedModel, vocabulary_size: int):
        self.inputs = LayerInputs()
        self.device = model.device
        self._model = model
        self._vocabulary_size = vocabulary_size
        self._caches: dict[int, DynamicCache] = {}

    @on_shared_cores
    def score(self, tokens: Tensor, starts: Sequence[int], rows: int, slots: Sequence[int] | None = None) -> Tensor:
        """Raw float32 logits [B, rows, V] after the last `rows` of the tokens [B, n]; see `Network.score`."""
        batch = zip(slots or range(len(starts)), tokens, starts, strict=True)
        return torch.stack([self._score(row, ids, start, rows) for row, ids, start in batch])

    def _score(self, row: int, ids: Tensor, start: int, rows: int) -> Tensor:
        cache = self._caches.get(row)
        if cache is None:
            cache = self._caches[row] = DynamicCache(config=self._model.config)
            cache.activate_past_recording()  # some layers can be cropped only then
        _crop(cache, start)
        output = self._model(
            input_ids=ids.unsqueeze(0),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=rows,
            output_hidden_states=bool(self.inputs),
        )
        if self.inputs:  # hidden_states[i] enters layer i
            self.inputs.put([row], [start], [output.hidden_states[i] for i in self.inputs.layers])
        return output.logits[0, :, : self._vocabulary_size].float()

    def copy(self, source: int, slot: int, length: int) -> None:
        """Make row `slot` of the cache what row `source` is, up to `length` places."""
        self._caches[slot] = copy.deepcopy(self._caches[source])
        _crop(self._caches[slot], length)
        self.inputs.copy(source, slot, length)


def _crop(cache: DynamicCache, length: int) -> None:
    excess = cache.get_seq_length() - length
    if excess > 0:
        cache.crop(-excess)
