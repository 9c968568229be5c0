"""Batches of rows of unequal length in one pass, on the CPU or a CUDA device, in any of their dtypes; on CUDA short
passes are recorded and played again. Knows rows, places and what goes to the device; the arithmetic is `Body`'s.

A row's result is the one it has alone up to rounding: which kernels multiply depends on how much there is to multiply.
In float32 this changes a token only where the two best logits lie within rounding of each other. In bfloat16 and
float16 such ties are common, and from one on a text may go on otherwise than it would alone.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from mars_viz.speculators.host_copy import sent
from mars_viz.speculators.networks.cache_pool import LEAST, CachePool, PooledCache, power
from mars_viz.speculators.networks.chains import Chain, Pick
from mars_viz.speculators.networks.graphs import Tensors
from mars_viz.speculators.networks.layer_inputs import LayerInputs
from mars_viz.speculators.networks.llama_forward import Where
from mars_viz.speculators.networks.tree_mask import TreeMask
from mars_viz.speculators.threads import on_shared_cores

TILE = 64
"""Places are read in multiples of this."""
CHUNK = 512
"""Tokens of a row that are read at once: more would make the mask large, and keep no device busier."""
SHORT = 66
"""Tokens of a row up to which a pass is worth recording: the longest block is, with what its row had left to read;
prompts are not."""
FEW = 16
"""Rows up to which it is: with more the device is busy for longer than it takes the host to start it."""


@dataclass(frozen=True, slots=True)
class BatchLayout:
    """What the host knows of a batch before a pass."""

    starts: Sequence[int]
    """Each row's first place."""
    slots: Sequence[int]
    """Each row's row of the cache; neighbours, in any order."""
    end: int
    """Places of any row that hold something after the pass."""


class RaggedNetwork:
    """A pass over weights that others may share, with a cache of its own, which others get once this one is gone."""

    def __init__(self, rooms: CachePool):
        """With an empty cache."""
        self.inputs = LayerInputs()
        self.device = rooms.body.device
        self._room = rooms.take()
        weakref.finalize(self, rooms.leave, self._room).atexit = False

    @torch.inference_mode()
    @on_shared_cores
    def score(
        self,
        tokens: Tensor,
        starts: Sequence[int],
        rows: int,
        slots: Sequence[int] | None = None,
        tree: TreeMask | None = None,
    ) -> Tensor:
        """Raw logits [B, rows, V] after the last `rows` of the tokens [B, n]; see `Network.score`."""
        found, left = [], tokens.shape[1]
        for part in torch.split(tokens, CHUNK, 1):
            cut = tokens.shape[1] - left
            n, left = part.shape[1], left - part.shape[1]
            kept = min(n, max(rows - left, 1))  # one, where none of this part is asked for
            stand = BatchLayout(starts, slots or range(len(starts)), max(starts) + n)
            mask = tree and tree.part(slice(len(starts)), cut, cut + n)
            function = partial(_scored, self._room, rows=kept, inputs_of=self.inputs.layers, tree=mask)
            logits, *entered = self._run(("score", kept), function, stand, (part,), short=n <= SHORT and mask is None)
            if self.inputs:
                self.inputs.put(stand.slots, starts, entered)
            if rows > left:
                found.append(logits)
            starts = [start + n for start in starts]
        return found[0] if len(found) == 1 else torch.cat(found, 1)

    @torch.inference_mode()
    @on_shared_cores
    def chain(
        self,
        tokens: Tensor,
        starts: Sequence[int],
        count: int,
        pick: Pick,
        uniforms: Tensor | None = None,
        slots: Sequence[int] | None = None,
    ) -> Chain:
        """Draft `count` tokens after the tokens [B, n]; see `Chaining.chain`."""
        if tokens.shape[1] > CHUNK:  # far from what was read
            self.score(tokens[:, :-1], starts, 1, slots)
            starts = [start + tokens.shape[1] - 1 for start in starts]
            tokens = tokens[:, -1:]
        stand = BatchLayout(starts, slots or range(len(starts)), max(starts) + tokens.shape[1] + count - 1)
        inputs = (tokens,) if uniforms is None else (tokens, uniforms)
        function = partial(_chained, self._room, count=count, pick=pick)
        return Chain(*self._run(("chain", count, pick), function, stand, inputs, short=tokens.shape[1] <= SHORT))

    @torch.inference_mode()
    def copy(self, source: int, slot: int, length: int) -> None:
        """Make row `slot` of the cache what row `source` is, up to `length` places."""
        self._room.reserve(max(source, slot) + 1, length)
        self._room.cache[:, slot, :length] = self._room.cache[:, source, :length]
        self.inputs.copy(source, slot, length)

    def _run(
        self,
        key: tuple[Hashable, ...],
        function: Callable[..., Tensors],
        stand: BatchLayout,
        inputs: Tensors,
        *,
        short: bool,
    ) -> Tensors:
        """What the function makes of the inputs [B, …] and of where the batch stands."""
        count, first, graphs = len(stand.starts), min(stand.slots), self._room.graphs
        if self.inputs:
            graphs = None  # recordings keep none
        if graphs is None or graphs.given_up or not short or count > FEW or first > 0:
            end = -(-stand.end // TILE) * TILE
            self._room.reserve(first + count, end)
            return function(self._control(stand, count), *inputs, first=first, end=end)
        rows, end = power(count), power(stand.end, LEAST)  # few shapes, so that each comes back
        self._room.reserve(rows, end)
        padded = tuple(_padded(given, rows) for given in inputs)
        key = (*key, rows, end, *(given.shape[1] for given in inputs))
        found = graphs.run(key, partial(function, first=0, end=end), (self._control(stand, rows), *padded))
        return tuple(each[:count] for each in found)

    def _control(self, stand: BatchLayout, rows: int) -> Tensor:
        """int64 [4, rows], on the device: what the pass must know of every row of the cache it reads.

        By row of the cache: which row of the batch it is, its first place, the row of the cache that it is written to.
        Then, by row of the batch: which of the rows it is. Rows beyond the batch are written where nobody reads.
        """
        first, count = min(stand.slots), len(stand.slots)
        back = [slot - first for slot in stand.slots] + list(range(count, rows))
        order = sorted(range(rows), key=back.__getitem__)
        starts = [stand.starts[i] if i < count else 0 for i in order]
        spare = self._room.cache.shape[1] - 1
        homes = [first + row if row < count else spare for row in range(rows)]
        return sent([order, starts, homes, back], self.device)


def _scored(
    room: PooledCache,
    control: Tensor,
    tokens: Tensor,
    *,
    rows: int,
    inputs_of: Sequence[int],
    tree: TreeMask | None,
    first: int,
    end: int,
) -> Tensors:
    """Logits [B, rows, V], and what entered these layers, [B, n, E] each."""
    order, starts, homes, back = control.unbind(0)
    entered: dict[int, Tensor] | None = {} if inputs_of else None
    tree = tree and tree.arranged(order.tolist())
    logits = room.logits(_arranged(tokens, order), Where(starts, homes, first, end), rows, entered, tree)
    found = (logits, *(entered[i] for i in inputs_of)) if entered is not None else (logits,)
    return tuple(_arranged(each, back) for each in found)


def _chained(
    room: PooledCache,
    control: Tensor,
    tokens: Tensor,
    uniforms: Tensor | None = None,
    *,
    count: int,
    pick: Pick,
    first: int,
    end: int,
) -> Tensors:
    order, starts, homes, back = control.unbind(0)
    ids = _arranged(tokens, order)
    coins = None if uniforms is None else _arranged(uniforms, order)
    picked, rows = [], []
    for step in range(count):
        logits = room.logits(ids, Where(starts, homes, first, end), 1)  # [B, 1, V]
        starts = starts + ids.shape[1]
        ids = pick(logits, None if coins is None else coins[:, step : step + 1])
        picked.append(ids)
        rows.append(logits)
    return _arranged(torch.cat(picked, 1), back), _arranged(torch.cat(rows, 1), back)


def _arranged(x: Tensor, order: Tensor) -> Tensor:
    return x if len(x) == 1 else x.index_select(0, order)


def _padded(x: Tensor, rows: int) -> Tensor:
    """x with as many rows, the last ones zero."""
    if len(x) == rows:
        return x
    padded = x.new_zeros(rows, *x.shape[1:])
    padded[: len(x)] = x
    return padded
