"""Batches of rows of unequal length in one pass, on CPU or CUDA; short CUDA passes are recorded and replayed.

Knows rows, places and transfers to the device; the arithmetic is `Body`'s.

A row's result equals the one it has alone up to rounding, since kernels depend on the amount of work. In float32 this
changes a token only if the two best logits differ by no more than rounding. In bfloat16 and float16 such ties are
common, and a text may continue differently after one.
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
"""Tokens of a row that are read at once: more would make the mask large and not use the device better."""
SHORT = 66
"""Most tokens of a row in a recorded pass: enough for the longest block after an unread rest; prompts are longer."""
FEW = 16
"""Most rows in a recorded pass: with more, the device needs longer than the host does to start the pass."""


@dataclass(frozen=True, slots=True)
class BatchLayout:
    """Positions of a batch's rows, as the host has them before a pass."""

    starts: Sequence[int]
    """First place of each row."""
    slots: Sequence[int]
    """Row of the cache of each row; consecutive, in any order."""
    end: int
    """Places of any row that are filled after the pass."""


class RaggedNetwork:
    """A pass over weights that may be shared, with a cache of its own, which returns to a pool when the pass is
    deleted."""

    def __init__(self, rooms: CachePool):
        """Begin with an empty cache."""
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
        """Return raw logits [B, rows, V] after the last `rows` of the tokens [B, n]; see `Network.score`."""
        scored, left = [], tokens.shape[1]
        for part in torch.split(tokens, CHUNK, 1):
            cut = tokens.shape[1] - left
            n, left = part.shape[1], left - part.shape[1]
            last = min(n, max(rows - left, 1))  # one, where none of this part is asked for
            layout = BatchLayout(starts, slots or range(len(starts)), max(starts) + n)
            mask = tree and tree.part(slice(len(starts)), cut, cut + n)
            function = partial(_scored, self._room, rows=last, inputs_of=self.inputs.layers, tree=mask)
            logits, *entered = self._run(("score", last), function, layout, (part,), short=n <= SHORT and mask is None)
            if self.inputs:
                self.inputs.put(layout.slots, starts, entered)
            if rows > left:
                scored.append(logits)
            starts = [start + n for start in starts]
        return scored[0] if len(scored) == 1 else torch.cat(scored, 1)

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
        layout = BatchLayout(starts, slots or range(len(starts)), max(starts) + tokens.shape[1] + count - 1)
        inputs = (tokens,) if uniforms is None else (tokens, uniforms)
        function = partial(_chained, self._room, count=count, pick=pick)
        return Chain(*self._run(("chain", count, pick), function, layout, inputs, short=tokens.shape[1] <= SHORT))

    @torch.inference_mode()
    def copy(self, source: int, slot: int, length: int) -> None:
        """Copy the first `length` places of row `source` of the cache to row `slot`."""
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
        """Call the function with the batch's control tensor and the inputs [B, …], by a recording if there is one."""
        count, first, graphs = len(stand.starts), min(stand.slots), self._room.graphs
        if self.inputs:
            graphs = None  # recordings keep none
        if graphs is None or graphs.given_up or not short or count > FEW or first > 0:
            end = -(-stand.end // TILE) * TILE
            self._room.reserve(first + count, end)
            return function(self._control(stand, count), *inputs, first=first, end=end)
        rows, end = power(count), power(stand.end, LEAST)  # few shapes, so that each comes back
        self._room.reserve(rows, end)
        padded = tuple(_padded(value, rows) for value in inputs)
        key = (*key, rows, end, *(value.shape[1] for value in inputs))
        results = graphs.run(key, partial(function, first=0, end=end), (self._control(stand, rows), *padded))
        return tuple(result[:count] for result in results)

    def _control(self, stand: BatchLayout, rows: int) -> Tensor:
        """Return a tensor int64 [4, rows] on the device with the positions of the rows of the cache.

        By row of the cache: row of the batch, first place, row of the cache that is written. By row of the batch: its
        row among these. Rows beyond the batch are written to a row that is not read.
        """
        first, count = min(stand.slots), len(stand.slots)
        positions = [slot - first for slot in stand.slots] + list(range(count, rows))
        order = sorted(range(rows), key=positions.__getitem__)
        starts = [stand.starts[i] if i < count else 0 for i in order]
        spare = self._room.cache.shape[1] - 1
        written = [first + row if row < count else spare for row in range(rows)]
        return sent([order, starts, written, positions], self.device)


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
    """Return logits [B, rows, V] and the inputs [B, n, E] of the layers `inputs_of`."""
    order, starts, written, positions = control.unbind(0)
    entered: dict[int, Tensor] | None = {} if inputs_of else None
    tree = tree and tree.arranged(order.tolist())
    logits = room.logits(_arranged(tokens, order), Where(starts, written, first, end), rows, entered, tree)
    results = (logits, *(entered[i] for i in inputs_of)) if entered is not None else (logits,)
    return tuple(_arranged(result, positions) for result in results)


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
    order, starts, written, positions = control.unbind(0)
    ids = _arranged(tokens, order)
    draws = None if uniforms is None else _arranged(uniforms, order)
    picked, rows = [], []
    for step in range(count):
        logits = room.logits(ids, Where(starts, written, first, end), 1)  # [B, 1, V]
        starts = starts + ids.shape[1]
        ids = pick(logits, None if draws is None else draws[:, step : step + 1])
        picked.append(ids)
        rows.append(logits)
    return _arranged(torch.cat(picked, 1), positions), _arranged(torch.cat(rows, 1), positions)


def _arranged(x: Tensor, order: Tensor) -> Tensor:
    return x if len(x) == 1 else x.index_select(0, order)


def _padded(x: Tensor, rows: int) -> Tensor:
    """Return x with `rows` rows, the added ones zero."""
    if len(x) == rows:
        return x
    padded = x.new_zeros(rows, *x.shape[1:])
    padded[: len(x)] = x
    return padded
