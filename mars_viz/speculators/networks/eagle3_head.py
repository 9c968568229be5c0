"""The forward pass of an EAGLE-3 head over a cache of rows. Knows weights and tensors; knows no files, no prefixes.

Li et al. 2025, 'EAGLE-3' (arXiv 2503.01840). Row j of a text reads the embedding of token j + 1 and a state: the state
of token j, which `fc` computes from inputs of some layers of the target (or the target's own state, without `fc`), or
the head's own output for the previous row. The output of a row is the state of the next one; `norm` and `lm_head`
compute the logits of token j + 2 from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import embedding, silu
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from mars_viz.speculators.devices import sent
from mars_viz.speculators.networks.base import Rows, TreeMask
from mars_viz.speculators.networks.llama_forward import Attention, Heads, Matrix, Norm, reorder

CHUNK = 512  # tokens of a text that are read at once


class HeadWeights:
    """Constants of a head. H wide, k features of Ht."""

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        heads: Heads,
        epsilon: float,
        rotary: LlamaConfig,
        *,
        normed_residual: bool = False,
        normed_output: bool = False,
    ):
        """Create weights from a checkpoint's tensors by name, including embed_tokens.weight and lm_head.weight. Device
        and dtype of the computation are those of the tensors.

        With `normed_residual` attention's result is added to the normed state. With `normed_output` the next row's
        state is the output of `norm`, as in EAGLE-3.1, instead of its input.
        """

        def matrix(*names: str) -> Matrix:
            return Matrix(torch.cat([tensors[f"{name}.weight"] for name in names]))

        self.heads, self.normed_residual, self.normed_output = heads, normed_residual, normed_output
        self.embedding = tensors["embed_tokens.weight"]  # [V, H]
        self.fc = matrix("fc") if "fc.weight" in tensors else None
        """[H, k Ht]; None if the features are H wide and serve as states."""
        self.qkv = matrix("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")  # [(heads + 2 groups) D, 2 H]
        self.out, self.down = matrix("self_attn.o_proj"), matrix("mlp.down_proj")  # [H, heads D], [H, I]
        self.gate_up, self.lm_head = matrix("mlp.gate_proj", "mlp.up_proj"), matrix("lm_head")  # [2 I, H], [Vd, H]
        weights = {name.removesuffix(".weight"): weight for name, weight in tensors.items() if "norm" in name}
        self.norms = {name: Norm(weight, epsilon) for name, weight in weights.items()}
        """By name in a checkpoint: input_layernorm, hidden_norm, post_attention_layernorm, norm; optionally input_norm
        (of the features) or fc_norm.0, fc_norm.1, … (of each feature), self_attn.q_norm and self_attn.k_norm."""
        self.rotary = LlamaRotaryEmbedding(rotary).to(self.embedding.device)
        reorder([self])


class HeadNetwork:
    """A pass of a head over a target's hidden states, with a cache. Row j of a text reads token j + 1 and a state."""

    device: torch.device

    def copy(self, source: int, slot: int, length: int) -> None:
        """Copy the first `length` places of row `source` of the cache to row `slot`."""
        raise NotImplementedError

    def states(self, features: Tensor) -> Tensor:
        """Return the states [B, n, H] of features [B, n, k Ht]."""
        raise NotImplementedError

    def logits(self, made: Tensor, depth: int = 0) -> Tensor:
        """Return raw float32 logits [B, Vd] of the head's tokens, from the outputs of one row each, read at `depth`."""
        raise NotImplementedError

    def _read(
        self, tokens: Tensor, states: Tensor, starts: Sequence[int], first: int, tree: TreeMask | None, depth: int
    ) -> Tensor:
        raise NotImplementedError

    def read(
        self,
        tokens: Tensor,
        states: Tensor,
        starts: Sequence[int],
        slots: Sequence[int],
        tree: TreeMask | None = None,
        depth: int = 0,
    ) -> Tensor:
        """Return the outputs [B, n, E] for the tokens [B, n] and their states.

        The outputs are the states of the next rows and the input of `logits`. `depth` is 0 for tokens of the texts,
        whose states come from `states`, and 1, 2, … for the first, second, … drafted token. Text b is row slots[b] of
        the cache, written from place starts[b] on; slots are consecutive in any order. Each row sees all before it, or
        what `tree` lets it see.
        """
        n, first, outputs = tokens.shape[1], min(slots), []
        places = [slot - first for slot in slots]
        if shuffled := places != list(range(len(slots))):
            order = sorted(range(len(slots)), key=slots.__getitem__)
            tokens, states, tree = tokens[order], states[order], tree and tree.arranged(order)
            starts = [starts[i] for i in order]
        for cut in range(0, n, CHUNK):
            end = min(n, cut + CHUNK)
            mask = tree and tree.part(slice(len(starts)), cut, end)
            begins = [start + cut for start in starts]
            outputs.append(self._read(tokens[:, cut:end], states[:, cut:end], begins, first, mask, depth))
        made = torch.cat(outputs, 1)
        return made[places] if shuffled else made


class EagleNetwork(HeadNetwork):
    """A pass over weights that may be shared, with a cache of its own."""

    def __init__(self, weights: HeadWeights):
        self.device, self.dtype = weights.embedding.device, weights.down.weight.dtype
        self._weights, heads = weights, weights.heads
        self._rows = Rows(torch.empty(0, 0, 2 * heads.keys, heads.size, dtype=self.dtype, device=self.device))

    def copy(self, source: int, slot: int, length: int) -> None:
        self._rows.copy(source, slot, length)

    def states(self, features: Tensor) -> Tensor:
        w, x = self._weights, features.to(self.dtype)
        if w.fc is None:
            return x
        x = w.norms["input_norm"](x) if "input_norm" in w.norms else x
        if count := sum(name.startswith("fc_norm.") for name in w.norms):
            x = torch.cat([w.norms[f"fc_norm.{i}"](feature) for i, feature in enumerate(x.chunk(count, -1))], -1)
        return w.fc(x)

    def logits(self, made: Tensor, depth: int = 0) -> Tensor:
        w = self._weights
        return w.lm_head(made if w.normed_output else w.norms["norm"](made)).float()

    def _read(
        self, tokens: Tensor, states: Tensor, starts: Sequence[int], first: int, tree: TreeMask | None, depth: int
    ) -> Tensor:
        w, (b, n), heads = self._weights, tokens.shape, self._weights.heads
        end, norms = max(starts) + n, self._weights.norms
        self._rows.reserve(first + b, end)
        begins, homes = sent([starts, range(first, first + b)], self.device).unbind(0)
        hidden = norms["hidden_norm"](states)
        x = torch.cat([norms["input_layernorm"](embedding(tokens, w.embedding)), hidden], -1)
        at, most = (begins, homes, first, end), self._rows.held.shape[1]
        attention = Attention(heads, heads.size**-0.5, w.rotary, x, at, most, tree)
        of_heads = norms.get("self_attn.q_norm"), norms.get("self_attn.k_norm")
        x = (hidden if w.normed_residual else states) + w.out(attention(w.qkv(x), of_heads, self._rows.held))
        gate, up = w.gate_up(norms["post_attention_layernorm"](x)).chunk(2, -1)
        x = x + w.down(silu(gate) * up)
        return norms["norm"](x) if w.normed_output else x
