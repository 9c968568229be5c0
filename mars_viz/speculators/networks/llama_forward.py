"""One pass of a Llama-shaped model over ragged rows of a static cache, in tensors alone: no shape and no step depends
on what a tensor holds, so that a CUDA graph can record it. Knows transformers' modules; knows no prefixes, no graphs.

The weights stay where the model has them: matrices that are multiplied with the same input are moved next to one
another, and the model's own become views of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear, rms_norm, scaled_dot_product_attention
from transformers import PreTrainedModel
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaForCausalLM, LlamaRMSNorm
from transformers.models.mistral.modeling_mistral import MistralForCausalLM, MistralRMSNorm
from transformers.models.qwen2.modeling_qwen2 import Qwen2ForCausalLM, Qwen2RMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3ForCausalLM, Qwen3RMSNorm

from mars_viz.speculators.networks.layer_inputs import NORMED
from mars_viz.speculators.networks.tree_mask import TreeMask

SHAPED = (LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)
"""What was read line by line; a class derived from one of these may be anything."""
NORMS = (LlamaRMSNorm, MistralRMSNorm, Qwen2RMSNorm, Qwen3RMSNorm)
TURNS = ("default", "linear", "llama3", "yarn")
"""Rotary positions whose angles do not depend on how long the text is."""
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def why_not(model: PreTrainedModel) -> str:
    """Why `Body` cannot be this model's pass, as the end of a sentence; empty where it can."""
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
    return _changed(model)


def _changed(model: PreTrainedModel) -> str:
    """Adapters and quantised layers stand in for modules of the model; all of them must be the plain ones."""
    linears = [model.lm_head]
    norms = [model.model.norm]
    for layer in model.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        linears += [attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj]
        linears += [mlp.gate_proj, mlp.up_proj, mlp.down_proj]
        norms += [layer.input_layernorm, layer.post_attention_layernorm]
    plain = all(type(each) is nn.Linear for each in linears) and all(type(each) in NORMS for each in norms)
    return "" if plain and not model.training else "its layers were changed"


@dataclass(frozen=True, slots=True)
class Norm:
    """A root-mean-square norm over the last dimension."""

    weight: Tensor
    """[width]."""
    epsilon: float
    """Added to the mean square."""

    @classmethod
    def of(cls, module: LlamaRMSNorm) -> Norm:
        """Of one of `NORMS`."""
        return cls(module.weight, float(module.variance_epsilon))

    def __call__(self, x: Tensor) -> Tensor:
        """x [..., width], of mean square 1 before the weight."""
        return rms_norm(x, self.weight.shape, self.weight, self.epsilon)


@dataclass(frozen=True, slots=True)
class Matrix:
    """What `linear` multiplies by."""

    weight: Tensor
    """[out, in]."""
    bias: Tensor | None
    """[out]."""

    @classmethod
    def of(cls, *modules: nn.Linear) -> Matrix:
        """Several as one, outputs one after the other; the modules' own weights become parts of it."""
        if len(modules) == 1:
            return cls(modules[0].weight, modules[0].bias)
        bias = None
        if any(module.bias is not None for module in modules):
            parts = [m.weight.new_zeros(m.out_features) if m.bias is None else m.bias.data for m in modules]
            bias = torch.cat(parts)
        return cls(_joined([module.weight for module in modules]), bias)

    def __call__(self, x: Tensor) -> Tensor:
        """[..., out] from x [..., in]."""
        return linear(x, self.weight, self.bias)


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """One matrix, of which the parts are views from now on, so that nothing is held twice."""
    first, at = parts[0], parts[0].storage_offset()
    together = all(part.untyped_storage().data_ptr() == first.untyped_storage().data_ptr() for part in parts)
    for part in parts:
        together &= part.is_contiguous() and part.storage_offset() == at
        at += part.numel()
    rows, width = sum(len(part) for part in parts), first.shape[1]
    if together:  # it was done before
        return first.data.as_strided((rows, width), (width, 1))
    whole = torch.cat([part.data for part in parts])
    for part, place in zip(parts, torch.split(whole, [len(part) for part in parts]), strict=True):
        part.data = place
    return whole


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: H heads and G key/value heads of D, I inner width."""

    before: Norm
    """Of what attention reads."""
    qkv: Matrix
    """[(H + 2 G) D, E]."""
    norms: tuple[Norm, Norm] | None
    """Of each query's and key's head, where the model has them (Qwen3)."""
    out: Matrix
    """[E, H D]."""
    between: Norm
    """Of what the inner layer reads."""
    gate_up: Matrix
    """[2 I, E]."""
    act: Callable[[Tensor], Tensor]
    """The gate's."""
    down: Matrix
    """[E, I]."""

    @classmethod
    def of(cls, layer: LlamaDecoderLayer) -> Layer:
        """Of a decoder layer of transformers."""
        attention, mlp = layer.self_attn, layer.mlp
        normed = hasattr(attention, "q_norm")
        return cls(
            before=Norm.of(layer.input_layernorm),
            qkv=Matrix.of(attention.q_proj, attention.k_proj, attention.v_proj),
            norms=(Norm.of(attention.q_norm), Norm.of(attention.k_norm)) if normed else None,
            out=Matrix.of(attention.o_proj),
            between=Norm.of(layer.post_attention_layernorm),
            gate_up=Matrix.of(mlp.gate_proj, mlp.up_proj),
            act=mlp.act_fn,
            down=Matrix.of(mlp.down_proj),
        )


@dataclass(frozen=True, slots=True)
class Where:
    """Where a pass of B rows of n tokens stands; what comes from the host lies on the device already."""

    starts: Tensor
    """int64 [B]; each row's first place."""
    homes: Tensor
    """int64 [B]; the row of the cache that each is written to."""
    first: int
    """The row of the cache that the first one reads; the others' follow it."""
    end: int
    """Places that are read, those written just now included."""


class Body:
    """The weights in the order of the pass, and the pass."""

    def __init__(self, model: PreTrainedModel, vocabulary_size: int):
        """Moves the model's matrices together; raises nothing where `why_not` had nothing to say."""
        config, body = model.config, model.model
        attention = body.layers[0].self_attn
        self.heads, self.groups = int(config.num_attention_heads), int(config.num_key_value_heads)
        self.size, self.scale = int(attention.head_dim), float(attention.scaling)
        with torch.inference_mode(False):  # they are the model's weights from now on
            self.layers = tuple(Layer.of(layer) for layer in body.layers)
        self.embedding: Tensor = body.embed_tokens.weight
        self.norm = Norm.of(body.norm)
        self.head = Matrix(model.lm_head.weight[:vocabulary_size], model.lm_head.bias)
        self._rotary = body.rotary_emb
        self.device, self.dtype = self.embedding.device, self.embedding.dtype
        self.bytes = sum(part.numel() * part.element_size() for part in model.parameters())

    def cache(self, rows: int, places: int) -> Tensor:
        """A new one, [layers, rows, places, 2 G, D]: keys, then values; finite, for what is masked is read too."""
        shape = (len(self.layers), rows, places, 2 * self.groups, self.size)
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    def logits(
        self,
        tokens: Tensor,
        at: Where,
        cache: Tensor,
        rows: int,
        entered: dict[int, Tensor] | None = None,
        tree: TreeMask | None = None,
    ) -> Tensor:
        """Raw float32 logits [B, rows, V] after the last `rows` of the tokens [B, n], which the cache holds then.

        `entered` gets the inputs [B, n, E] of every layer, the last one's output and that of the last norm.
        """
        (b, n), heads, groups = tokens.shape, self.heads, self.groups
        shared = heads // groups  # queries of so many heads see the same keys: they are asked together
        positions = at.starts.unsqueeze(1) + torch.arange(n, device=tokens.device)  # [B, n]
        places = (at.homes.unsqueeze(1) * cache.shape[2] + positions).flatten()  # [B n], of the rows laid end to end
        if tree is None:
            mask = _mask(positions, at.end, self.dtype, shared)
        else:
            mask, positions = _shared(tree.added(at.end, self.dtype), shared), tree.positions
        x = embedding(tokens, self.embedding)  # [B, n, E]
        cosine, sine = self._turns(x, positions)
        for i, (layer, kept) in enumerate(zip(self.layers, cache.unbind(0), strict=True)):
            if entered is not None:
                entered[i] = x
            qkv = layer.qkv(layer.before(x)).view(b, n, heads + 2 * groups, self.size)
            if layer.norms is not None:
                for norm, part in zip(layer.norms, (qkv[:, :, :heads], qkv[:, :, heads : heads + groups]), strict=True):
                    part.copy_(norm(part))
            turned = qkv[:, :, : heads + groups]
            other = turned.roll(self.size // 2, -1)
            turned.mul_(cosine).addcmul_(other, sine)
            kept.flatten(0, 1).index_copy_(0, places, qkv[:, :, heads:].flatten(0, 1))
            past = kept[at.first : at.first + b, : at.end].transpose(1, 2)  # [B, 2 G, end, D]
            asked = qkv[:, :, :heads].view(b, n, groups, shared, -1).permute(0, 2, 3, 1, 4)  # [B, G, H/G, n, D]
            mixed = scaled_dot_product_attention(
                asked.reshape(b, groups, shared * n, self.size),
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

    def _turns(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines [B, n, 1, D]; the sine's first half negated, so that halves can be swapped by rolling."""
        cosine, sine = self._rotary(x, positions)
        half = self.size // 2
        return cosine.unsqueeze(2), torch.cat([-sine[..., :half], sine[..., half:]], -1).unsqueeze(2)


def _mask(positions: Tensor, end: int, dtype: torch.dtype, shared: int) -> Tensor:
    """[B, 1, shared · n, end]: 0 where a token sees a place, else -inf; once for each head that shares its keys."""
    b, n = positions.shape
    unseen = torch.arange(end, device=positions.device) > positions.unsqueeze(-1)  # [B, n, end]
    mask = torch.zeros(b, n, end, dtype=dtype, device=positions.device).masked_fill_(unseen, -torch.inf)
    return _shared(mask, shared)


def _shared(mask: Tensor, shared: int) -> Tensor:
    """[B, 1, shared · n, end] of [B, n, end]: once for each head that shares its keys."""
    b, n, end = mask.shape
    return mask.unsqueeze(1).expand(b, shared, n, end).reshape(b, 1, shared * n, end)
