"""The largest entries of many long rows, and how many lie above a value. Knows tensors only."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

COLUMN = 16
"""Entries that are looked through together; the fastest for vocabularies of ten thousands and up."""
SHORT = 1 << 13
"""Entries of a row up to which one search is faster than the two."""


@dataclass(frozen=True, slots=True)
class Largest:
    """The k largest entries of every row, largest first."""

    values: Tensor
    """[..., k]."""
    ids: Tensor
    """int64 [..., k]; where they stand in the row."""


def largest(rows: Tensor, count: int) -> Largest:
    """The `count` largest entries of rows [..., V], or all V; a NaN counts as the largest of all.

    The largest entries lie in the columns with the largest maxima: two small searches in place of a long one. Which of
    several equals of the last one are among them is left open.
    """
    size = rows.shape[-1]
    if size <= SHORT or size % COLUMN or size // COLUMN < count:
        values, ids = rows.topk(min(count, size), -1)
        return Largest(values, ids)
    columns = rows.reshape(*rows.shape[:-1], COLUMN, -1)  # [..., 16, V / 16]; a column is what is one below the other
    places = columns.amax(-2).topk(count, -1, sorted=False).indices  # [..., k]
    picked = columns.gather(-1, places.unsqueeze(-2).expand(*places.shape[:-1], COLUMN, count))
    values, at = picked.flatten(-2).topk(count, -1)
    ids = places.gather(-1, at % count).add_(at.div_(count, rounding_mode="floor"), alpha=columns.shape[-1])
    return Largest(values, ids)


def count_above(rows: Tensor, bounds: Tensor) -> Tensor:
    """int64 [...]; entries of each row [..., V] that are larger than its bound [..., 1]."""
    above = torch.empty_like(rows)  # counting floats is several times faster than counting truths
    return torch.gt(rows, bounds, out=above).sum(-1).long()
