"""State of a pass: keys and values of rows, inputs of layers, and the visibility of a tree's tokens.

The first access to memory costs more than the pass that writes to it (a page fault per 4 KiB), so memory of finished
caches is reused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from mars_viz.errors import ModelError
from mars_viz.speculators.devices import sent

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


NORMED = -1
"""Index of the output of the last norm, which the output head reads. The number of layers, L, is the output
of the last layer before that norm."""

LEAST = 256  # fewest places of a row


class LayerInputs:
    """Concatenated inputs of some layers, by row and place of a cache."""

    def __init__(self, layers: Sequence[int] = ()):
        """Keep the inputs of these layers, counted from 0; L and `NORMED` follow the last one."""
        self.layers = tuple(layers)
        """In the order of concatenation."""
        self._held = torch.empty(0, 0, 0)  # [rows, places, layers · E]

    def __bool__(self) -> bool:
        """Return whether any layer is kept."""
        return bool(self.layers)

    def put(self, slots: Sequence[int], starts: Sequence[int], inputs: Sequence[Tensor]) -> None:
        """Write the inputs [B, n, E] of each of the layers; row b to row slots[b] of the cache, from place starts[b]
        on."""
        concatenated = torch.cat(list(inputs), -1)
        n = concatenated.shape[1]
        self._open(max(slots) + 1, max(starts) + n, concatenated)
        for slot, start, values in zip(slots, starts, concatenated, strict=True):
            self._held[slot, start : start + n] = values

    def of(self, slot: int, begin: int, end: int) -> Tensor:
        """Return [end - begin, layers · E], the inputs at a row's places."""
        return self._held[slot, begin:end]

    def copy(self, source: int, slot: int, length: int) -> None:
        """Copy the first `length` places of row `source` to row `slot`."""
        if self:
            self._open(slot + 1, length, self._held)
            self._held[slot, :length] = self._held[source, :length]

    def _open(self, rows: int, places: int, like: Tensor) -> None:
        """Make room for as many rows and places of values of this dtype and width."""
        have_rows, have_places = self._held.shape[:2]
        if rows <= have_rows and places <= have_places:
            return
        rows = max(rows, 2 * have_rows) if rows > have_rows else have_rows
        places = max(places, 2 * have_places, LEAST) if places > have_places else have_places
        grown = like.new_empty(rows, places, like.shape[-1])
        if have_rows:
            grown[:have_rows, :have_places] = self._held
        self._held = grown


def layers_of(model: PreTrainedModel) -> tuple[str, nn.ModuleList]:
    """Return the name of the model's list of layers, and the list. Raises ModelError if it is not found."""
    count = getattr(model.config.get_text_config(), "num_hidden_layers", 0)
    lists = [(name, each) for name, each in model.named_modules() if isinstance(each, nn.ModuleList)]
    decoder = set(model.get_decoder().modules())  # an image encoder may have as many layers
    candidates = [(name, each) for name, each in lists if len(each) == count and each in decoder]
    if len(candidates) > 1:  # such as experts
        candidates = [(name, each) for name, each in candidates if isinstance(each[0], GradientCheckpointingLayer)]
    if len(candidates) != 1:
        raise ModelError(
            f"The layers of {model.config.model_type} are not where they are expected, so no drafter can use them; "
            "take another drafter."
        )
    return candidates[0]


@contextmanager
def last_states(model: PreTrainedModel, layers: Sequence[int]) -> Iterator[dict[int, Tensor]]:
    """Collect the outputs [1, n, E] of the last layer and the last norm during one pass, if `layers` includes them.
    transformers' own hidden_states[L] is after the norm in most models."""
    states: dict[int, Tensor] = {}
    hooks = []
    if max(layers, default=0) == model.config.get_text_config().num_hidden_layers:
        last = layers_of(model)[1][-1]
        hooks.append(last.register_forward_hook(lambda _, __, output: states.update({max(layers): _first(output)})))
    if NORMED in layers:
        hooks.append(model.base_model.register_forward_hook(lambda _, __, output: states.update({NORMED: output[0]})))
    try:
        yield states
    finally:
        for hook in hooks:
            hook.remove()


def _first(output: Tensor | tuple[Tensor, ...]) -> Tensor:
    return output if isinstance(output, Tensor) else output[0]


@dataclass(frozen=True, slots=True)
class TreeMask:
    """Visibility and positions of n new tokens for each of B texts. All tokens see the places before `begins`. A
    token's place is that of its key in the cache; its position determines its rotary angle."""

    begins: Sequence[int]  # first place of each text that some tokens do not see
    sees: Tensor  # bool [B, n, W]; whether a token sees each place from `begins` on; no token sees later places
    positions: Tensor  # int64 [B, n]; number of tokens before each token on its path

    @classmethod
    def of(
        cls,
        begins: Sequence[int],
        sees: Sequence[Sequence[bytes]],
        depths: Sequence[Sequence[int]],
        device: torch.device,
    ) -> TreeMask:
        """Create a mask from W bytes, 1 or 0, for each of n tokens per text and `depths` [B, n], counted from
        `begins`."""
        positions = [
            [begin + depth for depth in text_depths] for begin, text_depths in zip(begins, depths, strict=True)
        ]
        seen = np.frombuffer(b"".join(b"".join(rows) for rows in sees), bool).copy()
        return cls(begins, sent(seen.reshape(len(sees), len(sees[0]), -1), device), sent(positions, device))

    def part(self, texts: slice, cut: int, end: int) -> TreeMask:
        """Return the tokens from `cut` to `end` of these texts."""
        begins = self.begins[texts]
        if (len(begins), end - cut) == self.sees.shape[:2]:
            return self
        return TreeMask(begins, self.sees[texts, cut:end], self.positions[texts, cut:end])

    def arranged(self, order: Sequence[int]) -> TreeMask:
        """Return the texts in this order."""
        if list(order) == list(range(len(self.begins))):
            return self
        places = list(order)
        return TreeMask([self.begins[i] for i in places], self.sees[places], self.positions[places])

    def added(self, end: int, dtype: torch.dtype) -> Tensor:
        """Return [B, n, end], to be added to a token's scores of the first places: 0 if it sees the place or -inf."""
        b, n, width = self.sees.shape
        added = torch.full((b, n, end), -torch.inf, dtype=dtype, device=self.sees.device)
        for text, begin, seen in zip(added, self.begins, self.sees, strict=True):
            text[:, :begin] = 0
            text[:, begin : begin + width].masked_fill_(seen[:, : end - begin], 0)
        return added
