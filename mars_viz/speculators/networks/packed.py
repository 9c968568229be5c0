"""Llama's forward pass over a cache of rows, with little else in it: for models so small that the calls around the
arithmetic cost more than the arithmetic. Knows weights and tensors; knows no text and no drafting.

Every row's result is the same, bit for bit, whatever else is in the batch: a token that is all there is is computed
twice and a single query asked twice (one row would take another kernel), and keys are padded to a multiple of `TILE`.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding, scaled_dot_product_attention, silu
from transformers import LlamaForCausalLM, PreTrainedModel
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

from mars_viz.speculators.networks.rows import Shape, Shelf

TILE = 64
"""Keys are read in multiples of this."""
LARGEST = 250_000_000
"""Parameters beyond which arithmetic dominates, and a second copy of the weights is not worth its memory."""
LONGEST = 8192
"""Places beyond which a table of who sees whom is not worth its memory."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer's matrices, input by output; the norms' weights are folded in and q and k are laid out in pairs."""

    qkv: Tensor
    """float32 [E, (H + 2 G) D]."""
    attention_out: Tensor
    """float32 [H D, E]."""
    gate_up: Tensor
    """float32 [E, 2 I]."""
    down: Tensor
    """float32 [I, E]."""


@dataclass(frozen=True, slots=True)
class Weights:
    """All that does not change: E wide, H heads, G key/value heads of D, I inner width, V vocabulary, P places."""

    heads: int
    """H."""
    groups: int
    """G."""
    epsilon: float
    """Of the norms, times E."""
    embedding: Tensor
    """float32 [V, E]."""
    layers: tuple[Layer, ...]
    """From the embedding up."""
    head: Tensor
    """float32 [E, V]; the last norm's weight is folded in."""
    turns: Tensor
    """complex64 [P, 1, D / 2]; what a pair of a query or key is multiplied by at each place."""
    causal: Tensor
    """float32 [P, P]; 0 where a place sees another, else -inf."""
    shelf: Shelf
    """Where the caches of finished passes wait for the next."""


def fits(model: PreTrainedModel) -> bool:
    """True for a float32 Llama on the CPU with plain rotary positions, no biases and few enough parameters."""
    return (
        isinstance(model, LlamaForCausalLM)
        and model.device.type == "cpu"
        and model.dtype == torch.float32
        and model.num_parameters() <= LARGEST
        and model.config.max_position_embeddings <= LONGEST
        and model.config.hidden_act == "silu"
        and not model.config.attention_bias
        and not model.config.mlp_bias
        and model.model.rotary_emb.rope_type in ("default", "linear", "llama3")
    )


def pack(model: LlamaForCausalLM, vocabulary_size: int) -> Weights:
    """Copy the weights into the layout that `PackedLlama` multiplies fastest."""
    config, body = model.config, model.model
    width = int(config.hidden_size)
    size = int(body.layers[0].self_attn.head_dim)
    places = _tiles(int(config.max_position_embeddings) + 1)
    cosine, sine = body.rotary_emb(body.embed_tokens.weight, torch.arange(places).unsqueeze(0))
    return Weights(
        heads=int(config.num_attention_heads),
        groups=int(config.num_key_value_heads),
        epsilon=float(config.rms_norm_eps) * width,
        embedding=body.embed_tokens.weight,
        layers=tuple(_packed(layer, size) for layer in body.layers),
        head=_columns(model.lm_head.weight[:vocabulary_size] * body.norm.weight * math.sqrt(width)),
        turns=torch.complex(cosine[0, :, : size // 2], sine[0, :, : size // 2]).unsqueeze(1),
        causal=torch.full((places, places), -torch.inf).triu_(1),
        shelf=Shelf(Shape(len(body.layers), 2 * int(config.num_key_value_heads), size, places)),
    )


def _packed(layer: LlamaDecoderLayer, size: int) -> Layer:
    attention, mlp = layer.self_attn, layer.mlp
    order = torch.arange(size).view(2, -1).T.flatten()  # entries i and i + D/2, which turn together, become neighbours
    paired = [m.weight.view(-1, size, m.in_features)[:, order] for m in (attention.q_proj, attention.k_proj)]
    scale = math.sqrt(attention.q_proj.in_features)
    qkv = torch.cat([*(w.flatten(0, 1) for w in paired), attention.v_proj.weight])
    gate_up = torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight])
    return Layer(
        qkv=_columns(qkv * layer.input_layernorm.weight * scale),
        attention_out=_columns(attention.o_proj.weight),
        gate_up=_columns(gate_up * layer.post_attention_layernorm.weight * scale),
        down=_columns(mlp.down_proj.weight),
    )


def _columns(weight: Tensor) -> Tensor:
    """Input by output, which multiplies faster than the other way round."""
    return weight.t().contiguous()


def _tiles(places: int) -> int:
    return -(-places // TILE) * TILE


@dataclass(frozen=True, slots=True)
class Window:
    """Where a batch stands: what turns its queries and keys, what they see, and where they are kept."""

    turns: Tensor
    """complex64 [B n, 1, D / 2]."""
    mask: Tensor
    """float32 [B, 1, n, end], n at least 2; 0 or -inf."""
    places: tuple[int, slice] | tuple[Tensor, Tensor]
    """Rows and places of the cache."""

    def write(self, cache: Tensor, fresh: Tensor) -> None:
        """Keep the keys and values [B n, 2 G, D] of a layer; of a token that was computed twice, once."""
        rows, places = self.places
        if isinstance(places, slice):
            cache[rows, places] = fresh[: places.stop - places.start]
        else:
            cache[rows, places] = fresh.view(*places.shape, *fresh.shape[1:])


class PackedLlama:
    """A pass over weights that others may share, with a cache of its own; B rows of n tokens."""

    def __init__(self, weights: Weights):
        self.device = weights.embedding.device
        self._weights = weights
        self._rows = weights.shelf.take()
        weakref.finalize(self, weights.shelf.give, self._rows).atexit = False

    def score(self, tokens: Tensor, starts: Sequence[int], rows: int, slots: Sequence[int] | None = None) -> Tensor:
        """Raw logits [B, rows, V] after the last `rows` of the tokens [B, n]; see `Network.score`."""
        w, (b, n) = self._weights, tokens.shape
        slots = slots or range(b)
        first, order = min(slots), sorted(range(b), key=slots.__getitem__)
        at = self._window([starts[i] for i in order], n, first)
        end, m = at.mask.shape[-1], max(n, 2) if b == 1 else n
        x = embedding(_reordered(tokens, order).expand(b, m).flatten(), w.embedding)  # [B m, E]
        for layer, cache in zip(w.layers, self._rows.layers, strict=True):
            qkv = torch.mm(self._normed(x), layer.qkv).view(b * m, w.heads + 2 * w.groups, -1)
            _pairs(qkv[:, : w.heads + w.groups]).mul_(at.turns)
            at.write(cache, qkv[:, w.heads :])
            past = cache[first : first + b, :end].transpose(1, 2)  # [B, 2 G, end, D]
            asked = qkv[:, : w.heads].view(b, m, w.heads, -1).transpose(1, 2)  # [B, H, m, D]
            mixed = scaled_dot_product_attention(
                asked if m > 1 else asked.repeat(1, 1, 2, 1),
                past[:, : w.groups],
                past[:, w.groups :],
                attn_mask=at.mask,
                enable_gqa=w.groups < w.heads,
            )[:, :, :m]
            x = torch.addmm(x, mixed.transpose(1, 2).reshape(b * m, -1), layer.attention_out)
            gate, up = torch.mm(self._normed(x), layer.gate_up).chunk(2, -1)
            x = torch.addmm(x, silu(gate).mul_(up), layer.down)
        x = _reordered(x.view(b, m, -1), [slot - first for slot in slots])[:, -rows if b > 1 else -max(rows, 2) :]
        logits = torch.mm(self._normed(x.flatten(0, 1)), w.head)
        return logits.view(b, -1, logits.shape[-1])[:, -rows:]

    def copy(self, source: int, slot: int, length: int) -> None:
        """Make row `slot` of the cache what row `source` is, up to `length` places."""
        self._rows.copy(source, slot, length)

    def _window(self, starts: Sequence[int], n: int, slot: int) -> Window:
        """Make room for n tokens from each start on, and say where that is."""
        w, b, shown, end = self._weights, len(starts), max(n, 2), _tiles(max(starts) + n)
        self._rows.open(slot + b, end)
        if b == 1:  # slices are cheaper than indices
            at = slice(starts[0], starts[0] + n)
            return Window(w.turns[at], w.causal[at, :end].expand(shown, -1)[None, None], (slot, at))
        positions = torch.tensor(starts, device=self.device).unsqueeze(1) + torch.arange(n, device=self.device)
        turns = w.turns[positions].flatten(0, 1)
        mask = w.causal[positions, :end].expand(-1, shown, -1).unsqueeze(1)
        return Window(turns, mask, (torch.arange(slot, slot + b, device=self.device).unsqueeze(1), positions))

    def _normed(self, x: Tensor) -> Tensor:
        """x over its length; √E and the norm's weight are in the matrix that follows."""
        return x * torch.linalg.vecdot(x, x).add_(self._weights.epsilon).rsqrt_().unsqueeze(-1)


def _reordered(x: Tensor, order: Sequence[int]) -> Tensor:
    """The rows of x [B, …] in that order; x itself where they stand so already."""
    return x if list(order) == list(range(len(order))) else x[order]


def _pairs(x: Tensor) -> Tensor:
    """The last dimension as complex numbers."""
    return torch.view_as_complex(x.view(*x.shape[:-1], -1, 2))
