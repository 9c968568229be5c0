"""Recorded passes that are replayed, so that the host starts one graph instead of hundreds of kernels.

Knows tensors and CUDA graphs; knows no models.

A recording repeats a function's work on buffers at fixed addresses. A shape is recorded when it recurs; the first
replays are compared with the function. If recording or comparison fails, recordings are given up with a sentence, and
the function is called each time. Only `CudaCapture` is specific to CUDA. Sources: PyTorch's notes on CUDA graphs
(docs.pytorch.org/docs/stable/notes/cuda.html) and torch/cuda/graphs.py.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from mars_viz.speculators.devices import first_line, lacks_memory

Tensors = tuple[Tensor, ...]
Function = Callable[..., Tensors]
"""Function of tensors that may be called again with the same arguments, such as writing the same values to a cache."""

WORTH = 3  # call at which a shape is recorded: recording costs about four passes, and many shapes never recur
CHECKS = 2  # replays that are compared with the function; they include other inputs than the recorded ones
MOST = 32  # recordings kept; the least recently used is dropped first
SETTLED = WORTH + CHECKS  # calls with one shape after which nothing is recorded or compared


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recording of a function's work on some buffers."""

    play: Callable[[], None]  # repeats the work on the present contents of the buffers
    outputs: Tensors  # contain the results after every replay


Capture = Callable[[Function, Tensors], Recorded]
"""Records the function's work on these tensors. Raises RuntimeError if that is impossible."""


class CudaCapture:
    """Records CUDA graphs that share a pool of memory. For one thread, whose replays follow one another in one
    stream."""

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
            return Recorded(graph.replay, outputs)


@dataclass(slots=True)
class _Kept:
    inputs: Tensors
    recorded: Recorded
    checks: int = CHECKS

    def __call__(self, inputs: Tensors) -> Tensors:
        for buffer, value in zip(self.inputs, inputs, strict=True):
            buffer.copy_(value)
        self.recorded.play()
        return tuple(output.clone() for output in self.recorded.outputs)  # the next play overwrites them


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
        self.given_up = False
        """Whether functions are called without recordings from now on."""

    def __len__(self) -> int:
        return len(self._kept)

    def run(self, key: Hashable, function: Function, inputs: Tensors) -> Tensors:
        """Return `function(*inputs)`. The key identifies the function and everything about the inputs but their
        values."""
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
        except RuntimeError as error:  # all that PyTorch raises; what is wrong with the function itself it raises again
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
        recording = self._kept[key] = _Kept(buffers, self._capture(function, buffers))
        if len(self._kept) > MOST:
            dropped, _ = self._kept.popitem(last=False)
            del self._asked[dropped]  # it must prove its worth again
        return recording

    def _give_up(self, reason: str) -> None:
        self.given_up = True
        self.forget()
        self._tell(reason)
