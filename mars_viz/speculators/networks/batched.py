"""Batches of rows of unequal length in one pass, on CPU or CUDA; short CUDA passes are recorded and replayed.

Knows rows, places and transfers to the device; the arithmetic is `Body`'s.

A row's result equals the one it has alone up to rounding, since kernels depend on the amount of work. In float32 this
changes a token only at a tie within rounding; in bfloat16 and float16 such ties are common.

A recording repeats a function's work on buffers at fixed addresses, so that the host starts one graph instead of
hundreds of kernels. A shape is recorded when it recurs, and its first replays are compared with the function. Source:
PyTorch's notes on CUDA graphs (docs.pytorch.org/docs/stable/notes/cuda.html).
"""

from __future__ import annotations

import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import pad

from mars_viz.speculators.devices import first_line, lacks_memory, sent
from mars_viz.speculators.networks.base import LayerInputs, Network, Pick, Slots, TreeMask
from mars_viz.speculators.networks.llama_forward import Body

Tensors = tuple[Tensor, ...]
Function = Callable[..., Tensors]
"""Function of tensors that may be called again with the same arguments, such as writing the same values to a cache."""

WORTH = 3  # call at which a shape is recorded: recording costs about four passes, and many shapes never recur
CHECKS = 2  # replays that are compared with the function; they include other inputs than the recorded ones
MOST = 32  # recordings kept; the least recently used is dropped first
SETTLED = WORTH + CHECKS  # calls with one shape after which nothing is recorded or compared


Recorded = tuple[Callable[[], None], Tensors]
"""Repeats a function's work on the present contents of some buffers; and the tensors that contain its results then."""
Capture = Callable[[Function, Tensors], Recorded]
"""Records the function's work on these tensors. Raises RuntimeError if that is impossible."""


class CudaCapture:
    """Records CUDA graphs that share a pool of memory. For one thread with one stream of replays."""

    def __init__(self, device: torch.device):
        """Begin with a memory pool; see `Graphs` for how long it may be used."""
        self._device = device
        with torch.cuda.device(device):
            self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, function: Function, inputs: Tensors) -> Recorded:
        """Record after two plain calls on the recording's stream, since libraries initialise on the first."""
        with torch.cuda.device(self._device):
            current = torch.cuda.current_stream()
            self._stream.wait_stream(current)
            with torch.cuda.stream(self._stream):
                for _ in range(2):
                    function(*inputs)
            current.wait_stream(self._stream)
            graph = torch.cuda.CUDAGraph()
            try:  # other threads may ask the device something meanwhile, such as how much memory it has
                with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                    outputs = function(*inputs)
            finally:
                torch.cuda.set_stream(current)  # a recording that fails leaves its own behind
            return graph.replay, outputs


@dataclass(slots=True)
class _Kept:
    inputs: Tensors
    play: Callable[[], None]
    outputs: Tensors
    checks: int = CHECKS

    def __call__(self, inputs: Tensors) -> Tensors:
        for buffer, value in zip(self.inputs, inputs, strict=True):
            buffer.copy_(value)
        self.play()
        return tuple(output.clone() for output in self.outputs)  # the next play overwrites them


class Graphs:
    """Recordings by shape."""

    def __init__(
        self, begin: Callable[[], Capture], agree: Callable[[Tensors, Tensors], bool], tell: Callable[[str], None]
    ):
        """`begin` creates the recorder, again after `forget`: a memory pool cannot be reused once it is empty. `agree`
        compares a recording's results with the function's; `tell` receives the reason if recordings are given up."""
        self._begin, self._agree, self._tell = begin, agree, tell
        self._capture: Capture | None = None
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._asked: Counter[Hashable] = Counter()
        self.given_up = False  # whether functions are called without recordings from now on

    def __len__(self) -> int:
        return len(self._kept)

    def run(self, key: Hashable, function: Function, inputs: Tensors) -> Tensors:
        """Return `function(*inputs)`. The key identifies the function and all about the inputs but their values."""
        if self.given_up:
            return function(*inputs)
        recording = self._kept.get(key)
        if recording is None:
            self._asked[key] += 1
            if self._asked[key] < WORTH:
                return function(*inputs)
        try:
            recording = recording or self._record(key, function, inputs)
            self._kept.move_to_end(key)
            results = recording(inputs)
        except RuntimeError as error:  # all that PyTorch raises; the function itself raises its own errors again
            lacks = lacks_memory(error)
            self._give_up("the device has too little memory for them" if lacks else first_line(error))
            return function(*inputs)
        if recording.checks:
            recording.checks -= 1
            expected = function(*inputs)
            if not self._agree(results, expected):
                self._give_up("a recorded pass gave other results than the pass itself")
                return expected
        return results

    def forget(self) -> None:
        """Drop all recordings, since the memory they used is gone. Shapes that recur are recorded again."""
        self._kept.clear()
        self._asked.clear()
        self._capture = None

    def _record(self, key: Hashable, function: Function, inputs: Tensors) -> _Kept:
        self._capture = self._capture or self._begin()
        buffers = tuple(value.clone() for value in inputs)
        recording = self._kept[key] = _Kept(buffers, *self._capture(function, buffers))
        if len(self._kept) > MOST:
            dropped, _ = self._kept.popitem(last=False)
            del self._asked[dropped]  # it must prove its worth again
        return recording

    def _give_up(self, reason: str) -> None:
        self.given_up = True
        self.forget()
        self._tell(reason)


TILE = 64  # places are read in multiples of this
CHUNK = 512  # tokens of a row that are read at once: more would make the mask large and not use the device better
SHORT = 66
"""Most tokens of a row in a recorded pass: enough for the longest block after an unread rest; prompts are longer."""
FEW = 16  # most rows in a recorded pass: with more, the device needs longer than the host does to start the pass
LEAST = 256  # fewest places of a row; doubled as often as a text requires
IDLE = 64 << 20  # most bytes of a cache kept unused; an eighth of the weights' bytes is allowed in any case
SLACK = {torch.float32: 1e-4, torch.bfloat16: 0.05, torch.float16: 0.02}
"""How far logits of the same pass may differ, as a share of the largest."""
Window = tuple[int, int]  # the first row of the cache that is read, and the number of places


class PooledCache:
    """A cache for passes, and the passes recorded on it."""

    def __init__(self, body: Body, graphs: Graphs | None):
        """Begin without any place. Without `graphs`, passes are not recorded."""
        self.body, self.graphs = body, graphs
        self.cache: Tensor = body.cache(0, 0)
        """[layers, rows + 1, places, 2 G, D]; the last row receives values that are not read."""
        self._written = 0  # places of any row that were ever written

    def reserve(self, rows: int, places: int) -> None:
        """Make room for as many rows and places, which may be written afterwards."""
        have_rows, have_places = self.cache.shape[1:3]
        if rows >= have_rows or places > have_places:
            larger = self.body.cache(max(power(rows) + 1, have_rows), max(power(places, LEAST), have_places))
            larger[:, :have_rows, : self._written] = self.cache[:, :, : self._written]
            if self.graphs is not None:
                self.graphs.forget()
            self.cache = larger  # only now: where there was no memory for it, all is as before
        self._written = max(self._written, places)

    def clear(self) -> None:
        """Empty the cache but keep its memory and recordings. Written values become 0: a NaN would pass the mask."""
        self.cache[:, :, : self._written] = 0
        self._written = 0

    def scored(
        self, control: Tensor, tokens: Tensor, *, rows: int, kept: Sequence[int], tree: TreeMask | None, window: Window
    ) -> Tensors:
        """Return logits [B, rows, V] and the inputs [B, n, E] of the `kept` layers."""
        order, starts, written, positions = control.unbind(0)
        entered: dict[int, Tensor] | None = {} if kept else None
        tree, at = tree and tree.arranged(order.tolist()), (starts, written, *window)
        logits = self.body.logits(_arranged(tokens, order), at, self.cache, rows, entered, tree)
        results = (logits, *(entered[i] for i in kept)) if entered is not None else (logits,)
        return tuple(_arranged(result, positions) for result in results)

    def chained(
        self, control: Tensor, tokens: Tensor, uniforms: Tensor | None = None, *, count: int, pick: Pick, window: Window
    ) -> Tensors:
        """Return the picked tokens [B, count] and their logits [B, count, V]; see `Network.chain`."""
        order, starts, written, positions = control.unbind(0)
        ids, draws = _arranged(tokens, order), None if uniforms is None else _arranged(uniforms, order)
        picked, rows = [], []
        for step in range(count):
            logits = self.body.logits(ids, (starts, written, *window), self.cache, 1)  # [B, 1, V]
            starts = starts + ids.shape[1]
            ids = pick(logits, None if draws is None else draws[:, step : step + 1])
            picked.append(ids)
            rows.append(logits)
        return _arranged(torch.cat(picked, 1), positions), _arranged(torch.cat(rows, 1), positions)


class CachePool:
    """Caches of one model. An unused one is kept for the next pass, with its recordings."""

    def __init__(self, body: Body, begin: Callable[[], Capture] | None = None):
        """`begin` creates the recorder of passes; None if none are recorded."""
        self.body, self._begin = body, begin
        self._empty: list[PooledCache] = []
        self.trouble = ""  # why recordings were given up, as the end of a sentence

    def take(self) -> PooledCache:
        with torch.inference_mode():
            try:
                room = self._empty.pop()
            except IndexError:
                if self._begin is None or self.trouble:
                    return PooledCache(self.body, None)
                return PooledCache(self.body, Graphs(self._begin, self._agree, self._tell))
            room.clear()
            return room

    def leave(self, room: PooledCache) -> None:
        if not self._empty and room.cache.nbytes <= max(IDLE, self.body.bytes // 8):
            self._empty.append(room)

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


def power(count: int, least: int = 1) -> int:
    """Return the smallest power of 2 that is at least `count` and `least`."""
    return 1 << (max(count, least) - 1).bit_length()


class RaggedNetwork(Network):
    """A pass over weights that may be shared, with its own cache from a pool, which gets it back in the end."""

    def __init__(self, pool: CachePool):
        self.inputs = LayerInputs()
        self.device = pool.body.device
        self._room = pool.take()
        weakref.finalize(self, pool.leave, self._room).atexit = False

    @torch.inference_mode()
    def score(
        self, tokens: Tensor, starts: Sequence[int], rows: int, slots: Slots = None, tree: TreeMask | None = None
    ) -> Tensor:
        scored, left, slots = [], tokens.shape[1], slots or range(len(starts))
        for part in torch.split(tokens, CHUNK, 1):
            cut = tokens.shape[1] - left
            n, left = part.shape[1], left - part.shape[1]
            last = min(n, max(rows - left, 1))  # one, if none of this part is requested
            mask = tree and tree.part(slice(len(starts)), cut, cut + n)
            function = partial(self._room.scored, rows=last, kept=self.inputs.layers, tree=mask)
            short = n <= SHORT and mask is None
            logits, *entered = self._run(("score", last), function, starts, slots, n, (part,), short=short)
            if self.inputs.layers:
                self.inputs.put(slots, starts, entered)
            if rows > left:
                scored.append(logits)
            starts = [start + n for start in starts]
        return scored[0] if len(scored) == 1 else torch.cat(scored, 1)

    @torch.inference_mode()
    def chain(
        self, tokens: Tensor, starts: Sequence[int], count: int, pick: Pick, uniforms: Tensor | None, slots: Slots
    ) -> tuple[Tensor, Tensor]:
        if tokens.shape[1] > CHUNK:  # far from what was read
            self.score(tokens[:, :-1], starts, 1, slots)
            starts = [start + tokens.shape[1] - 1 for start in starts]
            tokens = tokens[:, -1:]
        n, inputs = tokens.shape[1], (tokens,) if uniforms is None else (tokens, uniforms)
        function, key = partial(self._room.chained, count=count, pick=pick), ("chain", count, pick)
        slots = slots or range(len(starts))
        picked, logits = self._run(key, function, starts, slots, n + count - 1, inputs, short=n <= SHORT)
        return picked, logits

    @torch.inference_mode()
    def copy(self, source: int, slot: int, length: int) -> None:
        self._room.reserve(max(source, slot) + 1, length)
        self._room.cache[:, slot, :length] = self._room.cache[:, source, :length]
        self.inputs.copy(source, slot, length)

    def _run(
        self,
        key: tuple[Hashable, ...],
        function: Callable[..., Tensors],
        starts: Sequence[int],
        slots: Sequence[int],
        places: int,
        inputs: Tensors,
        *,
        short: bool,
    ) -> Tensors:
        """Call the function with a control tensor and the inputs [B, …], by a recording if there is one. It fills
        `places` places of each row of the batch, from `starts` on.

        The control tensor, int64 [4, R], has by row of the cache the row of the batch, its first place, and the row of
        the cache that is written; by row of the batch its row among these. Rows beyond the batch are written to a row
        that is not read.
        """
        count, first, graphs = len(starts), min(slots), self._room.graphs
        recorded = graphs is not None and not graphs.given_up and short and count <= FEW and first == 0
        if recorded and not self.inputs.layers:  # recordings keep none
            rows, end = power(count), power(max(starts) + places, LEAST)  # few shapes, so that each comes back
        else:
            graphs, rows, end = None, count, -(-(max(starts) + places) // TILE) * TILE
        self._room.reserve(first + rows, end)
        positions = [slot - first for slot in slots] + list(range(count, rows))
        order = sorted(range(rows), key=positions.__getitem__)
        begins = [starts[i] if i < count else 0 for i in order]
        spare = self._room.cache.shape[1] - 1
        written = [first + row if row < count else spare for row in range(rows)]
        control = sent([order, begins, written, positions], self.device)
        if graphs is None:
            return function(control, *inputs, window=(first, end))
        padded = [pad(value, (0, 0) * (value.dim() - 1) + (0, rows - count)) for value in inputs]
        key = (*key, rows, end, *(value.shape[1] for value in inputs))
        results = graphs.run(key, partial(function, window=(0, end)), (control, *padded))
        return tuple(result[:count] for result in results)


def _arranged(x: Tensor, order: Tensor) -> Tensor:
    return x if len(x) == 1 else x.index_select(0, order)
