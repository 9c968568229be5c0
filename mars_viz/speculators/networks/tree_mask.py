"""Which tokens of a pass see which in a tree. Knows rows, places and tensors; knows no tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mars_viz.speculators.devices import sent


@dataclass(frozen=True, slots=True)
class TreeMask:
    """Visibility and positions of n new tokens for each of B texts. All tokens see the places before `begins`. A
    token's place is that of its key in the cache; its position determines its rotary angle."""

    begins: Sequence[int]  # first place of each text that some tokens do not see
    sees: Tensor  # bool [B, n, W]; whether a token sees each place from `begins` on; no token sees later places
    positions: Tensor  # int64 [B, n]; number of tokens before each token on its path

    @classmethod
    def of(
        cls,
        begins: Sequence[int],
        sees: Sequence[Sequence[bytes]],
        depths: Sequence[Sequence[int]],
        device: torch.device,
    ) -> TreeMask:
        """Create a mask from W bytes, 1 or 0, for each of n tokens per text and `depths` [B, n], counted from
        `begins`."""
        positions = [
            [begin + depth for depth in text_depths] for begin, text_depths in zip(begins, depths, strict=True)
        ]
        seen = np.frombuffer(b"".join(b"".join(rows) for rows in sees), bool).copy()
        return cls(begins, sent(seen.reshape(len(sees), len(sees[0]), -1), device), sent(positions, device))

    def part(self, texts: slice, cut: int, end: int) -> TreeMask:
        """Return the tokens from `cut` to `end` of these texts."""
        begins = self.begins[texts]
        if (len(begins), end - cut) == self.sees.shape[:2]:
            return self
        return TreeMask(begins, self.sees[texts, cut:end], self.positions[texts, cut:end])

    def arranged(self, order: Sequence[int]) -> TreeMask:
        """Return the texts in this order."""
        if list(order) == list(range(len(self.begins))):
            return self
        places = list(order)
        return TreeMask([self.begins[i] for i in places], self.sees[places], self.positions[places])

    def added(self, end: int, dtype: torch.dtype) -> Tensor:
        """Return [B, n, end], to be added to a token's scores of the first places: 0 if it sees the place or -inf."""
        b, n, width = self.sees.shape
        added = torch.full((b, n, end), -torch.inf, dtype=dtype, device=self.sees.device)
        for text, begin, seen in zip(added, self.begins, self.sees, strict=True):
            text[:, :begin] = 0
            text[:, begin : begin + width].masked_fill_(seen[:, : end - begin], 0)
        return added
