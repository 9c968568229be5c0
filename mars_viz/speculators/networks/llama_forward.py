"""One pass of a Llama-shaped model over ragged rows of a static cache. Knows transformers' modules; knows no graphs.

Only tensor operations: no shape and no step depends on the values of a tensor, so that a CUDA graph can record it. The
weights stay in the model: matrices with the same input are moved together, and the model's own become views of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear, rms_norm, scaled_dot_product_attention
from transformers import PreTrainedModel
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaForCausalLM, LlamaRMSNorm
from transformers.models.mistral.modeling_mistral import MistralForCausalLM, MistralRMSNorm
from transformers.models.qwen2.modeling_qwen2 import Qwen2ForCausalLM, Qwen2RMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3ForCausalLM, Qwen3RMSNorm

from mars_viz.speculators.devices import bytes_free
from mars_viz.speculators.networks.base import NORMED, TreeMask

SHAPED = (LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)
"""Architectures whose code was checked; a class derived from one of them may do anything."""
NORMS = (LlamaRMSNorm, MistralRMSNorm, Qwen2RMSNorm, Qwen3RMSNorm)
TURNS = ("default", "linear", "llama3", "yarn")
"""Kinds of rotary positions whose angles do not depend on the text's length."""
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
REORDERED = (80_000_000, 4_000_000_000)
"""Smallest and largest size, in bytes, of a float32 model on a CPU whose matrices are also kept in oneDNN's layout.
With this copy a pass over 2 to 17 tokens takes about as long as a pass over one token; without it, twice as long."""


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


class Norm:
    """A root-mean-square norm over the last dimension."""

    def __init__(self, module: LlamaRMSNorm):
        self._weight, self._epsilon = module.weight, float(module.variance_epsilon)

    def __call__(self, x: Tensor) -> Tensor:
        """Return x [..., width], scaled to mean square 1 and multiplied by the weight."""
        return rms_norm(x, self._weight.shape, self._weight, self._epsilon)


@dataclass(frozen=True, slots=True)
class Matrix:
    """Weight and bias of a linear map."""

    weight: Tensor  # [out, in]
    bias: Tensor | None  # [out]
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
        """Return [..., out] from x [..., in]."""
        if self.reordered is None:
            return linear(x, self.weight, self.bias)
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.reordered, self.bias, "none", [], "")
        return out

    def with_copy(self) -> Matrix:
        """Return the matrix with a copy of its weight in oneDNN's layout."""
        return replace(self, reordered=torch.ops.mkldnn._reorder_linear_weight(self.weight.detach(), None))


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
        self.before, self.between = Norm(layer.input_layernorm), Norm(layer.post_attention_layernorm)
        self.qkv = Matrix.of(attention.q_proj, attention.k_proj, attention.v_proj)  # [(H + 2 G) D, E]
        normed = hasattr(attention, "q_norm")  # norms of each query's and key's head (Qwen3)
        self.norms = (Norm(attention.q_norm), Norm(attention.k_norm)) if normed else None
        self.out = Matrix.of(attention.o_proj)  # [E, H D]
        self.gate_up = Matrix.of(mlp.gate_proj, mlp.up_proj)  # [2 I, E]
        self.act: Callable[[Tensor], Tensor] = mlp.act_fn  # activation of the gate
        self.down = Matrix.of(mlp.down_proj)  # [E, I]

    def reorder(self) -> None:
        """Add copies of its matrices in oneDNN's layout."""
        for name in ("qkv", "out", "gate_up", "down"):
            setattr(self, name, getattr(self, name).with_copy())


Inputs = dict[int, Tensor] | None  # of layers
At = tuple[Tensor, Tensor, int, int]
"""For B rows, their first places and the rows of the cache that are written for them, int64 [B]; the row of the cache
that the first one reads, which the others follow; and the number of places that are read, with those written now."""


class Body:
    """Weights in the order of the pass, and the pass."""

    def __init__(self, model: PreTrainedModel, vocabulary_size: int):
        """Move the model's matrices together. Raises nothing if `why_not` is empty."""
        config, body = model.config, model.model
        attention = body.layers[0].self_attn
        self.heads, self.groups = int(config.num_attention_heads), int(config.num_key_value_heads)
        self.size, self.scale = int(attention.head_dim), float(attention.scaling)
        with torch.inference_mode(False):  # they are the model's weights from now on
            self.layers = tuple(Layer(layer) for layer in body.layers)
        self.embedding: Tensor = body.embed_tokens.weight
        self.norm = Norm(body.norm)
        self.head = Matrix(model.lm_head.weight[:vocabulary_size], model.lm_head.bias)
        self._rotary = body.rotary_emb
        self.device, self.dtype = self.embedding.device, self.embedding.dtype
        self.bytes = sum(part.numel() * part.element_size() for part in model.parameters())
        if self.device.type != "cpu" or self.dtype != torch.float32 or not torch._C._has_mkldnn:
            return
        (low, high), free = REORDERED, bytes_free(self.device)
        if low <= self.bytes <= high and (free is None or free >= 2 * self.bytes):
            with torch.inference_mode(False):
                for layer in self.layers:
                    layer.reorder()
                self.head = self.head.with_copy()

    def cache(self, rows: int, places: int) -> Tensor:
        """Return a new cache [layers, rows, places, 2 G, D] of zeros: keys, values. Masked values must be finite."""
        shape = (len(self.layers), rows, places, 2 * self.groups, self.size)
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    def logits(
        self, tokens: Tensor, at: At, cache: Tensor, rows: int, entered: Inputs = None, tree: TreeMask | None = None
    ) -> Tensor:
        """Return raw float32 logits [B, rows, V] after the last `rows` of the tokens [B, n], and add these to the
        cache. `entered` receives the inputs [B, n, E] of every layer, the last one's output and that of the last norm.
        """
        (b, n), heads, groups, (starts, homes, first, end) = tokens.shape, self.heads, self.groups, at
        shared = heads // groups  # queries of so many heads see the same keys: they are asked together
        positions = starts.unsqueeze(1) + torch.arange(n, device=tokens.device)  # [B, n]
        places = (homes.unsqueeze(1) * cache.shape[2] + positions).flatten()  # [B n], of the rows laid end to end
        if tree is None:
            unseen = torch.arange(end, device=tokens.device) > positions.unsqueeze(-1)  # [B, n, end]
            mask = torch.zeros_like(unseen, dtype=self.dtype).masked_fill_(unseen, -torch.inf)
        else:
            mask, positions = tree.added(end, self.dtype), tree.positions
        mask = mask.unsqueeze(1).expand(b, shared, n, end).reshape(b, 1, shared * n, end)
        x, half = embedding(tokens, self.embedding), self.size // 2  # [B, n, E]
        cosine, sine = (each.unsqueeze(2) for each in self._rotary(x, positions))  # [B, n, 1, D]
        sine = torch.cat([-sine[..., :half], sine[..., half:]], -1)  # so that halves can be swapped by rolling
        for i, (layer, layer_cache) in enumerate(zip(self.layers, cache.unbind(0), strict=True)):
            if entered is not None:
                entered[i] = x
            qkv = layer.qkv(layer.before(x)).view(b, n, heads + 2 * groups, self.size)
            if layer.norms is not None:
                for norm, part in zip(layer.norms, (qkv[:, :, :heads], qkv[:, :, heads : heads + groups]), strict=True):
                    part.copy_(norm(part))
            turned = qkv[:, :, : heads + groups]
            other = turned.roll(half, -1)
            turned.mul_(cosine).addcmul_(other, sine)
            layer_cache.flatten(0, 1).index_copy_(0, places, qkv[:, :, heads:].flatten(0, 1))
            past = layer_cache[first : first + b, :end].transpose(1, 2)  # [B, 2 G, end, D]
            queries = qkv[:, :, :heads].view(b, n, groups, shared, -1).permute(0, 2, 3, 1, 4)  # [B, G, H/G, n, D]
            mixed = scaled_dot_product_attention(
                queries.reshape(b, groups, shared * n, self.size),
                past[:, :groups],
                past[:, groups:],
                attn_mask=mask,
                scale=self.scale,
            ).view(b, groups, shared, n, self.size)
            x = x + layer.out(mixed.permute(0, 3, 1, 2, 4).reshape(b, n, -1))
            gate, up = layer.gate_up(layer.between(x)).chunk(2, -1)
            x = x + layer.down(layer.act(gate) * up)
        if entered is not None:
            entered[len(self.layers)], entered[NORMED] = x, self.norm(x)
        return self.head(self.norm(x[:, n - rows :])).float()
