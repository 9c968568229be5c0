"""Keys and values of rows, and the memory they use. Knows tensors; knows no weights.

The first access to memory costs more than the pass that writes to it (a page fault per 4 KiB), so memory of finished
caches is reused.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import torch

KEPT = 1 << 29  # most bytes of a cache whose memory is kept for reuse
LEAST = 256  # places reserved at once; memory is used only when it is written


@dataclass(frozen=True, slots=True)
class KVShape:
    """Shape of the keys and values of a token."""

    layers: int
    heads: int  # 2 G: keys, then values
    size: int  # D, of each head
    limit: int  # P, most places of the model
    dtype: torch.dtype = torch.float32
    device: torch.device = torch.device("cpu")

    def room(self, rows: int, places: int) -> torch.Tensor:
        """Allocate memory of one layer for as many rows and places."""
        return torch.empty(rows, places, self.heads, self.size, dtype=self.dtype, device=self.device)


class Rows:
    """Keys and values [rows, places, 2 G, D] of every layer; rows are changed by overwriting places."""

    def __init__(self, shape: KVShape):
        """Begin empty."""
        self._shape = shape
        self._open = (0, 0)
        self.layers = [shape.room(0, 0) for _ in range(shape.layers)]
        """From the embedding up; values beyond the opened places are undefined."""

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return sum(layer.nbytes for layer in self.layers)

    def open(self, rows: int, places: int) -> None:
        """Make as many rows and places readable. Unwritten ones are 0, since masked values must be finite."""
        (had_rows, had_places), allocated = self._open, self.layers[0].shape[:2]
        if rows <= had_rows and places <= had_places:
            return
        rows, places = max(rows, had_rows), max(places, had_places)
        if rows > allocated[0] or places > allocated[1]:  # to at least twice as many
            most_rows, most_places = allocated
            if rows > most_rows:
                most_rows = max(rows, 2 * most_rows)
            if places > most_places:
                most_places = max(places, LEAST, min(2 * most_places, self._shape.limit))
            grown = [self._shape.room(most_rows, most_places) for _ in self.layers]
            for layer, old in zip(grown, self.layers, strict=True):
                layer[:had_rows, :had_places] = old[:had_rows, :had_places]
            self.layers = grown  # only now: where there is no memory for all of them, none has moved
        for layer in self.layers:
            layer[:had_rows, had_places:places] = 0
            layer[had_rows:rows, :places] = 0
        self._open = rows, places

    def copy(self, source: int, slot: int, length: int) -> None:
        """Copy the first `length` places of row `source` to row `slot`."""
        self.open(slot + 1, length)
        for layer in self.layers:
            layer[slot, :length] = layer[source, :length]

    def clear(self) -> None:
        """Forget all values; the memory stays."""
        self._open = (0, 0)


class IdleCaches:
    """Unused caches of one model."""

    def __init__(self, shape: KVShape):
        """Begin empty."""
        self._shape = shape
        self._waiting: list[Rows] = []

    def take(self) -> Rows:
        """Return an empty cache, the largest unused one if there is one."""
        waiting = []
        while self._waiting:
            with suppress(IndexError):  # somebody else was faster
                waiting.append(self._waiting.pop())
        return max(waiting, key=lambda one: one.size, default=None) or Rows(self._shape)

    def give(self, rows: Rows) -> None:
        """Take back an unused cache unless it is too large to keep. Safe in any thread."""
        if rows.size <= KEPT:
            rows.clear()
            self._waiting.append(rows)  # one step, for which no lock is needed
