"""A causal language model of this machine as the target."""

from __future__ import annotations

from collections.abc import Sequence

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
        wholes = [_below(unread, parents, n) for parents in branches]
        depths = [(trees.depths_of(whole) - 1).tolist() for whole in wholes]
        begins = self._model.ends
        mask = TreeMask.of(begins, [trees.sees(whole) for whole in wholes], depths, self.device)
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


def _below(unread: int, parents: Sequence[int], size: int) -> tuple[int, ...]:
    """The parents of so many tokens that follow one another and of a tree of at most `size` nodes below the last one;
    what stands behind the tree's end, where any token does, is as good as another branch."""
    return (*range(-1, unread - 1), *(unread + parent for parent in parents), *(size - len(parents)) * (unread - 1,))
