"""Passes recorded once and played again, so that the host starts one thing where it started hundreds. Knows tensors and
CUDA graphs; knows no models.

A recording is a function's work on buffers that stay where they are. It is made when a shape comes back, checked
against the function itself on the first inputs that it is played for, and given up, with a sentence, where either
fails: then the function is called as if there were no recordings. How CUDA records is one class, `CudaCapture`; all
else is the same for anything that records and plays. Sources: PyTorch's
notes on CUDA graphs (docs.pytorch.org/docs/stable/notes/cuda.html) and torch/cuda/graphs.py.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from mars_viz.speculators.device_errors import lacks_memory

Tensors = tuple[Tensor, ...]
Function = Callable[..., Tensors]
"""Tensors in, tensors out; called again with the same it must do no harm, as a cache gets the same again."""

WORTH = 3
"""The time at which a shape is recorded: recording costs some four passes, and many shapes never come back."""
CHECKS = 2
"""Plays of a recording that are compared with the function: inputs other than the recorded ones are among them."""
MOST = 32
"""Recordings that are kept; the one unused for longest goes first."""
SETTLED = WORTH + CHECKS
"""Calls with one shape after which nothing is recorded or compared any more."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A function's work on some buffers, to be done again on what they hold then."""

    play: Callable[[], None]
    """Does it."""
    outputs: Tensors
    """Where the results are after every play."""


class Capture(Protocol):
    """Something that records."""

    def __call__(self, function: Function, inputs: Tensors) -> Recorded:
        """Record the function's work on these very tensors. Raises RuntimeError where that cannot be done."""
        ...


class CudaCapture:
    """Records CUDA graphs that share a pool of memory. For one thread, whose plays follow one another in one stream."""

    def __init__(self, device: torch.device):
        """With a pool of its own; see `Graphs` for how long it may be used."""
        self._device = device
        with torch.cuda.device(device):
            self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, function: Function, inputs: Tensors) -> Recorded:
        """Record, after two plain calls on the recording's own stream: libraries set themselves up on their first."""
        with torch.cuda.device(self._device):
            ours = torch.cuda.current_stream()
            self._stream.wait_stream(ours)
            with torch.cuda.stream(self._stream):
                for _ in range(2):
                    function(*inputs)
            ours.wait_stream(self._stream)
            graph = torch.cuda.CUDAGraph()
            try:  # other threads may ask the device something meanwhile, such as how much memory it has
                with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                    outputs = function(*inputs)
            finally:
                torch.cuda.set_stream(ours)  # a recording that fails leaves its own behind
            return Recorded(graph.replay, outputs)


@dataclass(slots=True)
class _Kept:
    inputs: Tensors
    recorded: Recorded
    checks: int = CHECKS

    def __call__(self, inputs: Tensors) -> Tensors:
        for buffer, given in zip(self.inputs, inputs, strict=True):
            buffer.copy_(given)
        self.recorded.play()
        return tuple(output.clone() for output in self.recorded.outputs)  # the next play overwrites them


class Graphs:
    """Recordings by shape."""

    def __init__(
        self,
        begin: Callable[[], Capture],
        agree: Callable[[Tensors, Tensors], bool],
        tell: Callable[[str], None],
    ):
        """`begin` makes what records, anew after `forget`: a pool of memory cannot be used again once nothing is in it.

        `agree` compares a recording's results with the function's; `tell` hears why recordings were given up.
        """
        self._begin, self._agree, self._tell = begin, agree, tell
        self._capture: Capture | None = None
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._asked: Counter[Hashable] = Counter()
        self.given_up = False
        """True once the functions are called as they are, for good."""

    def __len__(self) -> int:
        return len(self._kept)

    def run(self, key: Hashable, function: Function, inputs: Tensors) -> Tensors:
        """What `function(*inputs)` gives. The key says all of function and inputs that is not in the tensors."""
        if self.given_up:
            return function(*inputs)
        kept = self._kept.get(key)
        if kept is None:
            self._asked[key] += 1
            if self._asked[key] < WORTH:
                return function(*inputs)
        try:
            kept = kept or self._record(key, function, inputs)
            self._kept.move_to_end(key)
            found = kept(inputs)
        except RuntimeError as error:  # all that PyTorch raises; what is wrong with the function itself it raises again
            self._give_up(_reason(error))
            return function(*inputs)
        if kept.checks:
            kept.checks -= 1
            expected = function(*inputs)
            if not self._agree(found, expected):
                self._give_up("a recorded pass gave other results than the pass itself")
                return expected
        return found

    def forget(self) -> None:
        """Drop all recordings: what they were made on is no more. They are made anew when their shapes come back."""
        self._kept.clear()
        self._asked.clear()
        self._capture = None

    def _record(self, key: Hashable, function: Function, inputs: Tensors) -> _Kept:
        self._capture = self._capture or self._begin()
        buffers = tuple(given.clone() for given in inputs)
        kept = self._kept[key] = _Kept(buffers, self._capture(function, buffers))
        if len(self._kept) > MOST:
            dropped, _ = self._kept.popitem(last=False)
            del self._asked[dropped]  # it must prove its worth again
        return kept

    def _give_up(self, reason: str) -> None:
        self.given_up = True
        self.forget()
        self._tell(reason)


def _reason(error: RuntimeError) -> str:
    if lacks_memory(error):
        return "the device has too little memory for them"
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
