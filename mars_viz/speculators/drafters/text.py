"""What the drafters share that know the text alone: they have no cache, nothing to learn, and no law."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mars_viz.speculators.draft import Draft
from mars_viz.walk import Prefix


class TextDrafter:
    """Drafts deterministically, q is 1 at the drafted token: what it drafts follows from the prefix alone."""

    def __init__(self, device: torch.device):
        """`device` is where drafted tokens are to lie."""
        self._device = device

    def prefill(self, prompts: Sequence[Prefix]) -> None:
        """Nothing is read ahead."""

    def draft(self, prefixes: Sequence[Prefix], count: int) -> Draft:
        """At most `count` tokens after each prefix."""
        found = [self.continued(prefix, count) for prefix in prefixes]
        longest = max(map(len, found))
        tokens = [[*chain, *(longest - len(chain)) * (0,)] for chain in found]
        ids = torch.tensor(tokens, dtype=torch.int64, device=self._device).reshape(len(found), longest)
        return Draft(ids, lengths=tuple(map(len, found)))

    def continued(self, prefix: Prefix, count: int) -> Sequence[int]:
        """At most `count` tokens after the prefix: what each of them is for."""
        raise NotImplementedError

    def observe(self, drafted: Sequence[Sequence[int]]) -> None:
        """The next prefixes say what was kept."""
