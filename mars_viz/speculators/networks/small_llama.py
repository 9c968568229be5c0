"""Llama's forward pass over a cache of rows with few calls, for models so small that calls cost more than arithmetic.

Knows weights and tensors; knows no text and no drafting.

Every row's result is the same, bit for bit, in any batch and however a text is cut into passes: the numbers of rows,
queries and keys are those that `row_invariance` finds equivalent on this machine.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import embedding, pad
from transformers import LlamaForCausalLM, PreTrainedModel
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

from mars_viz.speculators.networks.kv_cache import IdleCaches, KVShape
from mars_viz.speculators.networks.layer_inputs import NORMED, LayerInputs
from mars_viz.speculators.networks.row_invariance import MOST, Batching, Heads, Kernels, gated, invariant
from mars_viz.speculators.networks.tree_mask import TreeMask
from mars_viz.speculators.threads import on_shared_cores

LARGEST = 20_000_000
"""Parameters above which arithmetic dominates: trying row counts takes longer than a first text, and padded rows cost
more than fewer calls save."""
LONGEST = 8192
"""Places above which a causal mask of all places costs too much memory."""


@dataclass(frozen=True, slots=True)
class PackedLayer:
    """Matrices of a layer, input by output; the norms' weights are folded in and q and k are laid out in pairs."""

    qkv: Tensor  # float32 [E, (H + 2 G) D]
    attention_out: Tensor  # float32 [H D, E]
    gate_up: Tensor  # float32 [E, 2 I]
    down: Tensor  # float32 [I, E]


@dataclass(frozen=True, slots=True)
class Weights:
    """Constants: E wide, H heads, G key/value heads of D, I inner width, V vocabulary, P places."""

    heads: int  # H
    groups: int  # G
    epsilon: float
    """Epsilon of the norms, times E."""
    embedding: Tensor  # float32 [V, E]
    layers: tuple[PackedLayer, ...]
    """From the embedding up."""
    norm: Tensor
    """float32 [E]; the last norm's weight, times √E."""
    head: Tensor
    """float32 [E, V]; the last norm's weight is folded in."""
    turns: Tensor
    """complex64 [P + MOST, 1, D / 2]; factor of a pair of a query or key at each place."""
    causal: Tensor
    """float32 [P + MOST, P]; 0 if a place sees another, else -inf."""
    kernels: Kernels
    batching: Batching
    shelf: IdleCaches
    """Unused caches for the next passes."""


def fits(model: PreTrainedModel) -> bool:
    """Return whether the model is a float32 Llama on the CPU with plain rotary positions, no biases and few
    parameters."""
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


def pack(model: LlamaForCausalLM, vocabulary_size: int, kernels: Kernels = Kernels()) -> Weights:  # noqa: B008
    """Copy the weights into the layout that `PackedLlama` multiplies fastest, and find their batching by trial."""
    config, body = model.config, model.model
    width, heads, groups = (
        int(n) for n in (config.hidden_size, config.num_attention_heads, config.num_key_value_heads)
    )
    size = int(body.layers[0].self_attn.head_dim)
    layers = tuple(_packed(layer, size) for layer in body.layers)
    head = _columns(model.lm_head.weight[:vocabulary_size] * body.norm.weight * math.sqrt(width))
    layer = layers[0]
    batching = invariant(
        kernels, layer.qkv, layer.gate_up, (layer.attention_out, layer.down), head, Heads(heads, groups, size)
    )
    places = batching.end(int(config.max_position_embeddings) + 1)
    cosine, sine = body.rotary_emb(body.embed_tokens.weight, torch.arange(places + MOST).unsqueeze(0))
    return Weights(
        heads=heads,
        groups=groups,
        epsilon=float(config.rms_norm_eps) * width,
        embedding=body.embed_tokens.weight,
        layers=layers,
        norm=body.norm.weight * math.sqrt(width),
        head=head,
        turns=torch.complex(cosine[0, :, : size // 2], sine[0, :, : size // 2]).unsqueeze(1),
        causal=torch.full((places + MOST, places), -torch.inf).triu_(1),
        kernels=kernels,
        batching=batching,
        shelf=IdleCaches(KVShape(len(layers), 2 * groups, size, places)),
    )


def _packed(layer: LlamaDecoderLayer, size: int) -> PackedLayer:
    attention, mlp = layer.self_attn, layer.mlp
    order = torch.arange(size).view(2, -1).T.flatten()  # entries i and i + D/2, which turn together, become neighbours
    paired = [m.weight.view(-1, size, m.in_features)[:, order] for m in (attention.q_proj, attention.k_proj)]
    scale = math.sqrt(attention.q_proj.in_features)
    qkv = torch.cat([*(w.flatten(0, 1) for w in paired), attention.v_proj.weight])
    gate_up = torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight])
    return PackedLayer(
        qkv=_columns(qkv * layer.input_layernorm.weight * scale),
        attention_out=_columns(attention.o_proj.weight),
        gate_up=_columns(gate_up * layer.post_attention_layernorm.weight * scale),
        down=_columns(mlp.down_proj.weight),
    )


def _columns(weight: Tensor) -> Tensor:
    """Return input by output, which multiplies faster than its transpose."""
    return weight.t().contiguous()


@dataclass(frozen=True, slots=True)
class Window:
    """Positions of B texts of n tokens in a pass: rotary factors, mask and places of the cache."""

    tokens: int
    """m, tokens computed of each text: n, or more if there is one text."""
    rows: int
    """R, rows computed at a time: at least B m."""
    turns: Tensor  # complex64 [B, m, 1, D / 2] or [m, 1, D / 2]
    mask: Tensor
    """float32 [B, 1, q, end] of 0 or -inf, with q queries, at least m."""
    places: tuple[int, slice] | tuple[Tensor, Tensor]
    """Rows and places of the cache, n of each text."""


class PackedLlama:
    """A pass over weights that may be shared, with a cache of its own; B texts of n tokens."""

    def __init__(self, weights: Weights):
        self.inputs = LayerInputs()
        self.device = weights.embedding.device
        self._weights = weights
        self._rows = weights.shelf.take()
        weakref.finalize(self, weights.shelf.give, self._rows).atexit = False

    @on_shared_cores
    def score(
        self,
        tokens: Tensor,
        starts: Sequence[int],
        rows: int,
        slots: Sequence[int] | None = None,
        tree: TreeMask | None = None,
    ) -> Tensor:
        """Return raw logits [B, rows, V] after the last `rows` of the tokens [B, n]; see `Network.score`."""
        w, (b, n) = self._weights, tokens.shape
        slots = slots or range(b)
        first, order = min(slots), sorted(range(b), key=slots.__getitem__)
        tokens, starts = _reordered(tokens, order), [starts[i] for i in order]
        tree = tree and tree.arranged(order)
        outputs = []
        for texts, cuts in w.batching.groups(starts, n):
            parts = [
                self._read(
                    _part(tokens, texts, cut, end),
                    [start + cut for start in starts[texts]],
                    first + texts.start,
                    tree and tree.part(texts, cut, end),
                )
                for cut, end in pairwise(cuts)
            ]
            outputs.append(_joined(parts, 1))
        x = _reordered(_joined(outputs)[:, -rows:], [slot - first for slot in slots]).flatten(0, 1)  # [B rows, E]
        largest = w.batching.logits.most
        logits = [self._logits(part) for part in (torch.split(x, largest) if len(x) > largest else (x,))]
        return _joined(logits).view(b, rows, -1)

    def copy(self, source: int, slot: int, length: int) -> None:
        """Copy the first `length` places of row `source` of the cache to row `slot`."""
        self._rows.copy(source, slot, length)
        self.inputs.copy(source, slot, length)

    def _read(self, tokens: Tensor, starts: Sequence[int], first: int, tree: TreeMask | None) -> Tensor:
        """Return the layers' outputs [B, n, E] for the tokens [B, n], written to rows of the cache from `first` on."""
        w, (b, n) = self._weights, tokens.shape
        product, attention = w.kernels.product, w.kernels.attention
        at = self._window(starts, n, first, tree)
        m, end = at.tokens, at.mask.shape[-1]
        x = embedding(filled(tokens.flatten(), at.rows), w.embedding)  # [R, E]
        entered = {}
        for i, (layer, cache) in enumerate(zip(w.layers, self._rows.layers, strict=True)):
            if i in self.inputs.layers:
                entered[i] = x
            qkv = leading(product(normed(x, w.epsilon), layer.qkv, None), b * m)
            qkv = qkv.view(b, m, w.heads + 2 * w.groups, -1)
            _pairs(qkv[:, :, : w.heads + w.groups]).mul_(at.turns)
            cache[at.places] = qkv[:, :n, w.heads :]
            past = cache[first : first + b, :end].transpose(1, 2)  # [B, 2 G, end, D]
            queries = filled(qkv[:, :, : w.heads].transpose(1, 2), at.mask.shape[2], 2)  # [B, H, q, D]
            mixed = attention(queries, past[:, : w.groups], past[:, w.groups :], at.mask).transpose(1, 2)
            mixed = leading(mixed, m, 1).reshape(b * m, -1)
            x = product(filled(mixed, at.rows), layer.attention_out, x)
            x = product(gated(product(normed(x, w.epsilon), layer.gate_up, None)), layer.down, x)
        if self.inputs:
            entered[len(w.layers)], entered[NORMED] = x, normed(x, w.epsilon) * w.norm
            states = [leading(entered[i], b * m).view(b, m, -1)[:, :n] for i in self.inputs.layers]
            self.inputs.put(range(first, first + b), starts, states)
        return leading(leading(x, b * m).view(b, m, -1), n, 1)

    def _logits(self, x: Tensor) -> Tensor:
        """Return raw logits [R, V] from the layers' outputs [R, E]."""
        w, count = self._weights, len(x)
        x = filled(x, w.batching.logits.at_least(count))
        return leading(w.kernels.product(normed(x, w.epsilon), w.head, None), count)

    def _window(self, starts: Sequence[int], n: int, first: int, tree: TreeMask | None) -> Window:
        """Make room for n tokens from each start on, and return their positions."""
        w, b = self._weights, len(starts)
        limits, end = w.batching, w.batching.end(max(starts) + n)
        q = limits.queries.at_least(n)
        m = min(q, limits.rows.most) if b == 1 else n
        rows = limits.rows.at_least(b * m)
        self._rows.open(first + b, end)
        if tree is not None:
            places = torch.tensor(starts, device=self.device).unsqueeze(1) + torch.arange(n, device=self.device)
            texts = torch.arange(first, first + b, device=self.device).unsqueeze(1)
            turns = w.turns[filled(tree.positions, m, 1)]
            mask = filled(tree.added(end, torch.float32), q, 1).unsqueeze(1)
            return Window(m, rows, turns, mask, (texts, places))
        if b == 1:  # slices are cheaper than indices
            start = starts[0]
            mask = w.causal[start : start + q, :end][None, None]
            return Window(m, rows, w.turns[start : start + m], mask, (first, slice(start, start + n)))
        positions = torch.tensor(starts, device=self.device).unsqueeze(1) + torch.arange(q, device=self.device)
        texts = torch.arange(first, first + b, device=self.device).unsqueeze(1)
        mask = w.causal[positions, :end].unsqueeze(1)
        return Window(m, rows, w.turns[positions[:, :m]], mask, (texts, positions[:, :n]))


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


def _part(tokens: Tensor, some: slice, cut: int, end: int) -> Tensor:
    """Return the tokens from `cut` to `end` of some texts; the tokens themselves if these are all."""
    return tokens if tokens.shape == (some.stop - some.start, end - cut) else tokens[some, cut:end]


def leading(x: Tensor, count: int, dim: int = 0) -> Tensor:
    """Return the first entries of x along a dimension; x itself if there are no more."""
    return x if x.shape[dim] == count else x.narrow(dim, 0, count)


def _joined(parts: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Concatenate the parts; return the part itself if there is one."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim)


def _reordered(x: Tensor, order: Sequence[int]) -> Tensor:
    """Return the rows of x [B, …] in this order; x itself if they are in order."""
    return x if len(order) == 1 or list(order) == list(range(len(order))) else x[order]


def _pairs(x: Tensor) -> Tensor:
    """View the last dimension as complex numbers."""
    return torch.view_as_complex(x.view(*x.shape[:-1], -1, 2))
