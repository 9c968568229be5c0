"""A pass over a cache of rows: interface, values by row and place, and visibility of a tree's tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from mars_viz.errors import ModelError
from mars_viz.speculators.devices import sent

LEAST = 256  # places reserved at once; memory is used only when it is written
NORMED = -1
"""Index of the last norm's output, which the head reads. L is the last layer's output before that norm."""
Pick = Callable[[Tensor, Tensor | None], Tensor]
"""Maps raw logits [B, 1, V] and, if it draws, uniforms [B, 1] to token ids int64 [B, 1].

Equal functions must pick alike: a recorded chain is replayed for any function equal to its own.
"""
Slots = Sequence[int] | None
"""Row of the cache for each row of a batch; consecutive in any order; None for 0, 1, … B - 1."""


class Network:
    """Scores tokens after those that rows of its cache hold."""

    device: torch.device  # of tokens and logits
    inputs: LayerInputs
    """Inputs of some layers for every token in the cache; of no layers, unless set before anything is read."""

    def score(
        self, tokens: Tensor, starts: Sequence[int], rows: int, slots: Slots = None, tree: TreeMask | None = None
    ) -> Tensor:
        """Return raw float32 logits [B, rows, V] after the last `rows` of the tokens [B, n].

        Row b of the batch is row slots[b] of the cache; its tokens are written from place starts[b] on and replace what
        was there. Each token sees all before it, or what `tree` lets it see.
        """
        raise NotImplementedError

    def copy(self, source: int, slot: int, length: int) -> None:
        """Copy the first `length` places of row `source` of the cache to row `slot`."""
        raise NotImplementedError

    def chain(
        self, tokens: Tensor, starts: Sequence[int], count: int, pick: Pick, uniforms: Tensor | None, slots: Slots
    ) -> tuple[Tensor, Tensor]:
        """Score the tokens [B, n], pick one after them, score that, and so on until `count` are picked.

        Step s passes column s of the uniforms [B, count] to `pick`. Returns the tokens, int64 [B, count], and the raw
        logits, float32 [B, count, V], from which each was picked. Afterwards the cache holds all but the last picked
        token. `starts` and `slots` are as for `score`.
        """
        picked, rows = [], []
        for step in range(count):
            rows.append(self.score(tokens, starts, 1, slots))  # [B, 1, V]
            starts = [start + tokens.shape[1] for start in starts]
            tokens = pick(rows[-1], None if uniforms is None else uniforms[:, step, None])
            picked.append(tokens)
        return torch.cat(picked, 1), torch.cat(rows, 1)


class Rows:
    """Values by row and place of a cache, in memory that grows."""

    def __init__(self, like: Tensor):
        """Begin empty, for values with the dtype, device and last dimensions of `like` [rows, places, ...]."""
        self.held = like[:0, :0]  # [rows, places, ...]; unwritten values are 0

    def reserve(self, rows: int, places: int) -> None:
        have_rows, have_places = self.held.shape[:2]
        if rows <= have_rows and places <= have_places:
            return
        rows = max(rows, 2 * have_rows) if rows > have_rows else have_rows
        places = max(places, 2 * have_places, LEAST) if places > have_places else have_places
        grown = self.held.new_zeros(rows, places, *self.held.shape[2:])
        grown[:have_rows, :have_places] = self.held
        self.held = grown

    def copy(self, source: int, slot: int, length: int) -> None:
        self.reserve(max(source, slot) + 1, length)
        self.held[slot, :length] = self.held[source, :length]


class LayerInputs(Rows):
    """Concatenated inputs of some layers."""

    def __init__(self, layers: Sequence[int] = ()):
        """Keep the inputs of these layers, counted from 0; L and `NORMED` follow the last one."""
        super().__init__(torch.empty(0, 0, 0))
        self.layers = tuple(layers)  # in the order of concatenation

    def put(self, slots: Sequence[int], starts: Sequence[int], inputs: Sequence[Tensor]) -> None:
        """Write the inputs [B, n, E] of each layer; row b to row slots[b] of the cache, from place starts[b] on."""
        concatenated = torch.cat(list(inputs), -1)
        n = concatenated.shape[1]
        if not self.held.numel():
            super().__init__(concatenated)
        self.reserve(max(slots) + 1, max(starts) + n)
        for slot, start, values in zip(slots, starts, concatenated, strict=True):
            self.held[slot, start : start + n] = values


def layers_of(model: PreTrainedModel) -> tuple[str, nn.ModuleList]:
    """Return the name of the model's list of layers, and the list. Raises ModelError if it is not found."""
    count = getattr(model.config.get_text_config(), "num_hidden_layers", 0)
    decoder = set(model.get_decoder().modules())  # an image encoder may have as many layers
    lists = [(name, each) for name, each in model.named_modules() if isinstance(each, nn.ModuleList)]
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
    if (count := max(layers, default=0)) == model.config.get_text_config().num_hidden_layers:

        def collect(_: object, __: object, output: Tensor | tuple[Tensor, ...]) -> None:
            states[count] = output if isinstance(output, Tensor) else output[0]

        hooks.append(layers_of(model)[1][-1].register_forward_hook(collect))
    if NORMED in layers:
        hooks.append(model.base_model.register_forward_hook(lambda _, __, output: states.update({NORMED: output[0]})))
    try:
        yield states
    finally:
        for hook in hooks:
            hook.remove()


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
        """Create a mask from W bytes, 1 or 0, for each of n tokens per text and `depths` [B, n] from `begins` on."""
        positions = [[begin + depth for depth in own] for begin, own in zip(begins, depths, strict=True)]
        seen = np.frombuffer(b"".join(b"".join(rows) for rows in sees), bool).copy()
        return cls(begins, sent(seen.reshape(len(sees), len(sees[0]), -1), device), sent(positions, device))

    def part(self, texts: slice, cut: int, end: int) -> TreeMask:
        begins = self.begins[texts]
        if (len(begins), end - cut) == self.sees.shape[:2]:
            return self
        return TreeMask(begins, self.sees[texts, cut:end], self.positions[texts, cut:end])

    def arranged(self, order: Sequence[int]) -> TreeMask:
        places = list(order)
        if places == list(range(len(self.begins))):
            return self
        return TreeMask([self.begins[i] for i in places], self.sees[places], self.positions[places])

    def added(self, end: int, dtype: torch.dtype) -> Tensor:
        """Return [B, n, end], to be added to a token's scores of the first places: 0 if it sees the place or -inf."""
        b, n, width = self.sees.shape
        added = torch.full((b, n, end), -torch.inf, dtype=dtype, device=self.sees.device)
        for text, begin, seen in zip(added, self.begins, self.sees, strict=True):
            text[:, :begin] = 0
            text[:, begin : begin + width].masked_fill_(seen[:, : end - begin], 0)
        return added
