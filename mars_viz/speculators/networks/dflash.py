"""The forward pass of a DFlash drafter over a cache of rows. Knows weights and tensors; knows no files, no prefixes.

Chen et al. 2026, 'DFlash' (arXiv 2602.06036). Place j of a row holds the keys and values of every layer for token j,
computed from the target's hidden states of that token. A block, which is the last token and masks after it, sees these
places and itself. Each of its slots gives the logits of one token, so that one pass drafts a block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, Qwen3Config
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer, Qwen3RMSNorm

from mars_viz.speculators.devices import sent
from mars_viz.speculators.networks.base import Rows, TreeMask
from mars_viz.speculators.networks.llama_forward import Attention, Heads, Layer, Matrix, Norm, reorder

CHUNK = 512  # tokens of a text that are read at once


@dataclass(frozen=True, slots=True)
class Sight:
    """Keys that a slot of a block sees in a layer. None is no limit."""

    back: int | None = None  # most positions before the slot
    ahead: int | None = None  # most positions after the slot
    from_anchor: bool = False  # True if `back` counts from the block's first slot

    def mask(self, starts: Tensor, block: int, end: int) -> Tensor:
        """Return which of the places before `end` each slot sees, bool [B, block, end], for blocks at places [B]."""
        places = torch.arange(end, device=starts.device)
        anchors = starts[:, None, None]  # [B, 1, 1]
        slots = anchors + torch.arange(block, device=starts.device).unsqueeze(-1)  # [B, block, 1]
        sees = (places < anchors + block).expand(-1, block, -1)
        if self.back is not None:
            sees = sees & (places >= (anchors if self.from_anchor else slots) - self.back)
        return sees if self.ahead is None else sees & (places <= slots + self.ahead)


class Block(nn.Module):
    """Parameters of a drafter by z-lab's names, which reads k features of the target's width H."""

    def __init__(self, config: Qwen3Config, features: int):
        super().__init__()
        self.heads = Heads(config.num_attention_heads, config.num_key_value_heads, config.head_dim)
        width, epsilon = config.hidden_size, config.rms_norm_eps
        self.layers = nn.ModuleList(Qwen3DecoderLayer(config, i) for i in range(config.num_hidden_layers))
        self.fc = nn.Linear(features * width, width, bias=False)
        self.hidden_norm, self.norm = Qwen3RMSNorm(width, epsilon), Qwen3RMSNorm(width, epsilon)


class BlockWeights:
    """Constants of a drafter."""

    def __init__(
        self,
        block: Block,
        rotary: LlamaConfig,
        sights: Sequence[Sight],
        slots: tuple[int, int],
        mask: int,
        embed: Callable[[Tensor], Tensor],
        head: Tensor,
    ):
        """Create weights of parameters that are on the device, with the sight of each layer.

        The `slots` are their number and the first one that drafts. All but the first read the token `mask`. `embed`
        returns embeddings [B, n, H] of tokens [B, n], and `head` are the output rows [V', H].
        """
        self.heads = block.heads
        with torch.inference_mode(False):
            self.layers = [Layer(layer) for layer in block.layers]
        self.fc, self.lm_head = Matrix(block.fc.weight), Matrix(head)
        self.hidden_norm, self.norm = Norm.of(block.hidden_norm), Norm.of(block.norm)
        first = self.heads.queries * self.heads.size
        biases = [layer.qkv.bias[first:] for layer in self.layers if layer.qkv.bias is not None]
        weights = torch.cat([layer.qkv.weight[first:] for layer in self.layers])
        self.keys_values = Matrix(weights, torch.cat(biases) if biases else None)  # [layers 2 G D, H]
        self.sights, (self.size, self.first), self.mask, self.embed = tuple(sights), slots, mask, embed
        self.rotary = LlamaRotaryEmbedding(rotary).to(head.device)
        reorder([*self.layers, self])


class BlockNetwork:
    """A pass over weights that may be shared, with a cache of its own."""

    def __init__(self, weights: BlockWeights):
        like, heads = weights.lm_head.weight, weights.heads
        self.device, self._dtype, self._weights = like.device, like.dtype, weights
        self._rows = Rows(like.new_empty(0, 0, len(weights.layers), 2 * heads.keys, heads.size))

    def copy(self, source: int, slot: int, length: int) -> None:
        self._rows.copy(source, slot, length)

    def remember(self, features: Tensor, starts: Sequence[int], first: int = 0) -> None:
        """Write keys and values of the target's features [B, n, k H], from places `starts` on, to the rows of the cache
        from `first` on."""
        w = self._weights
        for cut in range(0, features.shape[1], CHUNK):
            states = w.hidden_norm(w.fc(features[:, cut : cut + CHUNK].to(self._dtype)))
            attention = self._attention(states, [start + cut for start in starts], first)
            parts = w.keys_values(states).chunk(len(w.layers), -1)
            for i, (layer, keys_values) in enumerate(zip(w.layers, parts, strict=True)):
                attention.keep(keys_values, layer.norms[1], self._rows.held[:, :, i])

    def draft(self, anchors: Tensor, starts: Sequence[int]) -> Tensor:
        """Return raw float32 logits [B, drafted, V'] of the tokens after the anchors [B], which are at places `starts`
        of the first B rows.

        The block's keys and values are in the cache from there on, and `remember` has to replace them.
        """
        w = self._weights
        masks = anchors.new_full((len(anchors), w.size - 1), w.mask)
        x = w.embed(torch.cat([anchors.unsqueeze(1), masks], 1)).to(self._dtype)
        attentions = {sight: self._attention(x, starts, 0, sight) for sight in dict.fromkeys(w.sights)}
        for i, (layer, sight) in enumerate(zip(w.layers, w.sights, strict=True)):
            x = layer(x, attentions[sight], self._rows.held[:, :, i])
        return w.lm_head(w.norm(x[:, w.first :])).float()

    def _attention(self, x: Tensor, starts: Sequence[int], first: int, sight: Sight | None = None) -> Attention:
        w, (b, n) = self._weights, x.shape[:2]
        end, mask = max(starts) + n, None
        self._rows.reserve(first + b, end)
        begins, homes = sent([starts, range(first, first + b)], self.device).unbind(0)
        if sight is not None:
            positions = begins.unsqueeze(1) + torch.arange(n, device=self.device)
            mask = TreeMask([0] * b, sight.mask(begins, n, end), positions)
        at, most = (begins, homes, first, end), self._rows.held.shape[1]
        return Attention(w.heads, w.heads.size**-0.5, w.rotary, x, at, most, mask)
