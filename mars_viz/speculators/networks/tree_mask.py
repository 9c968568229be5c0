"""Which tokens of a pass see which, where they stand in a tree. Knows rows, places and tensors; knows no tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mars_viz.speculators.host_copy import sent


@dataclass(frozen=True, slots=True)
class TreeMask:
    """Of B texts: which of its last places each of n new tokens sees, and how far from the text's start it stands.

    All see what stands before `begins`. A token's place is where its key lies; its position is what turns it.
    """

    begins: Sequence[int]
    """The first place that is not seen by all, of each text."""
    sees: Tensor
    """bool [B, n, W]; whether a token sees each of the places from there on; no place after these is seen."""
    positions: Tensor
    """int64 [B, n]; tokens of its path before each token."""

    @classmethod
    def of(
        cls, begins: Sequence[int], sees: np.ndarray, depths: np.ndarray, starts: Sequence[int], device: torch.device
    ) -> TreeMask:
        """`sees` bool [B, n, W]; `depths` int64 [B, n], counted from `starts`, the positions of depth 0."""
        positions = np.array(starts, np.int64)[:, None] + depths
        return cls(begins, sent(sees, device), sent(positions, device))

    def part(self, texts: slice, cut: int, end: int) -> TreeMask:
        """Of these texts the tokens from `cut` to `end`."""
        return TreeMask(self.begins[texts], self.sees[texts, cut:end], self.positions[texts, cut:end])

    def arranged(self, order: Sequence[int]) -> TreeMask:
        """The texts in this order."""
        if list(order) == list(range(len(self.begins))):
            return self
        places = list(order)
        return TreeMask([self.begins[i] for i in places], self.sees[places], self.positions[places])

    def added(self, end: int, dtype: torch.dtype) -> Tensor:
        """[B, n, end]: what is added to a token's scores of the first places: 0 where it sees one, else -inf."""
        device = self.sees.device
        beyond = torch.arange(end, device=device) - sent(list(self.begins), device).unsqueeze(1)  # [B, end]
        width = self.sees.shape[-1]
        within = beyond.clamp(0, width - 1).unsqueeze(1).expand(-1, self.sees.shape[1], -1)
        seen = self.sees.gather(2, within) & (beyond < width).unsqueeze(1) | (beyond < 0).unsqueeze(1)
        return torch.zeros(seen.shape, dtype=dtype, device=device).masked_fill_(~seen, -torch.inf)
