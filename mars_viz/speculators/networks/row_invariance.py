"""How many rows are computed at a time so that a row's result depends neither on their count nor on its place.

Libraries take one kernel for few rows, another for what is left over of a block or falls to a thread, and each rounds
in its own way. Which counts agree on this machine is tried out: every count computes the same few rows again and again,
and counts are alike where each of them comes out the same, bit for bit, at all places. Knows matrices and attention;
knows no models and no texts.
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

MOST = 256
"""Rows of a pass; with more, a row takes hardly less time."""
TRIED = (*range(1, 33), *range(36, 65, 4), *range(80, 129, 16), *range(160, MOST + 1, 32))
"""Counts that a pass may have."""
ASKED = tuple(count for count in TRIED if count <= 128)
"""Counts of a text's queries that are tried: PyTorch's attention takes them in blocks of 32, from
192 on in larger ones."""
SPARSE = (*range(1, 33), 40, 48, 56, 64, 96, 128, 192, MOST)
"""Counts that are tried of the matrix that makes logits, the largest."""
LIKELY = (*range(1, 9), 16, 32, 64)
"""Counts that are asked for, by which counts that are alike are chosen: drafting, verifying, batches and prompts."""
DIFFERENT = 16
"""Rows by which counts are told apart: for one row alone, kernels that differ in few columns may give equal bits."""
CALL = 10
"""What a pass costs besides its rows, in rows."""
TILE = 64
"""Keys are read in multiples of this."""
BLOCK = 512
"""Keys that PyTorch's attention takes at a time: beyond it, the next ones do not change how these are summed."""


def product(rows: Tensor, matrix: Tensor, onto: Tensor | None) -> Tensor:
    """Rows [R, E] times a matrix [E, N], added onto [R, N]."""
    return torch.mm(rows, matrix) if onto is None else torch.addmm(onto, rows, matrix)


def gated(gate_up: Tensor) -> Tensor:
    """[R, I] from the gates and what they let through, [R, 2 I]."""
    gate, up = gate_up.chunk(2, -1)
    return silu(gate).mul_(up)


def attention(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Of queries [B, H, n, D] over keys and values [B, G, end, D], with what `mask` [B, 1, n, end] adds."""
    grouped = keys.shape[1] < queries.shape[1]
    return scaled_dot_product_attention(queries, keys, values, attn_mask=mask, enable_gqa=grouped)


@dataclass(frozen=True, slots=True)
class Kernels:
    """What does the arithmetic: the library, or what a test has in its place."""

    product: Callable[[Tensor, Tensor, Tensor | None], Tensor] = product
    """As `product`."""
    attention: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] = attention
    """As `attention`."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of rows at which each row comes out the same, at any place."""

    alike: tuple[int, ...]
    """Ascending."""

    @property
    def most(self) -> int:
        """The largest."""
        return self.alike[-1]

    def at_least(self, count: int) -> int:
        """The smallest that is no smaller than `count`, which is at most `most`."""
        return self.alike[bisect_left(self.alike, count)]

    @property
    def cost(self) -> int:
        """Of computing what is likely to be asked for, in rows."""
        whole = sum(count // self.most * (self.most + CALL) for count in LIKELY)
        return whole + sum(self.at_least(count % self.most) + CALL for count in LIKELY if count % self.most)

    def __str__(self) -> str:
        least, *more = self.alike
        if self.alike in (tried[tried.index(least) :] for tried in (TRIED, ASKED, SPARSE)):
            return f"{least} and more"
        return ", ".join(map(str, [least, *more[:2]])) + (f", … {self.most}" if more[2:] else "")


@dataclass(frozen=True, slots=True)
class Batching:
    """How a pass is cut and filled up so that each row's result is the one it has in any other batch."""

    rows: Counts
    """Of the products with the layers' matrices."""
    logits: Counts
    """Of the product that makes logits."""
    queries: Counts
    """Of a text, in attention."""
    near: int
    """Keys up to which their number makes no difference in multiples of `TILE`; beyond, it makes none in multiples of
    `BLOCK`."""

    def __str__(self) -> str:
        return f"products of {self.rows} rows, logits of {self.logits}, attention of {self.queries} queries"

    def end(self, places: int) -> int:
        """Keys to be read, where the last of them is the one at `places` - 1."""
        step = TILE if places <= self.near else BLOCK
        return -(-places // step) * step

    def groups(self, starts: Sequence[int], n: int) -> Iterator[tuple[slice, tuple[int, ...]]]:
        """Neighbouring texts that are read together, of those from which n tokens each are read from `starts` on; and
        where their tokens are cut, 0 and n included."""
        if len(starts) == 1:
            yield slice(0, 1), self._cuts(starts[0], n)
            return
        keyed = groupby(range(len(starts)), key=lambda i: (starts[i] < self.near, self._cuts(starts[i], n)))
        for (_, cuts), found in keyed:
            texts = list(found)
            step = max(1, self.rows.most // max(after - before for before, after in zip(cuts, cuts[1:], strict=False)))
            for at in range(0, len(texts), step):
                yield slice(texts[at], texts[min(at + step, len(texts)) - 1] + 1), cuts

    def _cuts(self, start: int, n: int) -> tuple[int, ...]:
        most = min(self.rows.most, self.queries.most)
        if n <= most and not start < self.near < start + n:
            return 0, n
        border = [self.near - start] if start < self.near < start + n else []
        return tuple(sorted({0, *range(most, n, most), *border, n}))


@dataclass(frozen=True, slots=True)
class Heads:
    """Of attention."""

    queries: int
    """H."""
    keys: int
    """G."""
    size: int
    """D."""


def invariant(
    kernels: Kernels, qkv: Tensor, gate_up: Tensor, added: Sequence[Tensor], head: Tensor, heads: Heads
) -> Batching:
    """What holds on this machine, with the threads that are in use, for a layer's matrices [E, N], `added` being those
    whose products are added onto rows, and for the one that makes logits."""
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(DIFFERENT, heads.queries, heads.size, generator=generator)
    past = torch.randn(1, BLOCK, 2 * heads.keys, heads.size, generator=generator).transpose(1, 2)

    @cache
    def different(width: int) -> Tensor:
        return torch.randn(DIFFERENT, width, generator=torch.Generator().manual_seed(width))

    def rows(width: int, taken: Tensor) -> Tensor:
        return different(width)[taken]

    def multiplied(taken: Tensor) -> Iterator[Tensor]:
        yield kernels.product(rows(qkv.shape[0], taken), qkv, None)
        gates = kernels.product(rows(gate_up.shape[0], taken), gate_up, None)
        yield gates
        yield gated(gates)  # threads take parts of it that may end within a row
        for matrix in added:
            yield kernels.product(rows(matrix.shape[0], taken), matrix, rows(matrix.shape[1], taken))

    def made_logits(taken: Tensor) -> Iterator[Tensor]:
        yield kernels.product(rows(head.shape[0], taken), head, None)

    def attended(taken: Tensor, seen: int, end: int) -> Tensor:
        asked = query[taken].transpose(0, 1).unsqueeze(0)  # [1, H, count, D]
        mask = torch.full((1, 1, len(taken), end), -torch.inf)
        mask[..., :seen] = 0
        keys, values = past[:, : heads.keys, :end], past[:, heads.keys :, :end]
        mixed = kernels.attention(asked, keys, values, mask)
        return mixed[0].transpose(0, 1)  # [count, H, D]

    queries = alike(lambda taken: (attended(taken, end - 9, end) for end in (TILE, 4 * TILE)), ASKED)
    near = _near(lambda seen, end: attended(_taken(0, queries.at_least(1)), seen, end))
    return Batching(alike(multiplied), alike(made_logits, SPARSE), queries, near)


def alike(computed: Callable[[Tensor], Iterator[Tensor]], tried: Sequence[int] = TRIED) -> Counts:
    """The counts to be taken, where `computed` gives what comes of rows, [count, …] each time; it is told which of the
    `DIFFERENT` ones, int64 [count]."""
    classes: dict[bytes, list[int]] = {}
    for count in tried:
        if (result := _result(computed, count)) is not None:
            classes.setdefault(result, []).append(count)
    return min((Counts(tuple(counts)) for counts in classes.values()), key=lambda counts: counts.cost)


def _result(computed: Callable[[Tensor], Iterator[Tensor]], count: int) -> bytes | None:
    """What comes of each row at this count, each place having had at least two of them; None where it matters at which
    place a row is."""
    first: list[Tensor] = []
    known = torch.zeros(DIFFERENT, dtype=torch.bool)
    for turn in range(max(2, -(-DIFFERENT // count))):
        taken = _taken(turn * min(count, DIFFERENT // 2), count)
        fresh = (~known[taken]).nonzero().squeeze(-1)
        with sharing_cores():
            results = list(computed(taken))
        for i, found in enumerate(results):
            if i == len(first):
                first.append(found.new_empty(DIFFERENT, *found.shape[1:]))
            if len(fresh):
                first[i][taken[fresh]] = found[fresh]
            if not torch.equal(found, first[i][taken]):
                return None
        known[taken] = True
    digest = sha256()
    for each in first:
        digest.update(each.numpy().tobytes())
    return digest.digest()


def _taken(begin: int, count: int) -> Tensor:
    """int64 [count]; the different rows in turn."""
    return torch.arange(begin, begin + count) % DIFFERENT


def _near(attended: Callable[[int, int], Tensor]) -> int:
    """Up to how many keys attention to the first `seen` of `end` keys is the same whatever their end."""
    first: dict[int, Tensor] = {}
    for end in range(TILE, BLOCK + 1, TILE):
        for seen in range(TILE, end + 1, TILE):
            found = attended(seen, end)
            if not torch.equal(first.setdefault(seen, found), found):
                return end - TILE
    return 1 << 30
