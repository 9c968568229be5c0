"""An EAGLE-3 head that drafts a chain or a tree from inputs of some layers of the target.

Li et al. 2025, 'EAGLE-3' (arXiv 2503.01840). The head's cache keeps rows with the target's own features only; rows from
its own states while drafting are overwritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from mars_viz.run import Settings
from mars_viz.shapes import shape_named
from mars_viz.speculators.devices import sent
from mars_viz.speculators.draft import Draft, Drafter, Target, rows_at, spread
from mars_viz.speculators.drafters.eagle3_checkpoint import Reading
from mars_viz.speculators.drafters.model import Picking, keyed_uniforms
from mars_viz.speculators.drafters.token_trees import Level, tree_drafted
from mars_viz.speculators.networks.base import TreeMask
from mars_viz.speculators.networks.eagle3_head import EagleNetwork
from mars_viz.speculators.targets import UNREAD, ModelTarget, PrefixRows
from mars_viz.walk import Prefix

ALONE = 32
"""New rows of a text above which they are read separately, so that other texts need no such padding."""


class Eagle3Drafter(Drafter):
    """Drafts greedily at temperature 0, and by keyed draws from its law above.

    A tree has the likeliest nodes at any temperature, unless its shape has drawn paths. A text of n tokens has n - 1
    rows, the last of which predicts the next token, so nothing is drafted after a single token.
    """

    reads_target = True

    def __init__(
        self,
        network: EagleNetwork,
        readings: Sequence[Reading],
        vocabulary: Tensor | None,
        vocabulary_size: int,
        settings: Settings,
    ):
        """Read the first of the target's `readings`, unless `layers` is set before `follow`. `vocabulary`, int64 [Vd],
        ascending, are the target's ids of the head's tokens, out of `vocabulary_size`; None if they are the same."""
        self.readings, self.layers = tuple(readings), readings[0].layers
        self._network, self.vocabulary, self._size = network, vocabulary, vocabulary_size
        self._settings, self._pick = settings, Picking.by(settings)
        self._shape = shape_named(settings.tree).shape
        self._rows = PrefixRows(network.copy)
        self._target: ModelTarget | None = None
        self.device = network.device

    def follow(self, target: Target) -> None:
        """Draft for this target. Raises TypeError for one that cannot keep its layers' inputs."""
        if not isinstance(target, ModelTarget):
            raise TypeError("an EAGLE-3 head needs a target that keeps what enters its layers")
        target.keep(self.layers)
        self._target = target

    def prefill(self, prompts: Sequence[Prefix]) -> None:
        """Read the prompts, which the target has read."""
        if not prompts:
            return
        cached = self._rows.settle([(*prompt, UNREAD) for prompt in prompts])
        self._read(prompts, cached, prompts)
        self._rows.note(prompts)

    def draft(self, prefixes: Sequence[Prefix], count: int) -> Draft:
        """Return `count` tokens after each prefix of two tokens or more."""
        if not count:
            return Draft(torch.zeros(len(prefixes), 0, dtype=torch.int64, device=self.device))
        drafted = self._draft([prefix if len(prefix) > 1 else prefix * 2 for prefix in prefixes], count)
        drafted_lengths = drafted.lengths or [count] * len(prefixes)
        lengths = tuple(n if len(prefix) > 1 else 0 for n, prefix in zip(drafted_lengths, prefixes, strict=True))
        if all(lengths):
            return drafted
        return replace(drafted, lengths=lengths, trees=drafted.trees and drafted.trees.cut(lengths))

    def _draft(self, prefixes: Sequence[Prefix], count: int) -> Draft:
        cached = self._rows.settle(prefixes)
        states = self._read(prefixes, cached, [prefix[:-1] for prefix in prefixes])  # [B, H]
        lengths, slots = [len(prefix) for prefix in prefixes], self._rows.slots
        if not self._shape.is_chain:
            return self._tree(lengths, states, count)
        uniforms = keyed_uniforms(self._settings, lengths, count, self.device)
        tokens, rows = [], []
        for step in range(count):
            logits = self._network.logits(states).unsqueeze(1)  # [B, 1, Vd]
            luck = None if uniforms is None else uniforms[:, step, None]
            ids = self._pick(spread(logits, self.vocabulary, self._size), luck)
            tokens.append(ids)
            rows.append(logits)
            if step + 1 < count:
                places = [length - 1 + step for length in lengths]
                states = self._network.read(ids, states.unsqueeze(1), places, slots)[:, 0]
        return Draft(torch.cat(tokens, 1), torch.cat(rows, 1), self.vocabulary)

    def _tree(self, lengths: Sequence[int], made: Tensor, nodes: int) -> Draft:
        """Return trees after prefixes of these lengths, from the layer's output for each last row, [B, H]."""
        begins, states = [length - 1 for length in lengths], made.unsqueeze(1)  # [B, k, H] of the level before

        def deeper(level: Level) -> Tensor:
            nonlocal states
            b, k = level.ids.shape
            above = rows_at(states, sent(level.parents, self.device))
            mask = TreeMask.of(begins, level.sees, [[level.depth - 1] * k] * b, self.device)
            places = [begin + len(level.sees[0][0]) - k for begin in begins]
            states = self._network.read(level.ids, above, places, self._rows.slots, mask)
            return self._network.logits(states.flatten(0, 1)).view(b, k, -1)

        first = self._network.logits(made)
        return tree_drafted(first, deeper, self._shape, self._settings, lengths, nodes, self.vocabulary)

    def _read(self, texts: Sequence[Prefix], known: Sequence[int], read: Sequence[Prefix]) -> Tensor:
        """Compute the missing rows of the texts, of which `known` tokens are cached; `read` is the part the target has
        read. Returns the layer's output for each text's last row, [B, H]."""
        assert self._target is not None, "a drafter follows a target before it drafts"
        starts, slots = [max(0, cached - 1) for cached in known], self._rows.slots  # row j is that of token j + 1
        ids, states = [], []
        for i, features in enumerate(self._target.inputs(read, starts)):
            new = sent([texts[i][starts[i] + 1 :]], self.device)  # [1, n]
            states_new = self._network.states(features[None, : new.shape[1]])  # [1, n, H]
            if new.shape[1] > ALONE:
                self._network.read(new[:, :-1], states_new[:, :-1], starts[i : i + 1], slots[i : i + 1])
                starts[i], new, states_new = starts[i] + new.shape[1] - 1, new[:, -1:], states_new[:, -1:]
            ids.append(new[0])
            states.append(states_new[0])
        lengths = [len(each) for each in ids]
        if not any(lengths):
            return torch.cat(states)
        # padding behind a text's end is never seen
        tokens, inputs = pad_sequence(ids, batch_first=True), pad_sequence(states, batch_first=True)
        outputs = self._network.read(tokens, inputs, starts, slots)
        return outputs[range(len(texts)), [length - 1 for length in lengths]]
