"""An EAGLE-3 head that drafts a chain or a tree from inputs of some layers of the target.

Li et al. 2025, 'EAGLE-3' (arXiv 2503.01840). The head's cache keeps rows with the target's own features only; rows from
its own states while drafting are overwritten.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from mars_viz.run import Settings
from mars_viz.shapes import shape_named
from mars_viz.speculators.devices import sent
from mars_viz.speculators.draft import Draft, Drafter, Target, Trees, rows_at, spread
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
        able = [i for i, prefix in enumerate(prefixes) if len(prefix) > 1]
        drafted = self._draft([prefixes[i] for i in able], count) if able and count else None
        if drafted is not None and len(able) == len(prefixes):
            return drafted
        b = len(prefixes)
        if drafted is None or drafted.logits is None:
            return Draft(torch.zeros(b, 0, dtype=torch.int64, device=self.device), lengths=(0,) * b)
        width, none = drafted.tokens.shape[1], np.zeros(0, np.int32)
        picks = [able.index(i) if i in able else len(able) for i in range(b)]  # an empty draft is added at the end
        tokens = torch.cat([drafted.tokens, drafted.tokens.new_zeros(1, width)])[picks]
        logits = torch.cat([drafted.logits, drafted.logits.new_zeros(1, *drafted.logits.shape[1:])])[picks]
        lengths = (*(drafted.lengths or (width,) * len(able)), 0)
        if (trees := drafted.trees) is not None:
            draws = trees.draws and (*trees.draws, none)
            trees = Trees((*trees.parents, ()), (*trees.budgets, none), draws).some(picks)
        return Draft(tokens, logits, self.vocabulary, tuple(lengths[i] for i in picks), trees)

    def _draft(self, prefixes: Sequence[Prefix], count: int) -> Draft:
        """Draft after prefixes of at least two tokens, in the order of the cache's rows."""
        cached = self._rows.settle(prefixes)
        states = self._read(prefixes, cached, [prefix[:-1] for prefix in prefixes])  # [B, H]
        if not self._shape.is_chain:
            return self._tree(prefixes, states, count)
        order = self._order()
        uniforms = keyed_uniforms(self._settings, [len(prefixes[i]) for i in order], count, self.device)
        places = [len(prefixes[i]) - 1 for i in order]
        tokens, rows = [], []
        for step in range(count):
            logits = self._network.logits(states).unsqueeze(1)  # [B, 1, Vd]
            luck = None if uniforms is None else uniforms[:, step, None]
            ids = self._pick(spread(logits, self.vocabulary, self._size), luck)
            tokens.append(ids)
            rows.append(logits)
            if step + 1 < count:
                states = self._network.read(ids, states.unsqueeze(1), [place + step for place in places])[:, 0]
        slots = self._rows.slots
        return Draft(torch.cat(tokens, 1)[slots], torch.cat(rows, 1)[slots], self.vocabulary)

    def _tree(self, prefixes: Sequence[Prefix], made: Tensor, nodes: int) -> Draft:
        """Return trees after the prefixes, from the layer's output for each last row, [B, H] in the rows' order."""
        order, slots = self._order(), list(self._rows.slots)
        begins = [len(prefixes[i]) - 1 for i in order]
        states = made.unsqueeze(1)  # [B, k, H] of the level before

        def deeper(level: Level) -> Tensor:
            nonlocal states
            b, k = level.ids.shape
            parents, sees = [level.parents[i] for i in order], [level.sees[i] for i in order]
            above = rows_at(states, sent(parents, self.device))
            mask = TreeMask.of(begins, sees, [[level.depth - 1] * k] * b, self.device)
            places = [begin + len(sees[0][0]) - k for begin in begins]
            states = self._network.read(level.ids[order], above, places, tree=mask)
            return self._network.logits(states.flatten(0, 1)).view(b, k, -1)[slots]

        first = self._network.logits(made)[slots]
        return tree_drafted(first, deeper, self._shape, self._settings, [*map(len, prefixes)], nodes, self.vocabulary)

    def _read(self, texts: Sequence[Prefix], known: Sequence[int], read: Sequence[Prefix]) -> Tensor:
        """Compute the missing rows of the texts, of which `known` tokens are cached; `read` is the part the target has
        read. Returns the layer's output for each text's last row, [B, H], in the rows' order."""
        assert self._target is not None, "a drafter follows a target before it drafts"
        begins = [max(0, cached - 1) for cached in known]  # row j is that of token j + 1
        features = self._target.inputs(read, begins)
        order = self._order()
        starts, ids, states = [], [], []
        for slot, i in enumerate(order):
            start, text = begins[i], texts[i]
            new = sent([text[start + 1 :]], self.device)  # [1, n]
            states_new = self._network.states(features[i][None, : new.shape[1]])  # [1, n, H]
            if new.shape[1] > ALONE:
                self._network.read(new[:, :-1], states_new[:, :-1], [start], slot)
                start, new, states_new = start + new.shape[1] - 1, new[:, -1:], states_new[:, -1:]
            starts.append(start)
            ids.append(new[0])
            states.append(states_new[0])
        lengths = [len(each) for each in ids]
        if not any(lengths):
            return torch.cat(states)
        # padding behind a text's end is never seen
        states_new = self._network.read(
            pad_sequence(ids, batch_first=True), pad_sequence(states, batch_first=True), starts
        )
        return states_new[range(len(texts)), [length - 1 for length in lengths]]

    def _order(self) -> list[int]:
        """Return the index of the text in each row of the cache."""
        slots = self._rows.slots
        return sorted(range(len(slots)), key=slots.__getitem__)
