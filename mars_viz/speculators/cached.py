"""A causal language model that remembers what it has read. Knows transformers' caches; knows no drafting."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel


class CachedModel:
    """Scores the continuation of prefixes, reading again only what differs from the last one."""

    def __init__(self, model: PreTrainedModel, vocabulary_size: int):
        self._model = model
        self._vocabulary_size = vocabulary_size
        self.forget()

    @property
    def device(self) -> torch.device:
        """Where its input and output lie."""
        return self._model.device

    def forget(self) -> None:
        """Start from an empty cache."""
        self._cache = DynamicCache(config=self._model.config)
        self._cache.activate_past_recording()  # some layers can be cropped only then
        self._read: tuple[int, ...] = ()

    def rewind(self, prefix: tuple[int, ...]) -> tuple[int, ...]:
        """Crop the cache to what it shares with `prefix`, and return the rest: at least the last token."""
        shared = min(len(self._read), len(prefix) - 1)
        if self._read[:shared] != prefix[:shared]:
            shared = next(i for i in range(shared) if self._read[i] != prefix[i])
        if shared < len(self._read):
            self._cache.crop(shared - len(self._read))
        self._read = prefix[:shared]
        return prefix[shared:]

    def logits(self, input_ids: Tensor, rows: int) -> Tensor:
        """Raw float32 logits [rows, V] after the last `rows` of the ids [n], which follow what is cached."""
        output = self._model(
            input_ids=input_ids.unsqueeze(0), past_key_values=self._cache, use_cache=True, logits_to_keep=rows
        )
        return output.logits[0, :, : self._vocabulary_size].float()

    def remember(self, tokens: Sequence[int]) -> None:
        """Note which tokens the ids passed to `logits` were."""
        self._read += tuple(tokens)
