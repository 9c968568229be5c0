"""The forward pass of an EAGLE-3 head over a cache of rows. Knows weights and tensors; knows no files, no prefixes.

Li et al. 2025, 'EAGLE-3' (arXiv 2503.01840). Row j of a text reads the embedding of token j + 1 and a state: the state
of token j, which `fc` computes from inputs of some layers of the target (or the target's own state, without `fc`), or
the head's own output for the previous row. The output of a row is the state of the next one; `norm` and `lm_head`
compute the logits of token j + 2 from it.

In float32 on the CPU a row's result is the same, bit for bit, in any batch; see `small_llama`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import embedding
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from mars_viz.speculators.networks.base import Rows, TreeMask
from mars_viz.speculators.networks.small_llama import (
    Batching,
    Heads,
    Kernels,
    filled,
    gated,
    invariant,
    leading,
    normed,
)
from mars_viz.speculators.threads import on_shared_cores

CHUNK = 512  # tokens of a text that are read at once if no batching is fixed
LONGEST = 1 << 20  # most places of a row


class FloatNorm:
    """A root-mean-square norm over the last dimension, in float32."""

    def __init__(self, weight: Tensor, epsilon: float):
        self.weight = weight.float() * math.sqrt(len(weight))  # [width]
        self._epsilon = epsilon * len(weight)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the norm of x [..., width], in the dtype of x."""
        return (normed(x.float(), self._epsilon) * self.weight).to(x.dtype)


class HeadWeights:
    """Constants of a head; matrices input by output. H wide, k features of Ht."""

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        heads: Heads,
        epsilon: float,
        rotary: LlamaConfig,
        *,
        normed_residual: bool = False,
        normed_output: bool = False,
        kernels: Kernels = Kernels(),  # noqa: B008
    ):
        """Create weights from a checkpoint's tensors by name, including embed_tokens.weight and lm_head.weight. Device
        and dtype of the computation are those of the tensors.

        With `normed_residual` attention's result is added to the normed state. With `normed_output` the next row's
        state is the output of `norm`, as in EAGLE-3.1, instead of its input.
        """

        def columns(*names: str) -> Tensor:
            return torch.cat([tensors[f"{name}.weight"] for name in names]).t().contiguous()

        self.heads, self.normed_residual, self.normed_output = heads, normed_residual, normed_output
        self.embedding = tensors["embed_tokens.weight"]  # [V, H]
        self.fc = columns("fc") if "fc.weight" in tensors else None
        """[k Ht, H]; None if the features are H wide and serve as states."""
        self.qkv = columns("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")  # [2 H, (heads + 2 groups) D]
        self.attention_out, self.down = columns("self_attn.o_proj"), columns("mlp.down_proj")  # [heads D, H], [I, H]
        self.gate_up, self.lm_head = columns("mlp.gate_proj", "mlp.up_proj"), columns("lm_head")  # [H, 2 I], [H, Vd]
        weights = {name.removesuffix(".weight"): weight for name, weight in tensors.items() if "norm" in name}
        self.norms = {name: FloatNorm(weight, epsilon) for name, weight in weights.items()}
        """By name in a checkpoint: input_layernorm, hidden_norm, post_attention_layernorm, norm; optionally input_norm
        (of the features) or fc_norm.0, fc_norm.1, … (of each feature), self_attn.q_norm and self_attn.k_norm."""
        device, self.kernels = self.lm_head.device, kernels
        self.rotary = LlamaRotaryEmbedding(rotary).to(device)  # returns cosines and sines of positions
        self.batching: Batching | None = None  # counts at which no row depends on the others; None if rows may
        if device.type == "cpu" and self.lm_head.dtype == torch.float32:
            added = [tensor for tensor in (self.fc, self.attention_out, self.down) if tensor is not None]
            self.batching = invariant(kernels, self.qkv, self.gate_up, added, self.lm_head, heads)


class EagleNetwork:
    """A pass over weights that may be shared, with a cache of its own."""

    def __init__(self, weights: HeadWeights):
        self.device, self.dtype = weights.down.device, weights.down.dtype
        self._weights, heads = weights, weights.heads
        self._rows = Rows(1, 2 * heads.keys, heads.size, LONGEST, self.dtype, self.device)

    def copy(self, source: int, slot: int, length: int) -> None:
        """Copy the first `length` places of row `source` of the cache to row `slot`."""
        self._rows.copy(source, slot, length)

    @on_shared_cores
    def states(self, features: Tensor) -> Tensor:
        """Return the states [B, n, H] of features [B, n, k Ht]."""
        w, (b, n) = self._weights, features.shape[:2]
        if w.fc is None:
            return features.to(self.dtype)
        flat, width = features.flatten(0, 1).to(self.dtype), w.fc.shape[1]
        most = len(flat) if w.batching is None else w.batching.rows.most
        states = [flat.new_empty(0, width)]
        for part in torch.split(flat, most) if len(flat) else ():
            x = w.norms["input_norm"](part) if "input_norm" in w.norms else part
            if "fc_norm.0" in w.norms:
                each = (name for name in w.norms if name.startswith("fc_norm."))
                split = torch.split(x, [len(w.norms[name].weight) for name in each], -1)
                x = torch.cat([w.norms[f"fc_norm.{i}"](feature) for i, feature in enumerate(split)], -1)
            x = self._filled(x)
            states.append(leading(w.kernels.product(x, w.fc, x.new_zeros(len(x), width)), len(part)))
        return torch.cat(states).view(b, n, width)

    @on_shared_cores
    def read(
        self, tokens: Tensor, states: Tensor, starts: Sequence[int], first: int = 0, tree: TreeMask | None = None
    ) -> Tensor:
        """Return the layer's outputs [B, n, H] for the tokens [B, n] and the states [B, n, H].

        These are the states of the next rows and the input of `logits`. Text b is row first + b of the cache, written
        from place starts[b] on. Each row sees all before it, or what `tree` lets it see.
        """
        n, batching, parts = tokens.shape[1], self._weights.batching, []
        whole = (slice(0, len(starts)), tuple(sorted({*range(0, n, CHUNK), n})))
        for texts, cuts in [whole] if batching is None else batching.groups(starts, n):
            outputs = []
            for cut, end in pairwise(cuts):
                begins, part = [start + cut for start in starts[texts]], tree and tree.part(texts, cut, end)
                new = tokens[texts, cut:end], states[texts, cut:end]
                outputs.append(self._read(*new, begins, first + texts.start, part))
            parts.append(torch.cat(outputs, 1))
        return torch.cat(parts)

    @on_shared_cores
    def logits(self, made: Tensor) -> Tensor:
        """Return raw float32 logits [B, Vd] of the head's tokens, from the layer's output [B, H] of one row each."""
        w, parts = self._weights, []
        for x in torch.split(made, len(made) if w.batching is None else w.batching.logits.most):
            padded = x if w.batching is None else filled(x, w.batching.logits.at_least(len(x)))
            padded = padded if w.normed_output else w.norms["norm"](padded)
            parts.append(leading(w.kernels.product(padded, w.lm_head, None), len(x)))
        return torch.cat(parts).float()

    def _read(self, tokens: Tensor, states: Tensor, starts: Sequence[int], first: int, tree: TreeMask | None) -> Tensor:
        w, (b, n), heads = self._weights, tokens.shape, self._weights.heads
        product, limits = w.kernels.product, w.batching
        q = n if limits is None else limits.queries.at_least(n)
        m = min(q, limits.rows.most) if limits is not None and b == 1 else n
        end = max(starts) + n if limits is None else limits.end(max(starts) + n)
        self._rows.open(first + b, end)
        positions = torch.tensor(starts, device=self.device).unsqueeze(1) + torch.arange(q, device=self.device)
        if tree is None:
            unseen = torch.arange(end, device=self.device) > positions.unsqueeze(-1)  # [B, q, end]
            mask = torch.zeros_like(unseen, dtype=self.dtype).masked_fill_(unseen, -torch.inf)
        else:
            positions, mask = filled(tree.positions, q, 1), filled(tree.added(end, self.dtype), q, 1)
        embedded = self._filled(embedding(tokens.flatten(), w.embedding), b * m)
        state = self._filled(states.flatten(0, 1), b * m)
        hidden = w.norms["hidden_norm"](state)
        qkv = product(torch.cat([w.norms["input_layernorm"](embedded), hidden], -1), w.qkv, None)
        qkv = leading(qkv, b * m).view(b, m, heads.queries + 2 * heads.keys, heads.size)
        for name, part in (("q", slice(0, heads.queries)), ("k", slice(heads.queries, heads.queries + heads.keys))):
            if norm := w.norms.get(f"self_attn.{name}_norm"):
                qkv[:, :, part] = norm(qkv[:, :, part])
        turned, half = qkv[:, :, : heads.queries + heads.keys], heads.size // 2
        cosine, sine = (each.unsqueeze(2) for each in w.rotary(turned, positions[:, :m]))
        other = torch.cat([-turned[..., half:], turned[..., :half]], -1)
        turned.mul_(cosine).add_(other.mul_(sine))
        cache = self._rows.layers[0]
        for row, start in enumerate(starts):
            cache[first + row, start : start + n] = qkv[row, :n, heads.queries :]
        past = cache[first : first + b, :end].transpose(1, 2)  # [B, 2 G, end, D]
        queries = filled(qkv[:, :, : heads.queries].transpose(1, 2), q, 2)  # [B, H, q, D]
        mixed = w.kernels.attention(queries, past[:, : heads.keys], past[:, heads.keys :], mask.unsqueeze(1))
        mixed = leading(mixed.transpose(1, 2), m, 1).reshape(b * m, -1)
        x = product(self._filled(mixed, b * m), w.attention_out, hidden if w.normed_residual else state)
        x = product(gated(product(w.norms["post_attention_layernorm"](x), w.gate_up, None)), w.down, x)
        x = w.norms["norm"](x) if w.normed_output else x
        return leading(leading(x, b * m).view(b, m, -1), n, 1)

    def _filled(self, x: Tensor, count: int = 0) -> Tensor:
        """Return x padded to the number of rows computed for len(x) or `count`, whichever is larger."""
        limits = self._weights.batching
        count = max(count, len(x))
        return filled(x, count if limits is None else limits.rows.at_least(count))
