"""A causal language model of this machine as the target."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from mars_viz import trees
from mars_viz.shapes import LONGEST_PATH
from mars_viz.speculators.cached import CachedModel
from mars_viz.speculators.draft import Branches
from mars_viz.speculators.host_copy import sent
from mars_viz.speculators.networks import Network, TreeMask
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

    def score_trees(self, prefixes: Sequence[Prefix], tokens: Tensor, branches: Branches) -> Tensor:
        """The same of trees: raw float32 logits [B, N + 1, V] after each prefix and each node, in one pass."""
        unread = self._model.rewind(prefixes, LONGEST_PATH)
        b, n = tokens.shape
        ids = sent([prefix[-unread:] for prefix in prefixes], self.device)
        seen = np.zeros((b, unread + n, unread + n), bool)
        seen[:, :, :unread] = np.tri(unread + n, unread, dtype=bool)
        seen[:, range(unread + n), range(unread + n)] = True  # behind a tree's end, too, where any token stands
        depths = np.arange(unread + n)[None].repeat(b, 0)
        for i, parents in enumerate(branches):
            nodes = slice(unread, unread + len(parents))
            seen[i, nodes, nodes] = trees.sees(parents)
            depths[i, nodes] = unread - 1 + trees.depths_of(parents)
        begins = list(self._model.ends)
        mask = TreeMask.of(begins, seen, depths, begins, self.device)
        return self._model.logits(torch.cat([ids, tokens], 1), rows=n + 1, tree=mask)

    def keep(self, layers: Sequence[int]) -> None:
        """Keep what enters these layers; to be said before anything is read."""
        self._model.keep(layers)

    def inputs(self, texts: Sequence[Prefix], begins: Sequence[int]) -> list[Tensor]:
        """What entered the layers that are kept, of each text's tokens; see `CachedModel.inputs`."""
        return self._model.inputs(texts, begins)

    def observe(self, drafted: Sequence[Sequence[int]]) -> None:
        """The cache holds these after the prefixes that were scored last."""
        self._model.remember(drafted)
