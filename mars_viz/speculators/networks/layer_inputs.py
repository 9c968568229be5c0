"""Inputs of some layers of a model, kept for every token that a cache holds, and how transformers' pass gives the last
two hidden states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from mars_viz.errors import ModelError

NORMED = -1
"""Stands for the output of the last norm, which the output head reads. The number of layers, L, stands for the output
of the last layer before that norm."""

LEAST = 256
"""Places of a row at the least."""


class LayerInputs:
    """The inputs of some layers side by side, by row and place of a cache, which they follow."""

    def __init__(self, layers: Sequence[int] = ()):
        """Keep the inputs of these layers, counted from 0; L and `NORMED` stand for what follows the last one."""
        self.layers = tuple(layers)
        """In the order in which they stand side by side."""
        self._held = torch.empty(0, 0, 0)  # [rows, places, layers · E]

    def __bool__(self) -> bool:
        """False where none is to be kept."""
        return bool(self.layers)

    def put(self, slots: Sequence[int], starts: Sequence[int], inputs: Sequence[Tensor]) -> None:
        """Write what entered each of the layers, [B, n, E] each; row b of the batch to row slots[b] of the cache, from
        place starts[b] on."""
        beside = torch.cat(list(inputs), -1)
        n = beside.shape[1]
        self._open(max(slots) + 1, max(starts) + n, beside)
        for slot, start, made in zip(slots, starts, beside, strict=True):
            self._held[slot, start : start + n] = made

    def of(self, slot: int, begin: int, end: int) -> Tensor:
        """[end - begin, layers · E]; those of a row's places."""
        return self._held[slot, begin:end]

    def copy(self, source: int, slot: int, length: int) -> None:
        """Make row `slot` what row `source` is, up to `length` places."""
        if self:
            self._open(slot + 1, length, self._held)
            self._held[slot, :length] = self._held[source, :length]

    def _open(self, rows: int, places: int, like: Tensor) -> None:
        """Make room for that many, for values like these."""
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
    """Return the list of the model's layers and its name. Raises ModelError if it is not found."""
    count = getattr(model.config.get_text_config(), "num_hidden_layers", 0)
    lists = [(name, each) for name, each in model.named_modules() if isinstance(each, nn.ModuleList)]
    decoder = set(model.get_decoder().modules())  # an image encoder may have as many layers
    found = [(name, each) for name, each in lists if len(each) == count and each in decoder]
    if len(found) > 1:  # such as experts
        found = [(name, each) for name, each in found if isinstance(each[0], GradientCheckpointingLayer)]
    if len(found) != 1:
        raise ModelError(
            f"The layers of {model.config.model_type} are not where they are expected, so no drafter can use them; "
            "take another drafter."
        )
    return found[0]


@contextmanager
def last_states(model: PreTrainedModel, layers: Sequence[int]) -> Iterator[dict[int, Tensor]]:
    """Collect the output of the last layer and of the last norm, each [1, n, E], during one pass, if `layers` asks for
    them. transformers' own hidden_states[L] is after the norm in most models."""
    found: dict[int, Tensor] = {}
    hooks = []
    if max(layers, default=0) == model.config.get_text_config().num_hidden_layers:
        last = layers_of(model)[1][-1]
        hooks.append(last.register_forward_hook(lambda _, __, output: found.update({max(layers): _first(output)})))
    if NORMED in layers:
        hooks.append(model.base_model.register_forward_hook(lambda _, __, output: found.update({NORMED: output[0]})))
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def _first(output: Tensor | tuple[Tensor, ...]) -> Tensor:
    return output if isinstance(output, Tensor) else output[0]
