"""Small things on their way to and from a device, without waiting for it. Knows tensors and devices only.

A copy from ordinary memory makes the host wait until all that the device was told before is done; one from pinned
memory takes its turn like any other work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


def sent(values: Sequence[Any] | np.ndarray, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """A tensor of these values there, on its way where the device can take it so."""
    here = torch.from_numpy(values) if isinstance(values, np.ndarray) else torch.tensor(values)
    if dtype is not None:
        here = here.to(dtype)
    if device.type != "cuda":
        return here.to(device)
    return here.pin_memory().to(device, non_blocking=True)


def fetched(there: Tensor) -> np.ndarray:
    """The values of a flat tensor, once the device has done all that it was told: the one wait of a round."""
    if there.device.type != "cuda":
        return there.cpu().numpy()
    here = torch.empty_like(there, device="cpu", pin_memory=True)
    here.copy_(there, non_blocking=True)
    arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
    arrived.record(torch.cuda.current_stream(there.device))
    arrived.synchronize()
    return here.numpy()
