"""Devices: their failures, small copies that do not wait, and models spread over several of them.

A copy from ordinary memory makes the host wait until the device has finished all earlier work; one from pinned memory
is queued. accelerate spreads a model over GPUs first, then the machine's memory, then its disk. Its layers' inputs and
caches move from device to device; tokens enter and logits leave on the embedding's device.
"""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from mars_viz.errors import DeviceLost, ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

DeviceMap = str | Mapping[str, str | int]
"""'auto', or a device for each part by name, such as {'model.layers.0': 'cpu', 'model.layers.1': 'disk'}."""
_GONE = ("CUDA error", "HIP error", "CUDA driver", "MPS backend")
"""Parts of messages of errors without a specific class."""


class inference(torch.inference_mode):  # noqa: N801 (it is used as its base is)
    """Inference mode. Raises BadInput if the device runs out of memory, DeviceLost if it no longer answers."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the mode and translate device errors."""
        super().__exit__(kind, error, trace)
        if not isinstance(error, MemoryError | RuntimeError):
            return
        if lacks_memory(error):
            raise ModelError(
                "The device ran out of memory while decoding. Shorten the prompt, ask for fewer tokens or fewer "
                "prompts at once, take a smaller dtype, or decode on the CPU (--device cpu)."
            ) from error
        if is_gone(error):
            raise lost(error) from error


def lacks_memory(error: Exception) -> bool:
    """Return True for PyTorch's out-of-memory errors, which have no specific class on the CPU."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)


def is_gone(error: Exception) -> bool:
    """Return True if the device's driver has failed, so that this process can no longer use it."""
    return isinstance(error, torch.AcceleratorError) or any(words in str(error) for words in _GONE)


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, or the name of its class."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def lost(error: Exception) -> DeviceLost:
    """Return the error for a lost device."""
    return DeviceLost(
        f"The device does not answer any more ({first_line(error)}). Try again, in a new process: the app starts one "
        "by itself. If it comes back, look after the device and its driver, or decode on the CPU (--device cpu)."
    )


def sent(values: Sequence[Any] | np.ndarray, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """Return these values as a tensor on the device, copied asynchronously if possible."""
    host = torch.from_numpy(values) if isinstance(values, np.ndarray) else torch.tensor(values)
    if dtype is not None:
        host = host.to(dtype)
    if device.type != "cuda":
        return host.to(device)
    return host.pin_memory().to(device, non_blocking=True)


def fetched(there: Tensor) -> np.ndarray:
    """Return the values of a flat tensor after all queued work: the one wait of a round."""
    if there.device.type != "cuda":
        return there.cpu().numpy()
    host = torch.empty_like(there, device="cpu", pin_memory=True)
    host.copy_(there, non_blocking=True)
    arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
    arrived.record(torch.cuda.current_stream(there.device))
    arrived.synchronize()
    return host.numpy()


def wait_for(device: torch.device) -> None:
    """Wait until an asynchronous device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


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
    return f"its parts lie on several devices, {', '.join(counts)}; weights on other devices are copied for each pass"
