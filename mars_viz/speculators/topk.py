"""Order of a row's entries: larger first, and lower ids first among equal ones. Imports tensors only.

All code that needs the best token, the best few or a token's rank uses this module. Equal logits are common: in
bfloat16, logits from 8 to 16 are a sixteenth apart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

COLUMN = 16  # entries searched together; the fastest number for vocabularies of ten thousand and more
SHORT = 1 << 13  # row length up to which one search is faster than two


@dataclass(frozen=True, slots=True)
class Largest:
    """The first k entries of every row."""

    values: Tensor  # [..., k]; in order
    ids: Tensor  # int64 [..., k]; their indices in the row
    tied: Tensor | None = None
    """bool [..., k]; True if an entry equals the next one, so that the order of equal ones, and their membership in the
    first k, is open. None if nothing is open."""


def best(rows: Tensor) -> Tensor:
    """Return the first entry of rows [..., V], int64 [...]; NumPy's argmax and torch.max give the lowest id of several.
    On a processor NumPy takes a quarter to three quarters of torch.max's time, and torch's argmax more than both."""
    if rows.device.type == "cpu":
        return torch.from_numpy(np.asarray(rows.numpy().argmax(-1)))
    return rows.max(-1).indices


def largest(rows: Tensor, count: int) -> Largest:
    """Return the first `count` entries of rows [..., V], or all V; NaN counts as the largest.

    On the CPU nothing is left open. Elsewhere a check for equal entries would wait for the device, so `tied` is checked
    on the host with all other data, and `settled` does the rest.
    """
    values, ids = _search(rows, count + 1)
    first = Largest(values[..., :count], ids[..., :count])
    on_cpu = rows.device.type == "cpu"
    if on_cpu:
        there = values.numpy()  # NumPy's operations start three times as fast as PyTorch's
        if not (there[..., 1:] == there[..., :-1]).any():
            return first
    open_ties = replace(first, tied=values[..., 1:] == values[..., :-1])
    return settled(rows, open_ties) if on_cpu else open_ties


def settled(rows: Tensor, found: Largest) -> Largest:
    """Return the result of `largest` in rows [..., V] with nothing left open."""
    if found.tied is None:
        return found
    flat, ids = rows.reshape(-1, rows.shape[-1]), found.ids.reshape(-1, found.ids.shape[-1]).clone()
    cut = found.tied[..., -1].flatten().nonzero().squeeze(-1)  # rows with equals of the last entry that are not listed
    if len(cut):
        values = found.values.reshape(ids.shape)[cut]
        places = torch.arange(ids.shape[-1], device=ids.device) - (values != values[:, -1:]).sum(-1, keepdim=True)
        lowest = (_lowest if rows.device.type == "cpu" else _lowest_there)(flat, cut, values[:, -1:], ids.shape[-1])
        ids[cut] = torch.where(places < 0, ids[cut], lowest.gather(-1, places.clamp_(min=0)))
    ids = ids.sort(dim=-1).values
    ordered, order = flat.gather(-1, ids).sort(dim=-1, descending=True, stable=True)
    return Largest(ordered.view(found.ids.shape), ids.gather(-1, order).view(found.ids.shape))


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


def _search(rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return values and ids of `count` entries, largest first, that no other entry exceeds. They are in the columns
    with the largest maxima: two small searches replace a long one."""
    size = rows.shape[-1]
    if size <= SHORT or size % COLUMN or size // COLUMN < count or not rows.numel():
        values, ids = rows.topk(min(count, size), -1)
        return values, ids
    columns = rows.reshape(*rows.shape[:-1], COLUMN, -1)  # [..., 16, V / 16]; a column is what is one below the other
    places = columns.amax(-2).topk(count, -1, sorted=False).indices  # [..., k]
    picked = columns.gather(-1, places.unsqueeze(-2).expand(*places.shape[:-1], COLUMN, count))
    values, at = picked.flatten(-2).topk(count, -1)
    ids = places.gather(-1, at % count).add_(at.div_(count, rounding_mode="floor"), alpha=columns.shape[-1])
    return values, ids


def _lowest(rows: Tensor, at: Tensor, values: Tensor, count: int) -> Tensor:
    """Return the lowest ids of entries equal to the values [M, 1] in the rows at [M] of rows [R, V], int64 [M,
    count]."""
    lowest, table = np.zeros((len(at), count), np.int64), rows.numpy()  # NumPy makes no tables as large as the rows
    for place, (row, value) in enumerate(zip(at.tolist(), values.tolist(), strict=True)):
        equals = np.flatnonzero(table[row] == np.float32(value))[:count]
        lowest[place, : len(equals)] = equals
    return torch.from_numpy(lowest)


def _lowest_there(rows: Tensor, at: Tensor, values: Tensor, count: int) -> Tensor:
    """Return `_lowest` on any device."""
    falling = torch.arange(rows.shape[-1], 0, -1, dtype=torch.float32, device=rows.device)  # exact up to 2^24
    return _search((rows[at] == values) * falling, count)[1]


def _rank_there(rows: Tensor, ids: Tensor) -> Tensor:
    """Return `ranks` of one token per row, [..., 1], on any device without waiting for it; int64 [...]."""
    values = rows.gather(-1, ids)
    lower = torch.arange(rows.shape[-1], device=rows.device) < ids
    return ((rows > values) | (rows == values) & lower).sum(-1) + 1
