"""From logits to laws and tokens: the order of a row, its law, and draws from it. Imports tensors only.

A row's larger entries are first, and lower ids first among equal ones. All code that needs the best token, the best few
or a token's rank uses this module. Equal logits are common: in bfloat16, logits from 8 to 16 are a sixteenth apart.
"""

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
    temperature's rounding, so the remaining tokens are always the first in the order of `largest`. Temperature 0 has no
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
    """Draw an id per row of `mass` [..., V], normalised or not, by uniforms [...]; never one without mass."""
    cumulative = mass.cumsum(-1, dtype=wide(mass.device))
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


def best(rows: Tensor) -> Tensor:
    """Return the first entry of rows [..., V], int64 [...]; NumPy's argmax and torch.max give the lowest id of several.
    On a processor NumPy takes a quarter to three quarters of torch.max's time, and torch's argmax more than both."""
    if rows.device.type == "cpu":
        return torch.from_numpy(np.asarray(rows.numpy().argmax(-1)))
    return rows.max(-1).indices


def largest(rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return values and int64 ids [..., count] of the first entries of float32 rows [..., V], or of all V; NaN counts
    as the largest. Never waits for another device than the CPU."""
    if rows.device.type == "cpu":
        values, ids = rows.topk(min(count + 1, rows.shape[-1]), -1)
        there = values.numpy()  # NumPy's operations start three times as fast as PyTorch's
        if not (there[..., 1:] == there[..., :-1]).any():
            return values[..., :count], ids[..., :count]
    ids = _distinct(rows).topk(min(count, rows.shape[-1]), -1).indices
    return rows.gather(-1, ids), ids


def _distinct(rows: Tensor) -> Tensor:
    """Return int64 keys in the order of the float32 rows, greater for the lower id of equal entries."""
    inf = torch.inf
    bits = (rows.nan_to_num(inf, inf, -inf) + 0.0).view(torch.int32)  # 0.0 and -0.0 are equal
    ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return torch.add(torch.arange(rows.shape[-1] - 1, -1, -1, device=rows.device), ordered, alpha=1 << 32)


def ranks(rows: Tensor, ids: Tensor, first: Tensor) -> Tensor:
    """Return one plus the number of entries of rows [..., V] before those at `ids` [..., C], int64 [..., C]. `first`
    are the row's first entries, [..., k]; on a CPU their order must be settled."""
    if rows.device.type != "cpu":
        return torch.stack([_rank_there(rows, column) for column in torch.split(ids, 1, -1)], -1)
    table, tokens = rows.numpy(), ids.numpy()
    listed = first.numpy()[..., None, :] == tokens[..., None]  # [..., C, k]
    positions = np.where(listed.any(-1), listed.argmax(-1) + 1, 0)
    for place in zip(*np.nonzero(positions == 0), strict=True):  # tokens that are not listed: by counting
        row, token = table[place[:-1]], tokens[place]
        positions[place] = 1 + np.count_nonzero(row[:token] >= row[token]) + np.count_nonzero(row[token:] > row[token])
    return torch.from_numpy(positions)


def _rank_there(rows: Tensor, ids: Tensor) -> Tensor:
    """Return `ranks` of one token per row, [..., 1], on any device without waiting for it; int64 [...]."""
    values = rows.gather(-1, ids)
    lower = torch.arange(rows.shape[-1], device=rows.device) < ids
    return ((rows > values) | (rows == values) & lower).sum(-1) + 1
