"""Failures of a device: out of memory, or no answer. Each becomes one sentence with a remedy."""

from __future__ import annotations

from types import TracebackType

import torch

from mars_viz.errors import DeviceLost, ModelError

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


def lost(error: Exception) -> DeviceLost:
    """Return the error for a lost device."""
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    return DeviceLost(
        f"The device does not answer any more ({reason}). Try again, in a new process: the app starts one by itself. "
        "If it comes back, look after the device and its driver, or decode on the CPU (--device cpu)."
    )
