"""Llama's forward pass over a cache of rows with few calls, for models so small that calls cost more than arithmetic.

Every row's result is the same, bit for bit, in any batch and however a text is cut into passes. Libraries use different
kernels for few rows, for remainders of blocks and for a thread's share, and each rounds differently. Counts of rows are
compared by trial on this machine: each computes the same few rows repeatedly, and counts are alike if the results are
the same, bit for bit, at all places.
"""

from __future__ import annotations

import math
import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from itertools import groupby, pairwise

import torch
from torch import Tensor
from torch.nn.functional import embedding, pad, scaled_dot_product_attention, silu
from transformers import LlamaForCausalLM, PreTrainedModel
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

from mars_viz.speculators.networks.base import NORMED, IdleCaches, LayerInputs, Network, Rows, Slots, TreeMask
from mars_viz.speculators.threads import on_shared_cores, sharing_cores

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

    def attended(taken: Tensor, seen: int, end: int) -> Tensor:
        asked = query[taken].transpose(0, 1).unsqueeze(0)  # [1, H, count, D]
        mask = torch.full((1, 1, len(taken), end), -torch.inf)
        mask[..., :seen] = 0
        keys, values = past[:, : heads.keys, :end], past[:, heads.keys :, :end]
        mixed = kernels.attention(asked, keys, values, mask)
        return mixed[0].transpose(0, 1)  # [count, H, D]

    queries = alike(lambda taken: (attended(taken, end - 9, end) for end in (TILE, 4 * TILE)), ASKED)
    near = _near(lambda seen, end: attended(torch.arange(queries.at_least(1)) % DIFFERENT, seen, end))
    logits = alike(lambda taken: iter([kernels.product(different(len(head))[taken], head, None)]), SPARSE)
    return Batching(alike(multiplied), logits, queries, near)


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


LARGEST = 20_000_000
"""Parameters above which arithmetic dominates: trials and padded rows cost more than fewer calls save."""
LONGEST = 8192  # places above which a causal mask of all places costs too much memory


def fits(model: PreTrainedModel) -> bool:
    """Return whether the model is a small float32 Llama on the CPU, with plain rotary positions and no biases."""
    return (
        isinstance(model, LlamaForCausalLM)
        and model.device.type == "cpu"
        and {part.dtype for part in model.parameters()} == {torch.float32}
        and model.num_parameters() <= LARGEST
        and model.config.max_position_embeddings <= LONGEST
        and model.config.hidden_act == "silu"
        and not model.config.attention_bias
        and not model.config.mlp_bias
        and model.model.rotary_emb.rope_type in ("default", "linear", "llama3")
    )


class Weights:
    """A model's weights in the layout that `PackedLlama` multiplies fastest, and their batching, found by trial. E
    wide, H heads, G key/value heads of D, I inner width, V vocabulary, P places."""

    def __init__(self, model: LlamaForCausalLM, vocabulary_size: int, kernels: Kernels = Kernels()):  # noqa: B008
        config, body = model.config, model.model
        width, size = int(config.hidden_size), int(body.layers[0].self_attn.head_dim)
        self.heads, self.groups = int(config.num_attention_heads), int(config.num_key_value_heads)  # H, G
        self.epsilon = float(config.rms_norm_eps) * width  # of the norms
        self.embedding: Tensor = body.embed_tokens.weight  # float32 [V, E]
        self.layers = [_packed(layer, size) for layer in body.layers]  # from the embedding up
        self.norm: Tensor = body.norm.weight * math.sqrt(width)  # float32 [E]; of the last norm
        self.head = _columns(model.lm_head.weight[:vocabulary_size] * body.norm.weight * math.sqrt(width))
        """float32 [E, V]; the last norm's weight is folded in."""
        self.kernels, shape = kernels, Heads(self.heads, self.groups, size)
        qkv, attention_out, gate_up, down = self.layers[0]
        self.batching = invariant(kernels, qkv, gate_up, (attention_out, down), self.head, shape)
        places = self.batching.end(int(config.max_position_embeddings) + 1)
        cosine, sine = body.rotary_emb(self.embedding, torch.arange(places + MOST).unsqueeze(0))
        self.turns = torch.complex(cosine[0, :, : size // 2], sine[0, :, : size // 2]).unsqueeze(1)
        """complex64 [P + MOST, 1, D / 2]; factor of a pair of a query or key at each place."""
        self.causal = torch.full((places + MOST, places), -torch.inf).triu_(1)
        """float32 [P + MOST, P]; 0 if a place sees another, else -inf."""
        self.shelf = IdleCaches(partial(Rows, len(self.layers), 2 * self.groups, size, places))  # for the next passes


def _packed(layer: LlamaDecoderLayer, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return a layer's matrices, input by output: qkv [E, (H + 2 G) D], attention's output [H D, E], gate and up [E, 2
    I], and down [I, E]. The norms' weights are folded in, and q and k are laid out in pairs."""
    attention, mlp = layer.self_attn, layer.mlp
    order = torch.arange(size).view(2, -1).T.flatten()  # entries i and i + D/2, which turn together, become neighbours
    paired = [m.weight.view(-1, size, m.in_features)[:, order] for m in (attention.q_proj, attention.k_proj)]
    scale = math.sqrt(attention.q_proj.in_features)
    qkv = torch.cat([*(w.flatten(0, 1) for w in paired), attention.v_proj.weight])
    gate_up = torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight])
    return (
        _columns(qkv * layer.input_layernorm.weight * scale),
        _columns(attention.o_proj.weight),
        _columns(gate_up * layer.post_attention_layernorm.weight * scale),
        _columns(mlp.down_proj.weight),
    )


def _columns(weight: Tensor) -> Tensor:
    """Return input by output, which multiplies faster than its transpose."""
    return weight.t().contiguous()


class PackedLlama(Network):
    """A pass over weights that may be shared, with a cache of its own; B texts of n tokens."""

    def __init__(self, weights: Weights):
        self.inputs = LayerInputs()
        self.device = weights.embedding.device
        self._weights = weights
        self._rows = weights.shelf.take()
        weakref.finalize(self, weights.shelf.give, self._rows).atexit = False

    @on_shared_cores
    def score(
        self, tokens: Tensor, starts: Sequence[int], rows: int, slots: Slots = None, tree: TreeMask | None = None
    ) -> Tensor:
        """Return raw logits [B, rows, V] after the last `rows` of the tokens [B, n]; see `Network.score`."""
        w, (b, n) = self._weights, tokens.shape
        slots = slots or range(b)
        first, order = min(slots), sorted(range(b), key=slots.__getitem__)
        tokens, starts = _reordered(tokens, order), [starts[i] for i in order]
        tree = tree and tree.arranged(order)
        outputs = []
        for texts, cuts in w.batching.groups(starts, n):
            parts = []
            for cut, end in pairwise(cuts):
                begins = [start + cut for start in starts[texts]]
                part = tree and tree.part(texts, cut, end)
                parts.append(self._read(tokens[texts, cut:end], begins, first + texts.start, part))
            outputs.append(_joined(parts, 1))
        x = _reordered(_joined(outputs)[:, -rows:], [slot - first for slot in slots]).flatten(0, 1)  # [B rows, E]
        logits, counts = [], w.batching.logits
        for some in torch.split(x, counts.most) if len(x) > counts.most else (x,):
            padded = normed(filled(some, counts.at_least(len(some))), w.epsilon)
            logits.append(leading(w.kernels.product(padded, w.head, None), len(some)))
        return _joined(logits).view(b, rows, -1)

    def copy(self, source: int, slot: int, length: int) -> None:
        """Copy the first `length` places of row `source` of the cache to row `slot`."""
        self._rows.copy(source, slot, length)
        self.inputs.copy(source, slot, length)

    def _read(self, tokens: Tensor, starts: Sequence[int], first: int, tree: TreeMask | None) -> Tensor:
        """Return the layers' outputs [B, n, E] for the tokens [B, n], written to rows of the cache from `first` on."""
        w, (b, n) = self._weights, tokens.shape
        product, attention = w.kernels.product, w.kernels.attention
        m, rows, turns, mask, places = self._window(starts, n, first, tree)
        x = embedding(filled(tokens.flatten(), rows), w.embedding)  # [R, E]
        entered = {}
        for i, (matrices, kept) in enumerate(zip(w.layers, self._rows.layers, strict=True)):
            qkv_in, attention_out, gate_up, down = matrices
            if i in self.inputs.layers:
                entered[i] = x
            qkv = leading(product(normed(x, w.epsilon), qkv_in, None), b * m)
            qkv = qkv.view(b, m, w.heads + 2 * w.groups, -1)
            turned = qkv[:, :, : w.heads + w.groups]
            torch.view_as_complex(turned.view(*turned.shape[:-1], -1, 2)).mul_(turns)
            kept[places] = qkv[:, :n, w.heads :]
            past = kept[first : first + b, : mask.shape[-1]].transpose(1, 2)  # [B, 2 G, end, D]
            queries = filled(qkv[:, :, : w.heads].transpose(1, 2), mask.shape[2], 2)  # [B, H, q, D]
            mixed = attention(queries, past[:, : w.groups], past[:, w.groups :], mask).transpose(1, 2)
            mixed = leading(mixed, m, 1).reshape(b * m, -1)
            x = product(filled(mixed, rows), attention_out, x)
            x = product(gated(product(normed(x, w.epsilon), gate_up, None)), down, x)
        if self.inputs:
            entered[len(w.layers)], entered[NORMED] = x, normed(x, w.epsilon) * w.norm
            states = [leading(entered[i], b * m).view(b, m, -1)[:, :n] for i in self.inputs.layers]
            self.inputs.put(range(first, first + b), starts, states)
        return leading(leading(x, b * m).view(b, m, -1), n, 1)

    def _window(
        self, starts: Sequence[int], n: int, first: int, tree: TreeMask | None
    ) -> tuple[int, int, Tensor, Tensor, tuple[int, slice] | tuple[Tensor, Tensor]]:
        """Make room for n tokens of B texts from each start on, and return their positions.

        Returns m, the tokens computed of each text: n, or more if there is one text; R, the rows computed at a time, at
        least B m; rotary factors, complex64 [B, m, 1, D / 2] or [m, 1, D / 2]; a mask, float32 [B, 1, q, end] of 0 or
        -inf, with q queries, at least m; and the rows and places of the cache, n of each text.
        """
        w, b = self._weights, len(starts)
        limits, end = w.batching, w.batching.end(max(starts) + n)
        q = limits.queries.at_least(n)
        m = min(q, limits.rows.most) if b == 1 else n
        rows = limits.rows.at_least(b * m)
        self._rows.open(first + b, end)
        if b == 1 and tree is None:  # slices are cheaper than indices
            start = starts[0]
            mask = w.causal[start : start + q, :end][None, None]
            return m, rows, w.turns[start : start + m], mask, (first, slice(start, start + n))
        positions = torch.tensor(starts, device=self.device).unsqueeze(1) + torch.arange(q, device=self.device)
        texts = torch.arange(first, first + b, device=self.device).unsqueeze(1)
        if tree is None:
            turns, mask = w.turns[positions[:, :m]], w.causal[positions, :end]
        else:
            turns, mask = w.turns[filled(tree.positions, m, 1)], filled(tree.added(end, torch.float32), q, 1)
        return m, rows, turns, mask.unsqueeze(1), (texts, positions[:, :n])


def normed(x: Tensor, epsilon: float) -> Tensor:
    """Divide x by its length; √E and the norm's weight are in the matrix that follows."""
    return x * torch.linalg.vecdot(x, x).add_(epsilon).rsqrt_().unsqueeze(-1)


def filled(x: Tensor, count: int, dim: int = 0) -> Tensor:
    """Return x with `count` entries along a dimension; the values of added ones do not matter."""
    if x.shape[dim] == count:
        return x
    if x.shape[dim] == 1:  # quicker than padding; contiguous, since the product of a strided one takes another kernel
        return x.expand(*x.shape[:dim], count, *x.shape[dim + 1 :]).contiguous()
    return pad(x, (0, 0) * (x.dim() - 1 - dim) + (0, count - x.shape[dim]))


def leading(x: Tensor, count: int, dim: int = 0) -> Tensor:
    """Return the first entries of x along a dimension; x itself if there are no more."""
    return x if x.shape[dim] == count else x.narrow(dim, 0, count)


def _joined(parts: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Concatenate the parts; return the part itself if there is one."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim)


def _reordered(x: Tensor, order: Sequence[int]) -> Tensor:
    """Return the rows of x [B, …] in this order; x itself if they are in order."""
    return x if len(order) == 1 or list(order) == list(range(len(order))) else x[order]
