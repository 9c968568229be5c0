"""Drafters that follow the target's hidden states, and heads with a cache of rows, which feed back their own states.

An EAGLE-3 head (Li et al. 2025, arXiv 2503.01840) drafts from the inputs of some of the target's layers, and layers for
multi-token prediction (DeepSeek-AI 2024, arXiv 2412.19437) from its last state. Their caches keep only rows with the
target's own states; rows with the head's own states are overwritten.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from mars_viz.run import Settings
from mars_viz.shapes import shape_named
from mars_viz.speculators.devices import sent
from mars_viz.speculators.draft import Draft, Drafter, Target, rows_at
from mars_viz.speculators.drafters.model import Picking, keyed_uniforms
from mars_viz.speculators.drafters.token_trees import Level, tree_drafted
from mars_viz.speculators.networks.base import TreeMask
from mars_viz.speculators.networks.dflash import BlockNetwork
from mars_viz.speculators.networks.eagle3_head import HeadNetwork
from mars_viz.speculators.targets import UNREAD, ModelTarget, PrefixRows
from mars_viz.walk import Prefix

ALONE = 32
"""New rows of a text above which they are read separately, so that other texts need no such padding."""


class FollowingDrafter(Drafter):
    """Reads inputs of the target's layers. Drafts greedily at temperature 0, and by keyed draws from its law above."""

    reads_target = True

    def __init__(
        self,
        network: HeadNetwork | BlockNetwork,
        layers: tuple[int, ...],
        vocabulary: Tensor | None,
        settings: Settings,
        guess: str | None = None,
    ):
        """Read these `layers` of the target; see `LayerInputs`. `vocabulary`, int64 [V'], ascending, are the target's
        ids of the drafter's tokens; None if they are the same. `guess` is the reason why other layers may be meant,
        empty if they are named; None if there are no others."""
        self._network, self.device = network, network.device
        self.layers, self.vocabulary, self.guess = layers, vocabulary, guess
        self._settings, self._pick = settings, Picking.by(settings, vocabulary)
        self._shape, self._rows = shape_named(settings.tree), PrefixRows(network.copy)
        self._target: ModelTarget | None = None

    def follow(self, target: Target) -> None:
        """Draft for this target. Raises TypeError for one that cannot keep its layers' inputs."""
        if not isinstance(target, ModelTarget):
            raise TypeError("this drafter needs a target that keeps what enters its layers")
        target.keep(self.layers)
        self._target = target

    def prefill(self, prompts: Sequence[Prefix]) -> None:
        if prompts:
            self._read(prompts, self._rows.settle([(*prompt, UNREAD) for prompt in prompts]), prompts)
            self._rows.note(prompts)

    def draft(self, prefixes: Sequence[Prefix], count: int) -> Draft:
        if not count:
            return Draft(torch.zeros(len(prefixes), 0, dtype=torch.int64, device=self.device))
        return self._drafted(prefixes, count)

    def _drafted(self, prefixes: Sequence[Prefix], count: int) -> Draft:
        raise NotImplementedError

    def _read(self, texts: Sequence[Prefix], known: Sequence[int], read: Sequence[Prefix]) -> Tensor | None:
        """Compute the missing rows of the texts, of which `known` tokens are cached; `read` is the part that the target
        has read."""
        raise NotImplementedError

    def _features(self, read: Sequence[Prefix], begins: Sequence[int]) -> list[Tensor]:
        """Return the target's features [n, k H] of each text from token `begins` on."""
        assert self._target is not None, "a drafter follows a target before it drafts"
        return self._target.inputs(read, begins)


class HeadDrafter(FollowingDrafter):
    """Drafts with a head, token by token.

    A tree has the likeliest nodes at any temperature, unless its shape has drawn paths. A text of n tokens has n - 1
    rows, the last of which predicts the next token; a text of a single token is read as if it were there twice.
    """

    _network: HeadNetwork

    def _drafted(self, prefixes: Sequence[Prefix], count: int) -> Draft:
        starts = [len(prefix) for prefix in prefixes]
        prefixes = [prefix if len(prefix) > 1 else prefix * 2 for prefix in prefixes]
        cached = self._rows.settle(prefixes)
        states = self._read(prefixes, cached, [prefix[:-1] for prefix in prefixes])  # [B, E]
        lengths, slots = [len(prefix) for prefix in prefixes], self._rows.slots
        if not self._shape.is_chain:
            return self._tree(starts, lengths, states, count)
        uniforms = keyed_uniforms(self._settings, starts, count, self.device)
        tokens, rows = [], []
        for step in range(count):
            logits = self._network.logits(states, step).unsqueeze(1)  # [B, 1, Vd]
            luck = None if uniforms is None else uniforms[:, step, None]
            ids = self._pick(logits, luck)
            tokens.append(ids)
            rows.append(logits)
            if step + 1 < count:
                places = [length - 1 + step for length in lengths]
                states = self._network.read(ids, states.unsqueeze(1), places, slots, None, step + 1)[:, 0]
        return Draft(torch.cat(tokens, 1), torch.cat(rows, 1), self.vocabulary)

    def _tree(self, starts: Sequence[int], lengths: Sequence[int], made: Tensor, nodes: int) -> Draft:
        """Return trees that begin at `starts`, from the outputs [B, E] for the last row of texts of these lengths."""
        begins, states = [length - 1 for length in lengths], made.unsqueeze(1)  # [B, k, E] of the level before

        def deeper(level: Level) -> Tensor:
            nonlocal states
            b, k = level.ids.shape
            above = rows_at(states, sent(level.parents, self.device))
            mask = TreeMask.of(begins, level.sees, [[level.depth - 1] * k] * b, self.device)
            places = [begin + len(level.sees[0][0]) - k for begin in begins]
            states = self._network.read(level.ids, above, places, self._rows.slots, mask, level.depth)
            return self._network.logits(states.flatten(0, 1), level.depth).view(b, k, -1)

        first = self._network.logits(made)
        return tree_drafted(first, deeper, self._shape, self._settings, starts, nodes, self.vocabulary)

    def _read(self, texts: Sequence[Prefix], known: Sequence[int], read: Sequence[Prefix]) -> Tensor:
        """Compute the missing rows, and return the outputs for each text's last row, [B, E]."""
        starts, slots = [max(0, cached - 1) for cached in known], self._rows.slots  # row j is that of token j + 1
        ids, states = [], []
        for i, features in enumerate(self._features(read, starts)):
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
