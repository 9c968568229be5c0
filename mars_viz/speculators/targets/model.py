"""A causal language model of this machine as the target."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mars_viz.speculators.cached import CachedModel
from mars_viz.speculators.host_copy import sent
from mars_viz.speculators.networks import Network
from mars_viz.walk import Prefix


class ModelTarget:
    """Scores drafts in one pass over what its cache does not hold yet."""

    def __init__(self, network: Network):
        self._model = CachedModel(network)
        self.device = network.device

    def prefill(self, prompts: Sequence[Prefix]) -> None:
        """Read the prompts."""
        self._model.read(prompts)

    def score(self, prefixes: Sequence[Prefix], tokens: Tensor) -> Tensor:
        """Raw float32 logits [B, N + 1, V] after each prefix and each of the tokens [B, N] behind it."""
        unread = self._model.rewind(prefixes)
        ids = sent([prefix[-unread:] for prefix in prefixes], self.device)
        count = tokens.shape[1]
        return self._model.logits(torch.cat([ids, tokens], 1) if count else ids, rows=count + 1)

    def keep(self, layers: Sequence[int]) -> None:
        """Keep what enters these layers; to be said before anything is read."""
        self._model.keep(layers)

    def inputs(self, texts: Sequence[Prefix], begins: Sequence[int]) -> list[Tensor]:
        """What entered the layers that are kept, of each text's tokens; see `CachedModel.inputs`."""
        return self._model.inputs(texts, begins)

    def observe(self, drafted: Sequence[Sequence[int]]) -> None:
        """The cache holds these after the prefixes that were scored last."""
        self._model.remember(drafted)
