"""Caches at fixed addresses, on which recorded passes can be replayed, and a pool of unused ones.

Knows rows and places; knows no tokens.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from mars_viz.speculators.networks.graphs import Capture, Graphs, Tensors
from mars_viz.speculators.networks.llama_forward import Body, Where
from mars_viz.speculators.networks.tree_mask import TreeMask

LEAST = 256
"""Fewest places of a row; doubled as often as a text requires."""
IDLE = 64 << 20
"""Most bytes of a cache kept unused; an eighth of the weights' bytes is allowed in any case."""


class PooledCache:
    """A cache for passes, and the passes recorded on it."""

    def __init__(self, body: Body, graphs: Graphs | None):
        """Begin without any place. Without `graphs`, passes are not recorded."""
        self.graphs = graphs
        self.cache: Tensor = body.cache(0, 0)
        """[layers, rows + 1, places, 2 G, D]; the last row receives values that are not read."""
        self._body = body
        self._written = 0  # places of any row that were ever written

    @property
    def bytes(self) -> int:
        """Size of the cache."""
        return self.cache.numel() * self.cache.element_size()

    def reserve(self, rows: int, places: int) -> None:
        """Make room for as many rows and places, which may be written afterwards."""
        have_rows, have_places = self.cache.shape[1:3]
        if rows >= have_rows or places > have_places:
            larger = self._body.cache(max(power(rows) + 1, have_rows), max(power(places, LEAST), have_places))
            larger[:, :have_rows, : self._written] = self.cache[:, :, : self._written]
            if self.graphs is not None:
                self.graphs.forget()
            self.cache = larger  # only now: where there was no memory for it, all is as before
        self._written = max(self._written, places)

    def logits(
        self,
        tokens: Tensor,
        at: Where,
        rows: int,
        entered: dict[int, Tensor] | None = None,
        tree: TreeMask | None = None,
    ) -> Tensor:
        """Run a pass over this cache; see `Body.logits`."""
        return self._body.logits(tokens, at, self.cache, rows, entered, tree)

    def clear(self) -> None:
        """Empty the cache but keep its memory and recordings. Zeros are written, since a NaN would spread through the
        mask."""
        self.cache[:, :, : self._written] = 0
        self._written = 0


class CachePool:
    """Caches of one model. An unused one is kept for the next pass, with its recordings."""

    def __init__(self, body: Body, begin: Callable[[], Capture] | None = None):
        """`begin` creates the recorder of passes; None if none are recorded."""
        self.body, self._begin = body, begin
        self._empty: list[PooledCache] = []
        self.trouble = ""
        """Why recordings were given up, as the end of a sentence."""

    def take(self) -> PooledCache:
        """Return an empty cache."""
        with torch.inference_mode():
            try:
                room = self._empty.pop()
            except IndexError:
                return PooledCache(self.body, self._graphs())
            room.clear()
            return room

    def leave(self, room: PooledCache) -> None:
        """Take back a cache that is no longer used."""
        if not self._empty and room.bytes <= max(IDLE, self.body.bytes // 8):
            self._empty.append(room)

    def _graphs(self) -> Graphs | None:
        if self._begin is None or self.trouble:
            return None
        return Graphs(self._begin, self._agree, self._tell)

    def _agree(self, found: Tensors, expected: Tensors) -> bool:
        """Return whether logits are the same up to rounding, and tokens until rounding may have separated them. The
        last result is the logits [B, R, V]; the tokens [B, R] picked from them may precede it."""
        *picked, logits = (torch.nan_to_num(result) for result in found)
        *wanted, expected_logits = (torch.nan_to_num(result) for result in expected)
        differences = (logits - expected_logits).abs().amax(-1)  # [B, R]
        for ids, wanted_ids in zip(picked, wanted, strict=True):  # what follows a different token is different
            mismatches = (ids != wanted_ids).cumsum(-1)
            differences = torch.where(mismatches - (ids != wanted_ids).long() > 0, 0.0, differences)
        return bool((differences <= SLACK[self.body.dtype] * expected_logits.abs().amax()).all())

    def _tell(self, reason: str) -> None:
        self.trouble = self.trouble or reason


SLACK = {torch.float32: 1e-4, torch.bfloat16: 0.05, torch.float16: 0.02}
"""How far logits of the same pass may differ, as a share of the largest."""


def power(count: int, least: int = 1) -> int:
    """Return the smallest of `least`, 2 `least`, 4 `least`, … that is at least `count`."""
    while least < count:
        least *= 2
    return least
