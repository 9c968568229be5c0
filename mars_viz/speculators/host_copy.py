"""Small copies to and from a device without waiting.

A copy from ordinary memory makes the host wait until the device has finished all earlier work; one from pinned memory
is queued.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


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
