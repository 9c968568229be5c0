"""A smaller model of the same vocabulary that drafts a chain, token by token, or a tree, level by level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from mars_viz.randomness import Purpose, round_uniforms
from mars_viz.run import Settings
from mars_viz.shapes import LONGEST_PATH, shape_named
from mars_viz.speculators.cached import CachedModel
from mars_viz.speculators.devices import sent
from mars_viz.speculators.draft import Draft
from mars_viz.speculators.drafters.token_trees import Level, tree_drafted
from mars_viz.speculators.networks import Network, TreeMask
from mars_viz.speculators.sampling import draw, law, on_device
from mars_viz.speculators.topk import best
from mars_viz.walk import Prefix


@dataclass(frozen=True, slots=True)
class Picking:
    """Picks the next token from its logits. Equal if it picks in the same way."""

    law: Settings  # temperature, top-p and top-k; the rest is at its default
    vocabulary: Tensor | None = field(default=None, compare=False)
    """int64 [V']; the target's token of each logit, ascending; None if they are the same."""
    tokens: int = 0  # V' with such a vocabulary; constant for one drafter

    @classmethod
    def by(cls, settings: Settings, vocabulary: Tensor | None = None) -> Picking:
        """Return the picking for these settings."""
        return cls(settings.law, vocabulary, 0 if vocabulary is None else len(vocabulary))

    def __call__(self, logits: Tensor, uniforms: Tensor | None) -> Tensor:
        """Return token ids [B, 1]: the largest of the logits [B, 1, V'], or the draws of the uniforms [B, 1] from their
        law."""
        picked = best(logits) if uniforms is None else draw(law(logits, self.law), uniforms)
        return picked if self.vocabulary is None else self.vocabulary[picked]


class ModelDrafter:
    """Drafts greedily at temperature 0, and by keyed draws from its law above. A tree has the likeliest nodes at any
    temperature, unless its shape has drawn paths."""

    def __init__(
        self,
        network: Network,
        settings: Settings,
        vocabulary: Tensor | None = None,
        readable: tuple[int, int] | None = None,
    ):
        """`vocabulary` int64 [V'], ascending, are the target's ids of the tokens that the network scores; None for the
        first V'.

        `readable` is the number of ids that the network can read, and the replacement of other ids; None if it can read
        all of the target's.
        """
        self._model, self._readable = CachedModel(network), readable
        self._settings, self._vocabulary = settings, vocabulary
        self._pick = Picking.by(settings, vocabulary)
        self._shape = shape_named(settings.tree).shape

    def prefill(self, prompts: Sequence[Prefix]) -> None:
        """Read the prompts."""
        self._model.read(self._read(prompts))

    def draft(self, prefixes: Sequence[Prefix], count: int) -> Draft:
        """Return `count` tokens after each prefix. After a fully accepted block two tokens are unread, because the last
        one is not read while drafting."""
        prefixes = self._read(prefixes)
        if not self._shape.is_chain:
            return self._tree(prefixes, count)
        unread = self._model.rewind(prefixes)
        ids = sent([prefix[-unread:] for prefix in prefixes], self._model.device)
        uniforms = keyed_uniforms(self._settings, [len(prefix) for prefix in prefixes], count, self._model.device)
        chain = self._model.chain(ids, count, self._pick, uniforms)
        if chain is not None:
            return Draft(chain.tokens, chain.logits, self._vocabulary)
        tokens, rows = [], []
        for step in range(count):
            logits = self._model.logits(ids, rows=1)  # [B, 1, V]
            ids = self._pick(logits, None if uniforms is None else uniforms[:, step, None])
            tokens.append(ids)
            rows.append(logits)
        return Draft(torch.cat(tokens, 1), torch.cat(rows, 1), self._vocabulary)

    def _tree(self, prefixes: Sequence[Prefix], nodes: int) -> Draft:
        """Return a tree after each prefix; its nodes are not cached."""
        unread = self._model.rewind(prefixes, LONGEST_PATH)
        ids, lengths = sent([prefix[-unread:] for prefix in prefixes], self._model.device), [*map(len, prefixes)]
        first = self._model.logits(ids, rows=1)[:, 0]

        def deeper(level: Level) -> Tensor:
            b, width = level.ids.shape
            mask = TreeMask.of(lengths, level.sees, [[level.depth - 1] * width] * b, self._model.device)
            return self._model.logits(level.ids, width, mask)

        return tree_drafted(first, deeper, self._shape, self._settings, lengths, nodes, self._vocabulary)

    def _read(self, prefixes: Sequence[Prefix]) -> Sequence[Prefix]:
        """Replace the tokens that the network cannot read."""
        if self._readable is None:
            return prefixes
        count, other = self._readable
        return [tuple(token if token < count else other for token in prefix) for prefix in prefixes]

    def observe(self, drafted: Sequence[Sequence[int]]) -> None:
        """Receive the drafted tokens once they are on the host; the last token of a chain was never read."""
        self._model.remember([tokens[:-1] if self._shape.is_chain else () for tokens in drafted])


def keyed_uniforms(settings: Settings, starts: Sequence[int], count: int, device: torch.device) -> Tensor | None:
    """Return the draws of drafts that begin at these positions, float64 [B, count]; None at temperature 0."""
    if settings.temperature == 0:
        return None
    keyed = np.stack([round_uniforms(settings.seed, start, Purpose.DRAFT, count) for start in starts])
    return on_device(keyed, device)
