"""Row counts at which a row's result depends neither on the count nor on the row's place.

Libraries use different kernels for few rows, for remainders of blocks and for a thread's share, and each rounds
differently. Counts are compared by trial on this machine: each computes the same few rows repeatedly, and counts are
alike if the results are the same, bit for bit, at all places. Knows matrices and attention; knows no models and no
texts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from itertools import groupby

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention, silu

from mars_viz.speculators.threads import sharing_cores

MOST = 256  # most rows of a pass; more hardly reduce the time per row
TRIED = (*range(1, 33), *range(36, 65, 4), *range(80, 129, 16), *range(160, MOST + 1, 32))
"""Counts that a pass may have."""
ASKED = tuple(count for count in TRIED if count <= 128)
"""Counts of a text's queries that are tried: PyTorch's attention uses blocks of 32, larger ones from 192 on."""
SPARSE = (*range(1, 33), 40, 48, 56, 64, 96, 128, 192, MOST)
"""Counts that are tried of the matrix of the logits, the largest one."""
LIKELY = (*range(1, 9), 16, 32, 64)
"""Frequent counts, by which a class of like counts is chosen: drafting, verifying, batches and prompts."""
DIFFERENT = 16  # rows used to compare counts: kernels that differ in few columns may give equal bits for one row
CALL = 10  # fixed cost of a pass, in rows
TILE = 64  # keys are read in multiples of this
BLOCK = 512  # keys that PyTorch's attention processes at a time: further keys do not change the sum over these


def product(rows: Tensor, matrix: Tensor, onto: Tensor | None) -> Tensor:
    """Return rows [R, E] times a matrix [E, N], plus `onto` [R, N]."""
    return torch.mm(rows, matrix) if onto is None else torch.addmm(onto, rows, matrix)


def gated(gate_up: Tensor) -> Tensor:
    """Return [R, I], the SiLU of the gates times the gated values, from [R, 2 I]."""
    gate, up = gate_up.chunk(2, -1)
    return silu(gate).mul_(up)


def attention(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Attend with queries [B, H, n, D] to keys and values [B, G, end, D], adding `mask` [B, 1, n, end] to scores."""
    grouped = keys.shape[1] < queries.shape[1]
    return scaled_dot_product_attention(queries, keys, values, attn_mask=mask, enable_gqa=grouped)


@dataclass(frozen=True, slots=True)
class Kernels:
    """Arithmetic functions, which tests may replace."""

    product: Callable[[Tensor, Tensor, Tensor | None], Tensor] = product
    attention: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] = attention


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of rows at which each row's result is the same, at any place."""

    alike: tuple[int, ...]  # ascending

    @property
    def most(self) -> int:
        """Largest count."""
        return self.alike[-1]

    def at_least(self, count: int) -> int:
        """Return the smallest count that is at least `count`, which is at most `most`."""
        return self.alike[bisect_left(self.alike, count)]

    @property
    def cost(self) -> int:
        """Cost of computing the frequent counts, in rows."""
        full_passes = sum(count // self.most * (self.most + CALL) for count in LIKELY)
        return full_passes + sum(self.at_least(count % self.most) + CALL for count in LIKELY if count % self.most)

    def __str__(self) -> str:
        least, *more = self.alike
        if self.alike in (counts[counts.index(least) :] for counts in (TRIED, ASKED, SPARSE)):
            return f"{least} and more"
        return ", ".join(map(str, [least, *more[:2]])) + (f", … {self.most}" if more[2:] else "")


@dataclass(frozen=True, slots=True)
class Batching:
    """How passes are cut and padded so that each row's result does not depend on its batch."""

    rows: Counts  # for the products with the layers' matrices
    logits: Counts  # for the product that computes logits
    queries: Counts  # for a text's queries in attention
    near: int
    """Keys up to which results are equal at multiples of `TILE`; beyond, they are equal at multiples of `BLOCK`."""

    def __str__(self) -> str:
        return f"products of {self.rows} rows, logits of {self.logits}, attention of {self.queries} queries"

    def end(self, places: int) -> int:
        """Return the number of keys to read so that the first `places` are included."""
        step = TILE if places <= self.near else BLOCK
        return -(-places // step) * step

    def groups(self, starts: Sequence[int], n: int) -> Iterator[tuple[slice, tuple[int, ...]]]:
        """Yield consecutive texts that are read together, and the cuts between their n tokens, including 0 and n. Text
        i is read from starts[i] on."""
        if len(starts) == 1:
            yield slice(0, 1), self._cuts(starts[0], n)
            return
        keyed = groupby(range(len(starts)), key=lambda i: (starts[i] < self.near, self._cuts(starts[i], n)))
        for (_, cuts), indices in keyed:
            texts = list(indices)
            step = max(1, self.rows.most // max(after - before for before, after in zip(cuts, cuts[1:], strict=False)))
            for first in range(0, len(texts), step):
                yield slice(texts[first], texts[min(first + step, len(texts)) - 1] + 1), cuts

    def _cuts(self, start: int, n: int) -> tuple[int, ...]:
        most = min(self.rows.most, self.queries.most)
        if n <= most and not start < self.near < start + n:
            return 0, n
        border = [self.near - start] if start < self.near < start + n else []
        return tuple(sorted({0, *range(most, n, most), *border, n}))


@dataclass(frozen=True, slots=True)
class Heads:
    """Heads of attention."""

    queries: int  # H
    keys: int  # G
    size: int  # D


def invariant(
    kernels: Kernels, qkv: Tensor, gate_up: Tensor, added: Sequence[Tensor], head: Tensor, heads: Heads
) -> Batching:
    """Find the batching on this machine, with the present number of threads, for a layer's matrices [E, N]. Products
    with matrices in `added` are added onto rows; `head` computes logits."""
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(DIFFERENT, heads.queries, heads.size, generator=generator)
    past = torch.randn(1, BLOCK, 2 * heads.keys, heads.size, generator=generator).transpose(1, 2)

    @cache
    def different(width: int) -> Tensor:
        return torch.randn(DIFFERENT, width, generator=torch.Generator().manual_seed(width))

    def multiplied(taken: Tensor) -> Iterator[Tensor]:
        yield kernels.product(different(len(qkv))[taken], qkv, None)
        gates = kernels.product(different(len(gate_up))[taken], gate_up, None)
        yield gates
        yield gated(gates)  # threads take parts of it that may end within a row
        for matrix in added:
            yield kernels.product(different(len(matrix))[taken], matrix, different(matrix.shape[1])[taken])

    def made_logits(taken: Tensor) -> Iterator[Tensor]:
        yield kernels.product(different(len(head))[taken], head, None)

    def attended(taken: Tensor, seen: int, end: int) -> Tensor:
        asked = query[taken].transpose(0, 1).unsqueeze(0)  # [1, H, count, D]
        mask = torch.full((1, 1, len(taken), end), -torch.inf)
        mask[..., :seen] = 0
        keys, values = past[:, : heads.keys, :end], past[:, heads.keys :, :end]
        mixed = kernels.attention(asked, keys, values, mask)
        return mixed[0].transpose(0, 1)  # [count, H, D]

    queries = alike(lambda taken: (attended(taken, end - 9, end) for end in (TILE, 4 * TILE)), ASKED)
    near = _near(lambda seen, end: attended(torch.arange(queries.at_least(1)) % DIFFERENT, seen, end))
    return Batching(alike(multiplied), alike(made_logits, SPARSE), queries, near)


def alike(computed: Callable[[Tensor], Iterator[Tensor]], tried: Sequence[int] = TRIED) -> Counts:
    """Return the cheapest class of counts at which `computed` gives the same results. `computed` receives indices int64
    [count] of the `DIFFERENT` rows and yields results [count, …]."""
    classes: dict[bytes, list[int]] = {}
    for count in tried:
        if (result := _result(computed, count)) is not None:
            classes.setdefault(result, []).append(count)
    return min((Counts(tuple(counts)) for counts in classes.values()), key=lambda counts: counts.cost)


def _result(computed: Callable[[Tensor], Iterator[Tensor]], count: int) -> bytes | None:
    """Return a digest of each row's results at this count, each row at two places at least; None if places matter."""
    first: list[Tensor] = []
    seen = torch.zeros(DIFFERENT, dtype=torch.bool)
    for turn in range(max(2, -(-DIFFERENT // count))):
        begin = turn * min(count, DIFFERENT // 2)
        taken = torch.arange(begin, begin + count) % DIFFERENT  # the different rows in turn
        unseen = (~seen[taken]).nonzero().squeeze(-1)
        with sharing_cores():
            results = list(computed(taken))
        for i, rows in enumerate(results):
            if i == len(first):
                first.append(rows.new_empty(DIFFERENT, *rows.shape[1:]))
            if len(unseen):
                first[i][taken[unseen]] = rows[unseen]
            if not torch.equal(rows, first[i][taken]):
                return None
        seen[taken] = True
    digest = sha256()
    for result in first:
        digest.update(result.numpy().tobytes())
    return digest.digest()


def _near(attended: Callable[[int, int], Tensor]) -> int:
    """Return up to how many keys attention to the first `seen` of `end` keys does not depend on `end`."""
    first: dict[int, Tensor] = {}
    for end in range(TILE, BLOCK + 1, TILE):
        for seen in range(TILE, end + 1, TILE):
            result = attended(seen, end)
            if not torch.equal(first.setdefault(seen, result), result):
                return end - TILE
    return 1 << 30
