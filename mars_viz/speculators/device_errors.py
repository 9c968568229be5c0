"""What a device may do instead of answering: run out of memory, or vanish. Each becomes one sentence with the remedy.

Knows what PyTorch raises; knows no models.
"""

from __future__ import annotations

from types import TracebackType

import torch

from mars_viz.errors import DeviceLost, ModelError

_GONE = ("CUDA error", "HIP error", "CUDA driver", "MPS backend")
"""In the message of an error without a class of its own."""


class inference(torch.inference_mode):  # noqa: N801 (it is used as its base is)
    """Inference. Raises BadInput where the device runs out of memory, DeviceLost where it does not answer any more."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the mode, and say what the device's trouble is."""
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
    """True for what PyTorch raises; on the CPU it has no class of its own."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)


def is_gone(error: Exception) -> bool:
    """True where the device's driver has given up, after which nothing more can be asked of it by this process."""
    return isinstance(error, torch.AcceleratorError) or any(words in str(error) for words in _GONE)


def lost(error: Exception) -> DeviceLost:
    """The sentence."""
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    return DeviceLost(
        f"The device does not answer any more ({reason}). Try again, in a new process: the app starts one by itself. "
        "If it comes back, look after the device and its driver, or decode on the CPU (--device cpu)."
    )
