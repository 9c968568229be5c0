"""Keys and values that a pass has read, row by row, and the memory they lie in. Knows tensors; knows no weights.

The first touch of memory costs more than the pass that writes to it (a page fault for every 4 KiB), so what one cache
is done with is kept for the next.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import torch

KEPT = 1 << 29
"""Bytes of a cache beyond which its memory is given back to the system."""
LEAST = 256
"""Places that memory is asked for at once; nothing of it is used before it is written to."""


@dataclass(frozen=True, slots=True)
class KVShape:
    """Of what is kept of a token."""

    layers: int
    """Of the model."""
    heads: int
    """2 G: keys, then values."""
    size: int
    """D, of each head."""
    limit: int
    """P, places that the model can tell apart."""
    dtype: torch.dtype = torch.float32
    """Of keys and values."""
    device: torch.device = torch.device("cpu")
    """Where they lie."""

    def room(self, rows: int, places: int) -> torch.Tensor:
        """Memory for that many, of one layer."""
        return torch.empty(rows, places, self.heads, self.size, dtype=self.dtype, device=self.device)


class Rows:
    """The keys and values [rows, places, 2 G, D] of every layer; rows grow and shrink by being written over."""

    def __init__(self, shape: KVShape):
        """Hold nothing."""
        self._shape = shape
        self._open = (0, 0)
        self.layers = [shape.room(0, 0) for _ in range(shape.layers)]
        """From the embedding up; what lies beyond `open` is not to be read."""

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        return sum(layer.nbytes for layer in self.layers)

    def open(self, rows: int, places: int) -> None:
        """Make that many rows and places fit to be read: what was never written is 0, since what a mask hides must
        be finite all the same."""
        (had_rows, had_places), have = self._open, self.layers[0].shape[:2]
        if rows <= had_rows and places <= had_places:
            return
        rows, places = max(rows, had_rows), max(places, had_places)
        if rows > have[0] or places > have[1]:
            self._grow(rows, places)
        for layer in self.layers:
            layer[:had_rows, had_places:places] = 0
            layer[had_rows:rows, :places] = 0
        self._open = rows, places

    def copy(self, source: int, slot: int, length: int) -> None:
        """Make row `slot` what row `source` is, up to `length` places."""
        self.open(slot + 1, length)
        for layer in self.layers:
            layer[slot, :length] = layer[source, :length]

    def clear(self) -> None:
        """Forget everything; the memory stays."""
        self._open = (0, 0)

    def _grow(self, rows: int, places: int) -> None:
        """Move to memory with room for that many, and for twice what there was."""
        (had_rows, had_places), have = self._open, self.layers[0].shape[:2]
        rows = max(rows, 2 * have[0]) if rows > have[0] else have[0]
        places = max(places, LEAST, min(2 * have[1], self._shape.limit)) if places > have[1] else have[1]
        grown = [self._shape.room(rows, places) for _ in self.layers]
        for layer, old in zip(grown, self.layers, strict=True):
            layer[:had_rows, :had_places] = old[:had_rows, :had_places]
        self.layers = grown  # only now: where there is no memory for all of them, none has moved


class IdleCaches:
    """Where caches of one model wait for the next who needs one."""

    def __init__(self, shape: KVShape):
        """Empty."""
        self._shape = shape
        self._waiting: list[Rows] = []

    def take(self) -> Rows:
        """One that holds nothing, in memory that was used before where there is some: the largest."""
        waiting = []
        while self._waiting:
            with suppress(IndexError):  # somebody else was faster
                waiting.append(self._waiting.pop())
        return max(waiting, key=lambda one: one.size, default=None) or Rows(self._shape)

    def give(self, rows: Rows) -> None:
        """Take back what nobody uses any more, unless it is too large to keep. Any thread may, at any moment."""
        if rows.size <= KEPT:
            rows.clear()
            self._waiting.append(rows)  # one step, for which no lock is needed
