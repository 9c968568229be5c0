"""Caches that stay where they are, so that recorded passes can be played on them, and who gets one that is left over.
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
"""Places of a row at the least; twice, four times, … as many where a text is longer."""
IDLE = 64 << 20
"""Bytes that a cache which nobody uses may take at the least; it may take an eighth of the weights' in any case."""


class PooledCache:
    """A cache to pass over, and the passes that were recorded on it."""

    def __init__(self, body: Body, graphs: Graphs | None):
        """No place for anything yet. Without `graphs` every pass is a plain one."""
        self.graphs = graphs
        self.cache: Tensor = body.cache(0, 0)
        """[layers, rows + 1, places, 2 G, D]; the last row takes what nobody reads."""
        self._body = body
        self._written = 0  # places of any row that were ever written

    @property
    def bytes(self) -> int:
        """Of the cache."""
        return self.cache.numel() * self.cache.element_size()

    def reserve(self, rows: int, places: int) -> None:
        """Make room for that many rows and places, which may be written from now on."""
        have_rows, have_places = self.cache.shape[1:3]
        if rows >= have_rows or places > have_places:
            wanted = self._body.cache(max(power(rows) + 1, have_rows), max(power(places, LEAST), have_places))
            wanted[:, :have_rows, : self._written] = self.cache[:, :, : self._written]
            if self.graphs is not None:
                self.graphs.forget()
            self.cache = wanted  # only now: where there was no memory for it, all is as before
        self._written = max(self._written, places)

    def logits(
        self,
        tokens: Tensor,
        at: Where,
        rows: int,
        entered: dict[int, Tensor] | None = None,
        tree: TreeMask | None = None,
    ) -> Tensor:
        """A pass over this cache; see `Body.logits`."""
        return self._body.logits(tokens, at, self.cache, rows, entered, tree)

    def clear(self) -> None:
        """As good as new, but for its memory and its recordings: a NaN that was left would spoil whatever masks it."""
        self.cache[:, :, : self._written] = 0
        self._written = 0


class CachePool:
    """The rooms of one model. One that is left is kept for whoever comes next, so that its recordings serve him too."""

    def __init__(self, body: Body, begin: Callable[[], Capture] | None = None):
        """`begin` makes what records passes; None where they stay plain."""
        self.body, self._begin = body, begin
        self._empty: list[PooledCache] = []
        self.trouble = ""
        """Why recordings were given up, as the end of a sentence."""

    def take(self) -> PooledCache:
        """An empty one."""
        with torch.inference_mode():
            try:
                room = self._empty.pop()
            except IndexError:
                return PooledCache(self.body, self._graphs())
            room.clear()
            return room

    def leave(self, room: PooledCache) -> None:
        """Nobody uses it any more."""
        if not self._empty and room.bytes <= max(IDLE, self.body.bytes // 8):
            self._empty.append(room)

    def _graphs(self) -> Graphs | None:
        if self._begin is None or self.trouble:
            return None
        return Graphs(self._begin, self._agree, self._tell)

    def _agree(self, found: Tensors, expected: Tensors) -> bool:
        """True where logits are the same up to rounding, and tokens until rounding may have parted them.

        The last of each are the logits [B, R, V]; the tokens [B, R] that were picked from them may stand before.
        """
        *picked, logits = (torch.nan_to_num(each) for each in found)
        *wanted, right = (torch.nan_to_num(each) for each in expected)
        apart = (logits - right).abs().amax(-1)  # [B, R]
        for one, other in zip(picked, wanted, strict=True):  # what follows a different token is different
            parted = (one != other).cumsum(-1)
            apart = torch.where(parted - (one != other).long() > 0, 0.0, apart)
        return bool((apart <= SLACK[self.body.dtype] * right.abs().amax()).all())

    def _tell(self, reason: str) -> None:
        self.trouble = self.trouble or reason


SLACK = {torch.float32: 1e-4, torch.bfloat16: 0.05, torch.float16: 0.02}
"""How far logits of the same pass may lie apart, as a share of the largest."""


def power(count: int, least: int = 1) -> int:
    """The smallest of `least`, twice, four times, … as much that is no less than `count`."""
    while least < count:
        least *= 2
    return least
