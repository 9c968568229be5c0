"""Inputs of some layers for every token in a cache, and the last two hidden states of transformers' passes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from mars_viz.errors import ModelError

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
