"""What enters some layers of a model, kept for every token that a cache holds. Knows rows and places; no weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

LEAST = 256
"""Places of a row at the least."""


class LayerInputs:
    """The inputs of some layers side by side, by row and place of a cache, which they follow."""

    def __init__(self, layers: Sequence[int] = ()):
        """Of these layers, counted from 0; nothing is held yet."""
        self.layers = tuple(layers)
        """In the order in which they stand side by side."""
        self._held = torch.empty(0, 0, 0)  # [rows, places, layers · E]

    def __bool__(self) -> bool:
        """False where none is to be kept."""
        return bool(self.layers)

    def put(self, slots: Sequence[int], starts: Sequence[int], inputs: Sequence[Tensor]) -> None:
        """Write what entered each of the layers, [B, n, E] each; row b of the batch to row slots[b] of the cache, from
        place starts[b] on."""
        beside = torch.cat(list(inputs), -1)
        n = beside.shape[1]
        self._open(max(slots) + 1, max(starts) + n, beside)
        for slot, start, made in zip(slots, starts, beside, strict=True):
            self._held[slot, start : start + n] = made

    def of(self, slot: int, begin: int, end: int) -> Tensor:
        """[end - begin, layers · E]; those of a row's places."""
        return self._held[slot, begin:end]

    def copy(self, source: int, slot: int, length: int) -> None:
        """Make row `slot` what row `source` is, up to `length` places."""
        if self:
            self._open(slot + 1, length, self._held)
            self._held[slot, :length] = self._held[source, :length]

    def _open(self, rows: int, places: int, like: Tensor) -> None:
        """Make room for that many, for values like these."""
        have_rows, have_places = self._held.shape[:2]
        if rows <= have_rows and places <= have_places:
            return
        rows = max(rows, 2 * have_rows) if rows > have_rows else have_rows
        places = max(places, 2 * have_places, LEAST) if places > have_places else have_places
        grown = like.new_empty(rows, places, like.shape[-1])
        if have_rows:
            grown[:have_rows, :have_places] = self._held
        self._held = grown
