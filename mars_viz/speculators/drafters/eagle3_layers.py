"""Hidden states of its target that an EAGLE-3 head reads, from the numbers in its configuration.

Here a layer's number means its input, as in speculators and vLLM: 0 is the embedding, L the last layer's output before
the last norm. SpecForge and ModelOpt write the numbers of layers whose output is read, one less, into `eagle_config`;
other heads, such as gpt-oss-120b-Eagle3-v3, have numbers of inputs there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mars_viz.errors import ModelError
from mars_viz.speculators.drafters.eagle3_shapes import TargetShape
from mars_viz.speculators.networks.layer_inputs import NORMED

KEY = "eagle_aux_hidden_state_layer_ids"


@dataclass(frozen=True, slots=True)
class Reading:
    """Hidden states that a head may read."""

    layers: tuple[int, ...]
    """In the order of concatenation; 0 to L, or `NORMED`."""
    count: int
    """L, the target's number of layers."""
    guess: str = ""
    """Reason why these may be wrong, as the end of a sentence; empty if the configuration is clear."""

    @property
    def words(self) -> str:
        """In words: 'inputs of layers 2, 16 and 29'."""
        if self.layers == (NORMED,):
            return "output of the last norm"
        *most, last = map(str, self.layers)
        which = f"inputs of layers {', '.join(most)} and {last}" if most else f"input of layer {last}"
        return which + f" ({self.count}: the last layer's output, before the last norm)" * (self.count in self.layers)

    @property
    def setting(self) -> str:
        """The entry of config.json that names them."""
        if self.layers == (NORMED,):
            return '"use_aux_hidden_state": false'
        return f'"{KEY}": {json.dumps(self.layers)}'

    @property
    def others(self) -> tuple[Reading, ...]:
        """Equally many other hidden states that a head may have been trained on: neighbours, and usual choices."""
        count = self.count
        shifted = [tuple(layer + by for layer in self.layers) for by in (-1, 1) if self.layers != (NORMED,)]
        usual = [_usual(count), (2 * count // 3, 5 * count // 6, count), (NORMED,), (count,), (count - 1,)]
        fit = [
            layers
            for layers in dict.fromkeys((*shifted, *usual))
            if len(layers) == len(self.layers) == len(set(layers))
            and layers != self.layers
            and (layers == (NORMED,) or all(0 <= layer <= count for layer in layers))
        ]
        return tuple(Reading(layers, count) for layers in fit)


def reading_of(config: Mapping[str, Any], last_alone: bool, target: TargetShape, head: str) -> Reading:
    """Return the reading in a head's configuration, the last hidden state only if `last_alone`. Raises ModelError for
    numbers that are no layers of the target."""
    count, guess = target.layers, ""
    if last_alone:
        return Reading((NORMED,), count)
    nested = config.get("eagle_config")
    inner = _listed(nested, head) if isinstance(nested, dict) else ()
    outer = _listed(config, head)
    following = tuple(layer + 1 for layer in inner)  # inputs, if the list names outputs
    if outer:
        layers = outer
        if inner and outer not in (inner, following):
            raise ModelError(
                f"The config.json of {head} names layers {list(outer)} ({KEY}), but its eagle_config names "
                f"{list(inner)}; leave the list out that the head was not trained with."
            )
    elif inner:
        layers = inner if max(following) > count or inner == _usual(count) else following
        if layers == following != _usual(count):
            guess = (
                f"{list(inner)} in its eagle_config is read as outputs, as SpecForge and ModelOpt write them; vLLM "
                "reads it as inputs"
            )
    else:
        layers, guess = _usual(count), "its config.json names none, and these are EAGLE-3's own choice"
    if len(set(layers)) < len(layers):
        raise ModelError(f"The config.json of {head} names the layers {list(layers)}; name different ones.")
    if wrong := [layer for layer in layers if not 0 <= layer <= count]:
        raise ModelError(
            f"{head} reads the input of layer {wrong[0]}, but {target.name} has {count} layers (0 to {count - 1}, and "
            f"{count} for the last one's output); take the target that the head was trained for, or name its layers in "
            f"its config.json ({KEY})."
        )
    return Reading(layers, count, guess)


def _usual(count: int) -> tuple[int, ...]:
    """Return SafeAILab's choice; with few layers some coincide."""
    return tuple(dict.fromkeys((2, count // 2, count - 3)))


def _listed(config: Mapping[str, Any], head: str) -> tuple[int, ...]:
    """Return the layers named in the configuration; may be empty."""
    listed = config.get(KEY, [])
    if listed is None:
        return ()
    if not isinstance(listed, list) or any(isinstance(each, bool) or not isinstance(each, int) for each in listed):
        raise ModelError(f"{KEY} in the config.json of {head} is no list of whole numbers.")
    return tuple(listed)
