"""The order of a row's entries: the larger first, and of equals the one with the lower id. Knows tensors only.

Whoever asks for the best token, for the best few or for a token's rank asks here. Equals are common: in bfloat16,
logits from 8 to 16 are a sixteenth apart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

COLUMN = 16
"""Entries that are looked through together; the fastest for vocabularies of ten thousands and up."""
SHORT = 1 << 13
"""Entries of a row up to which one search is faster than the two."""


@dataclass(frozen=True, slots=True)
class Largest:
    """The k first entries of every row."""

    values: Tensor
    """[..., k]; in order."""
    ids: Tensor
    """int64 [..., k]; where they stand in the row."""
    tied: Tensor | None = None
    """bool [..., k]; whether an entry equals the next one: of equals the order is open, and which of them are among the
    first k. None where nothing is open."""


def best(rows: Tensor) -> Tensor:
    """int64 [...]; the first entry of rows [..., V]: of several largest ones NumPy's argmax and torch.max promise the
    lowest id.

    On a processor the one takes a quarter to three quarters of the other's time, and torch's argmax more than both.
    """
    if rows.device.type == "cpu":
        return torch.from_numpy(np.asarray(rows.numpy().argmax(-1)))
    return rows.max(-1).indices


def largest(rows: Tensor, count: int) -> Largest:
    """The `count` first entries of rows [..., V], or all V; a NaN counts as the largest of all.

    On the CPU nothing is left open. Elsewhere asking whether there are equals would be waiting for the device: there
    `tied` is to be asked when it has come to the host with all else, and `settled` does the rest.
    """
    values, ids = _search(rows, count + 1)
    first = Largest(values[..., :count], ids[..., :count])
    here = rows.device.type == "cpu"
    if here and not _equals(values.numpy()):
        return first
    found = replace(first, tied=values[..., 1:] == values[..., :-1])
    return settled(rows, found) if here else found


def _equals(values: np.ndarray) -> bool:
    """True where an entry [..., K] equals the next one; NumPy's operations take a third of PyTorch's time to start."""
    return bool((values[..., 1:] == values[..., :-1]).any())


def settled(rows: Tensor, found: Largest) -> Largest:
    """What `largest` found in rows [..., V], with nothing left open."""
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
    """int64 [..., C]; how many entries of rows [..., V] stand before those at `ids` [..., C], and one.

    `first` are the row's first entries, [..., k], of which on a CPU the order must be settled.
    """
    if rows.device.type == "cpu":
        return torch.from_numpy(_ranks(rows.numpy(), ids.numpy(), first.numpy()))
    return torch.stack([_rank_there(rows, one) for one in torch.split(ids, 1, -1)], -1)


def _search(rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Values and ids of `count` entries than which none is larger, largest first.

    They lie in the columns with the largest maxima: two small searches in place of a long one.
    """
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
    """int64 [M, count]; the lowest ids of equals of the values [M, 1] in the rows at [M] of rows [R, V]."""
    found, table = np.zeros((len(at), count), np.int64), rows.numpy()  # NumPy makes no tables as large as the rows
    for place, (row, value) in enumerate(zip(at.tolist(), values.tolist(), strict=True)):
        equals = np.flatnonzero(table[row] == np.float32(value))[:count]
        found[place, : len(equals)] = equals
    return torch.from_numpy(found)


def _lowest_there(rows: Tensor, at: Tensor, values: Tensor, count: int) -> Tensor:
    """`_lowest`, on any device."""
    falling = torch.arange(rows.shape[-1], 0, -1, dtype=torch.float32, device=rows.device)  # exact up to 2^24
    return _search((rows[at] == values) * falling, count)[1]


def _ranks(rows: np.ndarray, ids: np.ndarray, first: np.ndarray) -> np.ndarray:
    """`ranks`, by the lists, and counted where a token is not listed."""
    listed = first[..., None, :] == ids[..., None]  # [..., C, k]
    found = np.where(listed.any(-1), listed.argmax(-1) + 1, 0)
    for place in zip(*np.nonzero(found == 0), strict=True):
        row, token = rows[place[:-1]], ids[place]
        found[place] = 1 + np.count_nonzero(row[:token] >= row[token]) + np.count_nonzero(row[token:] > row[token])
    return found


def _rank_there(rows: Tensor, ids: Tensor) -> Tensor:
    """int64 [...]; `ranks` of one token a row, [..., 1], on any device, without waiting for it."""
    values = rows.gather(-1, ids)
    lower = torch.arange(rows.shape[-1], device=rows.device) < ids
    return ((rows > values) | (rows == values) & lower).sum(-1) + 1
