"""From logits to the law that is sampled from, and from a law and a uniform to a token. Imports tensors only."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from mars_viz.run import Settings
from mars_viz.speculators.devices import fetched, sent


def law(logits: Tensor, settings: Settings) -> Tensor:
    """Return probabilities [..., V] after temperature, then top-k, then top-p, as transformers' warpers order and
    define them.

    Of entries equal to the last one, top-k keeps all and top-p the lower ids. top-p uses the logits before the
    temperature's rounding, so the remaining tokens are always the first in the order of `topk`. Temperature 0 has no
    law to sample from; it gives the plain softmax.
    """
    if settings.temperature == 0:
        return torch.softmax(logits, -1)
    scaled = logits / settings.temperature
    if 0 < settings.top_k < logits.shape[-1]:
        worse = scaled < scaled.topk(settings.top_k, -1).values[..., -1:]
        scaled = scaled.masked_fill(worse, -torch.inf)
        if settings.top_p < 1:
            logits = logits.masked_fill(worse, -torch.inf)  # many equals are sorted fast
    if settings.top_p < 1:
        ordered, ids = torch.sort(logits, dim=-1, descending=True, stable=True)
        ordered = ordered / settings.temperature
        p = ordered.softmax(-1)
        beyond = p.cumsum(-1) - p >= settings.top_p
        beyond[..., 0] = False  # rounding must not empty the law
        scaled = scaled.scatter(-1, ids, ordered.masked_fill(beyond, -torch.inf))
    return torch.softmax(scaled, -1)


def draw(mass: Tensor, uniforms: Tensor) -> Tensor:
    """Draw by inverse transform: one id per row of `mass` [..., V] (not necessarily normalised) and uniform [...]. An
    entry without mass is never drawn."""
    cumulative = mass.to(wide(mass.device)).cumsum(-1)
    at = uniforms.to(cumulative.dtype).unsqueeze(-1) * cumulative[..., -1:]
    drawn: Tensor = torch.searchsorted(cumulative, at, right=True).squeeze(-1)
    return drawn.clamp_(max=mass.shape[-1] - 1)


def wide(device: torch.device) -> torch.dtype:
    """Return float64, or float32 on a device that lacks it."""
    return torch.float32 if device.type == "mps" else torch.float64


def on_device(uniforms: np.ndarray, device: torch.device) -> Tensor:
    """Return keyed uniforms, float64, as a tensor on the device."""
    return sent(uniforms, device, wide(device))


def to_host(found: dict[str, Tensor]) -> dict[str, np.ndarray]:
    """Copy all tensors to the host in one transfer."""
    if next(iter(found.values())).device.type == "cpu":  # all of them are on one
        return {name: t.numpy() for name, t in found.items()}
    raw = fetched(torch.cat([t.contiguous().view(torch.uint8).flatten() for t in found.values()]))
    host, at = {}, 0
    for name, t in found.items():
        size = t.numel() * t.element_size()
        dtype = str(t.dtype).removeprefix("torch.")
        host[name] = raw[at : at + size].view(dtype).reshape(tuple(t.shape))
        at += size
    return host
