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
        cls,
        begins: Sequence[int],
        sees: Sequence[Sequence[bytes]],
        depths: Sequence[Sequence[int]],
        device: torch.device,
    ) -> TreeMask:
        """`sees`, of each text's n tokens W bytes that are 1 or 0; `depths` [B, n], counted from `begins`, the
        positions of depth 0."""
        positions = [[begin + depth for depth in own] for begin, own in zip(begins, depths, strict=True)]
        seen = np.frombuffer(b"".join(b"".join(rows) for rows in sees), bool).copy()
        return cls(begins, sent(seen.reshape(len(sees), len(sees[0]), -1), device), sent(positions, device))

    def part(self, texts: slice, cut: int, end: int) -> TreeMask:
        """Of these texts the tokens from `cut` to `end`."""
        begins = self.begins[texts]
        if (len(begins), end - cut) == self.sees.shape[:2]:
            return self
        return TreeMask(begins, self.sees[texts, cut:end], self.positions[texts, cut:end])

    def arranged(self, order: Sequence[int]) -> TreeMask:
        """The texts in this order."""
        if list(order) == list(range(len(self.begins))):
            return self
        places = list(order)
        return TreeMask([self.begins[i] for i in places], self.sees[places], self.positions[places])

    def added(self, end: int, dtype: torch.dtype) -> Tensor:
        """[B, n, end]: what is added to a token's scores of the first places: 0 where it sees one, else -inf."""
        b, n, width = self.sees.shape
        found = torch.full((b, n, end), -torch.inf, dtype=dtype, device=self.sees.device)
        for each, begin, seen in zip(found, self.begins, self.sees, strict=True):
            each[:, :begin] = 0
            each[:, begin : begin + width].masked_fill_(seen[:, : end - begin], 0)
        return found
