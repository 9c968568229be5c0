"""A local causal language model as the target."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mars_viz import trees
from mars_viz.shapes import LONGEST_PATH
from mars_viz.speculators.cached import CachedModel
from mars_viz.speculators.devices import sent
from mars_viz.speculators.draft import Branches
from mars_viz.speculators.networks import Network, TreeMask
from mars_viz.walk import Prefix


class ModelTarget:
    """Scores drafts in one pass over the tokens that its cache lacks."""

    def __init__(self, network: Network):
        self._model = CachedModel(network)
        self.device = network.device

    def prefill(self, prompts: Sequence[Prefix]) -> None:
        """Read the prompts."""
        self._model.read(prompts)

    def score(self, prefixes: Sequence[Prefix], tokens: Tensor) -> Tensor:
        """Return raw float32 logits [B, N + 1, V] after each prefix and each of the tokens [B, N] that follow."""
        unread = self._model.rewind(prefixes)
        ids = sent([prefix[-unread:] for prefix in prefixes], self.device)
        count = tokens.shape[1]
        return self._model.logits(torch.cat([ids, tokens], 1) if count else ids, rows=count + 1)

    def score_trees(self, prefixes: Sequence[Prefix], tokens: Tensor, branches: Branches) -> Tensor:
        """Return raw float32 logits [B, N + 1, V] after each prefix and each node of trees, in one pass."""
        unread = self._model.rewind(prefixes, LONGEST_PATH)
        n, ids = tokens.shape[1], sent([prefix[-unread:] for prefix in prefixes], self.device)
        chains = []
        for parents in branches:  # below consecutive tokens; places after a tree's end count as another branch
            below, rest = (unread + parent for parent in parents), (n - len(parents)) * (unread - 1,)
            chains.append((*range(-1, unread - 1), *below, *rest))
        depths = [(trees.depths_of(path) - 1).tolist() for path in chains]
        mask = TreeMask.of(self._model.ends, [trees.sees(path) for path in chains], depths, self.device)
        return self._model.logits(torch.cat([ids, tokens], 1), rows=n + 1, tree=mask)

    def keep(self, layers: Sequence[int]) -> None:
        """Keep the inputs of these layers; call before any read."""
        self._model.keep(layers)

    def inputs(self, texts: Sequence[Prefix], begins: Sequence[int]) -> list[Tensor]:
        """Return the kept layers' inputs of each text's tokens; see `CachedModel.inputs`."""
        return self._model.inputs(texts, begins)

    def observe(self, drafted: Sequence[Sequence[int]]) -> None:
        """Record that the cache contains these tokens after the last scored prefixes."""
        self._model.remember(drafted)
