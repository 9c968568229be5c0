"""One pass of a Llama-shaped model over ragged rows of a static cache. Knows transformers' modules; knows no graphs.

Only tensor operations: no shape and no step depends on the values of a tensor, so that a CUDA graph can record it. The
weights stay in the model: matrices with the same input are moved together, and the model's own become views of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear, rms_norm, scaled_dot_product_attention
from transformers import PreTrainedModel
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaForCausalLM, LlamaRMSNorm
from transformers.models.mistral.modeling_mistral import MistralForCausalLM, MistralRMSNorm
from transformers.models.qwen2.modeling_qwen2 import Qwen2ForCausalLM, Qwen2RMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3ForCausalLM, Qwen3RMSNorm

from mars_viz.speculators.devices import bytes_free, bytes_of
from mars_viz.speculators.networks.base import NORMED, TreeMask

SHAPED = (LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)
"""Architectures whose code was checked; a class derived from one of them may do anything."""
NORMS = (LlamaRMSNorm, MistralRMSNorm, Qwen2RMSNorm, Qwen3RMSNorm)
TURNS = ("default", "linear", "llama3", "yarn")
"""Kinds of rotary positions whose angles do not depend on the text's length."""
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
REORDERED = 4_000_000_000
"""Largest size, in bytes, of a float32 model on a CPU whose matrices are also kept in oneDNN's layout. With this copy a
pass over 2 to 17 tokens takes about as long as a pass over one token; without it, up to twice as long."""


def why_not(model: PreTrainedModel) -> str:
    """Return why `Body` cannot compute this model's pass, as the end of a sentence; empty if it can."""
    if type(model) not in SHAPED:
        return f"{type(model).__name__} is not among the architectures that have a batched pass"
    config, parts = model.config, list(model.parameters())
    if len({(part.device, part.dtype) for part in parts}) > 1 or getattr(model, "hf_device_map", None):
        return "its weights are spread over devices or dtypes"
    if parts[0].device.type not in ("cpu", "cuda") or parts[0].dtype not in DTYPES:
        return f"there is no batched pass for {parts[0].dtype} on {parts[0].device.type}"
    if getattr(config, "sliding_window", None) or set(getattr(config, "layer_types", None) or ()) - {"full_attention"}:
        return "its attention sees a sliding window"
    rotary = model.model.rotary_emb
    if rotary.rope_type not in TURNS:
        return f"its rotary positions are of the kind {rotary.rope_type}"
    if 2 * len(rotary.inv_freq) != model.model.layers[0].self_attn.head_dim:
        return "its rotary positions turn only a part of each head"
    linears, norms = [model.lm_head], [model.model.norm]
    for layer in model.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        linears += [attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj]
        linears += [mlp.gate_proj, mlp.up_proj, mlp.down_proj]
        norms += [layer.input_layernorm, layer.post_attention_layernorm]
    plain = all(type(module) is nn.Linear for module in linears) and all(type(module) in NORMS for module in norms)
    # adapters and quantised layers replace modules
    return "" if plain and not model.training else "its layers were changed"


@dataclass(frozen=True, slots=True)
class Heads:
    """Heads of attention."""

    queries: int  # H
    keys: int  # G
    size: int  # D


@dataclass(frozen=True, slots=True)
class Norm:
    """A root-mean-square norm over the last dimension."""

    weight: Tensor
    epsilon: float

    @classmethod
    def of(cls, module: LlamaRMSNorm) -> Norm:
        return cls(module.weight, float(module.variance_epsilon))

    def __call__(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight.shape, self.weight, self.epsilon)


@dataclass(frozen=True, slots=True)
class Matrix:
    """Weight and bias of a linear map."""

    weight: Tensor  # [out, in]
    bias: Tensor | None = None  # [out]
    reordered: Tensor | None = None  # the weight in oneDNN's layout

    @classmethod
    def of(cls, *modules: nn.Linear) -> Matrix:
        """Create one matrix from modules, their outputs concatenated; the modules' own weights become views of it."""
        if len(modules) == 1:
            return cls(modules[0].weight, modules[0].bias)
        bias = None
        if any(module.bias is not None for module in modules):
            parts = [m.weight.new_zeros(m.out_features) if m.bias is None else m.bias.data for m in modules]
            bias = torch.cat(parts)
        return cls(_joined([module.weight for module in modules]), bias)

    def __call__(self, x: Tensor) -> Tensor:
        if self.reordered is None:
            return linear(x, self.weight, self.bias)
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.reordered, self.bias, "none", [], "")
        return out


def reorder(parts: Iterable[object]) -> None:
    """Add copies in oneDNN's layout to all matrices among the parts' attributes, if that is faster on their device and
    there is memory for it."""
    named = [(part, name, each) for part in parts for name, each in vars(part).items() if isinstance(each, Matrix)]
    weights = [matrix.weight for _, _, matrix in named]
    device, total = weights[0].device, sum(weight.nbytes for weight in weights)
    if device.type != "cpu" or weights[0].dtype != torch.float32 or not torch._C._has_mkldnn or total > REORDERED:
        return
    free = bytes_free(device)
    if free is None or free >= 2 * total:
        with torch.inference_mode(False):
            for part, name, matrix in named:
                copy = torch.ops.mkldnn._reorder_linear_weight(matrix.weight.detach(), None)
                setattr(part, name, replace(matrix, reordered=copy))


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """Return one matrix of which the parts become views, so that no weight is stored twice."""
    first, at = parts[0], parts[0].storage_offset()
    together = all(part.untyped_storage().data_ptr() == first.untyped_storage().data_ptr() for part in parts)
    for part in parts:
        together &= part.is_contiguous() and part.storage_offset() == at
        at += part.numel()
    rows, width = sum(len(part) for part in parts), first.shape[1]
    if together:  # it was done before
        return first.data.as_strided((rows, width), (width, 1))
    matrix = torch.cat([part.data for part in parts])
    for part, view in zip(parts, torch.split(matrix, [len(part) for part in parts]), strict=True):
        part.data = view
    return matrix


class Layer:
    """One layer: H heads and G key/value heads of D, I inner width."""

    def __init__(self, layer: LlamaDecoderLayer):
        attention, mlp = layer.self_attn, layer.mlp
        self.before, self.between = Norm.of(layer.input_layernorm), Norm.of(layer.post_attention_layernorm)
        self.qkv = Matrix.of(attention.q_proj, attention.k_proj, attention.v_proj)  # [(H + 2 G) D, E]
        normed = hasattr(attention, "q_norm")  # norms of each query's and key's head (Qwen3)
        self.norms = (Norm.of(attention.q_norm), Norm.of(attention.k_norm)) if normed else (None, None)
        self.out = Matrix.of(attention.o_proj)  # [E, H D]
        self.gate_up = Matrix.of(mlp.gate_proj, mlp.up_proj)  # [2 I, E]
        self.act: Callable[[Tensor], Tensor] = mlp.act_fn  # activation of the gate
        self.down = Matrix.of(mlp.down_proj)  # [E, I]

    def __call__(self, x: Tensor, attention: Attention, cache: Tensor) -> Tensor:
        """Return the layer's output from its input x [B, n, E], which is added to the layer's cache."""
        x = x + self.out(attention(self.qkv(self.before(x)), self.norms, cache))
        gate, up = self.gate_up(self.between(x)).chunk(2, -1)
        return x + self.down(self.act(gate) * up)


Inputs = dict[int, Tensor] | None  # of layers
At = tuple[Tensor, Tensor, int, int]
"""For B rows, their first places and the rows of the cache that are written for them, int64 [B]; the row of the cache
that the first one reads, which the others follow; and the number of places that are read, with those written now."""


class Attention:
    """Attention of n new tokens of each of B texts, in every layer."""

    def __init__(
        self, heads: Heads, scale: float, rotary: nn.Module, x: Tensor, at: At, most: int, tree: TreeMask | None
    ):
        """Prepare it for tokens with the embeddings x [B, n, E]; rows of the cache have `most` places."""
        (b, n), (starts, homes, self._first, end) = x.shape[:2], at
        self._heads, self._scale, self._end = heads, scale, end
        self._shared = heads.queries // heads.keys  # heads of queries with the same keys, computed together
        positions = starts.unsqueeze(1) + torch.arange(n, device=x.device)  # [B, n]
        self._places = (homes.unsqueeze(1) * most + positions).flatten()  # [B n], of the rows laid end to end
        if tree is None:
            unseen = torch.arange(end, device=x.device) > positions.unsqueeze(-1)  # [B, n, end]
            mask = torch.zeros_like(unseen, dtype=x.dtype).masked_fill_(unseen, -torch.inf)
        else:
            mask, positions = tree.added(end, x.dtype), tree.positions
        self._mask = mask.unsqueeze(1).expand(b, self._shared, n, end).reshape(b, 1, self._shared * n, end)
        half = heads.size // 2
        self._cosine, sine = (each.unsqueeze(2) for each in rotary(x, positions))  # [B, n, 1, D]
        self._sine = torch.cat([-sine[..., :half], sine[..., half:]], -1)  # so that halves can be swapped by rolling

    def __call__(self, qkv: Tensor, norms: Sequence[Norm | None], cache: Tensor) -> Tensor:
        """Add keys and values of qkv [B, n, (H + 2 G) D] to a layer's cache [rows, places, 2 G, D], and return the
        values that the queries see, [B, n, H D]. `norms` are those of queries and keys."""
        heads, groups, size, shared = self._heads.queries, self._heads.keys, self._heads.size, self._shared
        b, n = qkv.shape[:2]
        qkv = qkv.view(b, n, heads + 2 * groups, size)
        for norm, part in zip(norms, (qkv[:, :, :heads], qkv[:, :, heads : heads + groups]), strict=True):
            if norm is not None:
                part.copy_(norm(part))
        self._turn(qkv[:, :, : heads + groups])
        cache.flatten(0, 1).index_copy_(0, self._places, qkv[:, :, heads:].flatten(0, 1))
        past = cache[self._first : self._first + b, : self._end].transpose(1, 2)  # [B, 2 G, end, D]
        queries = qkv[:, :, :heads].view(b, n, groups, shared, size).permute(0, 2, 3, 1, 4)  # [B, G, H/G, n, D]
        mixed = scaled_dot_product_attention(
            queries.reshape(b, groups, shared * n, size),
            past[:, :groups],
            past[:, groups:],
            attn_mask=self._mask,
            scale=self._scale,
        )
        return mixed.view(b, groups, shared, n, size).permute(0, 3, 1, 2, 4).reshape(b, n, -1)

    def keep(self, keys_values: Tensor, norm: Norm | None, cache: Tensor) -> None:
        """Add keys and values [B, n, 2 G D], which no query of theirs sees, to a layer's cache."""
        both = keys_values.reshape(*keys_values.shape[:2], 2 * self._heads.keys, self._heads.size)
        keys = both[:, :, : self._heads.keys]
        if norm is not None:
            keys.copy_(norm(keys))
        self._turn(keys)
        cache.flatten(0, 1).index_copy_(0, self._places, both.flatten(0, 1))

    def _turn(self, heads: Tensor) -> None:
        other = heads.roll(self._heads.size // 2, -1)
        heads.mul_(self._cosine).addcmul_(other, self._sine)


class Body:
    """Weights in the order of the pass, and the pass."""

    def __init__(self, model: PreTrainedModel, vocabulary_size: int):
        """Move the model's matrices together. Raises nothing if `why_not` is empty."""
        config, body = model.config, model.model
        attention = body.layers[0].self_attn
        self.heads = Heads(config.num_attention_heads, config.num_key_value_heads, int(attention.head_dim))
        self._scale = float(attention.scaling)
        with torch.inference_mode(False):  # they are the model's weights from now on
            self.layers = tuple(Layer(layer) for layer in body.layers)
        self.embedding: Tensor = body.embed_tokens.weight
        self.norm = Norm.of(body.norm)
        self.head = Matrix(model.lm_head.weight[:vocabulary_size], model.lm_head.bias)
        self._rotary = body.rotary_emb
        self.device, self.dtype = self.embedding.device, self.embedding.dtype
        self.bytes = bytes_of(model)
        reorder([*self.layers, self])

    def cache(self, rows: int, places: int) -> Tensor:
        """Return a new cache [layers, rows, places, 2 G, D] of zeros: keys, values. Masked values must be finite."""
        shape = (len(self.layers), rows, places, 2 * self.heads.keys, self.heads.size)
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    def logits(
        self, tokens: Tensor, at: At, cache: Tensor, rows: int, entered: Inputs = None, tree: TreeMask | None = None
    ) -> Tensor:
        """Return raw float32 logits [B, rows, V] after the last `rows` of the tokens [B, n], and add these to the
        cache. `entered` receives the inputs [B, n, E] of every layer, the last one's output and that of the last norm.
        """
        x = embedding(tokens, self.embedding)  # [B, n, E]
        attention = Attention(self.heads, self._scale, self._rotary, x, at, cache.shape[2], tree)
        for i, (layer, layer_cache) in enumerate(zip(self.layers, cache.unbind(0), strict=True)):
            if entered is not None:
                entered[i] = x
            x = layer(x, attention, layer_cache)
        if entered is not None:
            entered[len(self.layers)], entered[NORMED] = x, self.norm(x)
        return self.head(self.norm(x[:, x.shape[1] - rows :])).float()
