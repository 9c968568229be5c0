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
LONGEST = 8192  # places above which a causal mask of all places costs too much memory


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
    epsilon: float  # epsilon of the norms, times E
    embedding: Tensor  # float32 [V, E]
    layers: tuple[PackedLayer, ...]  # from the embedding up
    norm: Tensor  # float32 [E]; the last norm's weight, times √E
    head: Tensor  # float32 [E, V]; the last norm's weight is folded in
    turns: Tensor  # complex64 [P + MOST, 1, D / 2]; factor of a pair of a query or key at each place
    causal: Tensor  # float32 [P + MOST, P]; 0 if a place sees another, else -inf
    kernels: Kernels
    batching: Batching
    shelf: IdleCaches  # unused caches for the next passes


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
    width, size = int(config.hidden_size), int(body.layers[0].self_attn.head_dim)
    heads, groups = int(config.num_attention_heads), int(config.num_key_value_heads)
    layers = tuple(_packed(layer, size) for layer in body.layers)
    head = _columns(model.lm_head.weight[:vocabulary_size] * body.norm.weight * math.sqrt(width))
    first, shape = layers[0], Heads(heads, groups, size)
    batching = invariant(kernels, first.qkv, first.gate_up, (first.attention_out, first.down), head, shape)
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
        for i, (layer, cache) in enumerate(zip(w.layers, self._rows.layers, strict=True)):
            if i in self.inputs.layers:
                entered[i] = x
            qkv = leading(product(normed(x, w.epsilon), layer.qkv, None), b * m)
            qkv = qkv.view(b, m, w.heads + 2 * w.groups, -1)
            turned = qkv[:, :, : w.heads + w.groups]
            torch.view_as_complex(turned.view(*turned.shape[:-1], -1, 2)).mul_(turns)
            cache[places] = qkv[:, :n, w.heads :]
            past = cache[first : first + b, : mask.shape[-1]].transpose(1, 2)  # [B, 2 G, end, D]
            queries = filled(qkv[:, :, : w.heads].transpose(1, 2), mask.shape[2], 2)  # [B, H, q, D]
            mixed = attention(queries, past[:, : w.groups], past[:, w.groups :], mask).transpose(1, 2)
            mixed = leading(mixed, m, 1).reshape(b * m, -1)
            x = product(filled(mixed, rows), layer.attention_out, x)
            x = product(gated(product(normed(x, w.epsilon), layer.gate_up, None)), layer.down, x)
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
