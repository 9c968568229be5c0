"""A target that accelerate lays over several devices: GPUs first, then the machine's memory, then its disk.

Knows what accelerate leaves of a model; knows no decoding. Its layers' inputs, and what they keep of a text, follow the
layers from device to device; tokens go in, and logits come out, where the embedding is worked.
"""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Callable, Mapping

import torch
from transformers import PreTrainedModel

DeviceMap = str | Mapping[str, str | int]
"""'auto', or a device for each part by its name, such as {'model.layers.0': 'cpu', 'model.layers.1': 'disk'}."""


def loaded_over(device_map: DeviceMap, load: Callable[..., PreTrainedModel]) -> PreTrainedModel:
    """The model that transformers loads so. What goes to the disk lies in a folder that lives as long as the model."""
    folder = tempfile.TemporaryDirectory(prefix="mars-viz-offload-", ignore_cleanup_errors=True)
    try:
        model = load(device_map=device_map, offload_folder=folder.name)
    except BaseException:
        folder.cleanup()
        raise
    weakref.finalize(model, folder.cleanup)
    return model


def is_spread(model: PreTrainedModel) -> bool:
    """True if its weights lie in several places; one that fits into a single one is as any other."""
    return bool(getattr(model, "hf_device_map", None))


def place_of(model: PreTrainedModel) -> torch.device:
    """Where tokens go in and logits come out."""
    hook = getattr(model.get_input_embeddings(), "_hf_hook", None)
    found = getattr(hook, "execution_device", None)
    return model.device if found is None else torch.device(found)


def layout(model: PreTrainedModel) -> str:
    """Where its weights lie, for a sentence; empty of one that is not spread."""
    if not is_spread(model):
        return ""
    places = [f"cuda:{each}" if isinstance(each, int) else str(each) for each in model.hf_device_map.values()]
    counts = [f"{places.count(each)} on {each}" for each in dict.fromkeys(places)]
    return (
        f"its parts lie on several devices, {', '.join(counts)}; what lies on none that computes is brought each time"
    )
