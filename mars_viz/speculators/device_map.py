"""A target spread over several devices by accelerate: GPUs first, then the machine's memory, then its disk.

Its layers' inputs and caches move with the layers from device to device; tokens enter and logits leave on the
embedding's device.
"""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Callable, Mapping

import torch
from transformers import PreTrainedModel

DeviceMap = str | Mapping[str, str | int]
"""'auto', or a device for each part by name, such as {'model.layers.0': 'cpu', 'model.layers.1': 'disk'}."""


def loaded_over(device_map: DeviceMap, load: Callable[..., PreTrainedModel]) -> PreTrainedModel:
    """Load a model with transformers; parts on disk are in a folder that exists as long as the model."""
    folder = tempfile.TemporaryDirectory(prefix="mars-viz-offload-", ignore_cleanup_errors=True)
    try:
        model = load(device_map=device_map, offload_folder=folder.name)
    except BaseException:
        folder.cleanup()
        raise
    weakref.finalize(model, folder.cleanup)
    return model


def is_spread(model: PreTrainedModel) -> bool:
    """Return True if its weights are in several places; a model in a single place counts as any other."""
    return bool(getattr(model, "hf_device_map", None))


def place_of(model: PreTrainedModel) -> torch.device:
    """Return the device of input tokens and logits."""
    hook = getattr(model.get_input_embeddings(), "_hf_hook", None)
    device = getattr(hook, "execution_device", None)
    return model.device if device is None else torch.device(device)


def layout(model: PreTrainedModel) -> str:
    """Return the places of its weights as a clause; empty for a model in one place."""
    if not is_spread(model):
        return ""
    places = [f"cuda:{each}" if isinstance(each, int) else str(each) for each in model.hf_device_map.values()]
    counts = [f"{places.count(each)} on {each}" for each in dict.fromkeys(places)]
    return (
        f"its parts lie on several devices, {', '.join(counts)}; what lies on none that computes is brought each time"
    )
