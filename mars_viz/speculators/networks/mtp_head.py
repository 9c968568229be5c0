"""The forward pass of layers for multi-token prediction (MTP) over a cache of rows, with transformers' decoder layers.

DeepSeek-AI 2024, 'DeepSeek-V3' (arXiv 2412.19437). Row j of a text reads token j + 1. Head 0 joins its embedding with
the target's state of token j, after the final norm, and head k with the output of head k - 1 in row j - 1. Both predict
token j + 2. Heads from 1 on read the first drafted token, those from 2 on the second. After the K-th token of a draft
the K heads run again, one for each token, as in vLLM.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from mars_viz.speculators.devices import sent
from mars_viz.speculators.networks.base import Rows, TreeMask
from mars_viz.speculators.networks.eagle3_head import HeadNetwork

NOT_READ = -1  # position of a row that a head did not read


@dataclass(frozen=True, slots=True)
class MtpHeads:
    """K heads of a target H wide."""

    layers: Sequence[nn.Module]  # transformers' `MtpLayer` each
    windows: Sequence[int | None]  # most positions that each head attends to, its own included; None for all
    rotary: Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]
    """Returns the rotary cosines and sines for values [B, n, H], their positions [B, n] and a head's number."""
    embeddings: Sequence[Callable[[Tensor], Tensor]]  # of each head, from tokens [B, n] to [B, n, H]
    outputs: Sequence[Tensor]  # [Vd, H] of each head


class _KeysAndValues:
    """A cache for transformers' attention, whose keys and values are written to places of rows."""

    def __init__(self) -> None:
        self.rows: dict[int, tuple[Rows, Rows]] = {}  # of each head, [rows, places, heads, D]
        self.at = torch.empty(0), torch.empty(0), 0, 0  # rows, places, first row and end of the next pass

    def update(self, keys: Tensor, values: Tensor, head: int, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        """Write keys and values [B, heads, n, D]; return those of all places up to `end`."""
        new = keys.transpose(1, 2), values.transpose(1, 2)
        homes, places, first, end = self.at
        held, last = [], first + len(homes)
        for rows, each in zip(self.rows.setdefault(head, (Rows(new[0]), Rows(new[1]))), new, strict=True):
            rows.reserve(last, end)
            rows.held[homes, places] = each
            held.append(rows.held[first:last, :end].transpose(1, 2))
        return held[0], held[1]


class MtpNetwork(HeadNetwork):
    """A pass over heads that may be shared, with a cache of its own.

    Outputs and states of drafted tokens are those of all heads side by side, K · H wide.
    """

    def __init__(self, heads: MtpHeads):
        self._heads = heads
        like, count = heads.outputs[0], len(heads.layers)
        self.device, self.dtype = like.device, like.dtype
        self._cache = _KeysAndValues()
        self._made = Rows(like.new_empty(0, 0, count, like.shape[1]))  # outputs of each head
        self._positions = Rows(torch.empty(0, 0, count, dtype=torch.int64, device=self.device))  # or `NOT_READ`

    def copy(self, source: int, slot: int, length: int) -> None:
        for rows in (self._made, self._positions, *(each for both in self._cache.rows.values() for each in both)):
            rows.copy(source, slot, length)

    def states(self, features: Tensor) -> Tensor:
        return features.to(self.dtype)

    def logits(self, made: Tensor, depth: int = 0) -> Tensor:
        head = depth % len(self._heads.layers)
        return linear(made.chunk(len(self._heads.layers), -1)[head], self._heads.outputs[head]).float()

    def _read(
        self, tokens: Tensor, states: Tensor, starts: Sequence[int], first: int, tree: TreeMask | None, depth: int
    ) -> Tensor:
        (b, n), count, end = tokens.shape, len(self._heads.layers), max(starts) + tokens.shape[1]
        begins, homes = sent([starts, range(first, first + b)], self.device).unsqueeze(-1).unbind(0)  # [B, 1] each
        places = begins + torch.arange(n, device=self.device)  # [B, n]
        paths = places if tree is None else tree.positions
        everywhere = torch.arange(end, device=self.device)
        seen = everywhere <= places.unsqueeze(-1) if tree is None else tree.added(end, self.dtype) == 0  # [B, n, end]
        for rows in (self._made, self._positions):
            rows.reserve(first + b, end)
        self._cache.at = homes, places, first, end
        made = self._made.held.new_zeros(b, n, count, states.shape[-1] if depth == 0 else states.shape[-1] // count)
        before = self._made.held[homes, (begins - 1).clamp(min=0)]  # [B, 1, K, H]
        self._positions.held[homes, places] = NOT_READ
        for head in range(depth, count) if depth < count else (depth % count,):
            if depth:
                inputs = states.chunk(count, -1)[head - 1]
            else:
                inputs = states if head == 0 else torch.cat([before[:, :, head - 1], made[:, :-1, head - 1]], 1)
            # row j has no head above j, since there is no output before row 0
            self._positions.held[homes, places, head] = torch.where(paths >= head, paths + 1, NOT_READ)
            keys = self._positions.held[first : first + b, None, :end, head]
            visible = seen & (keys != NOT_READ)
            if (window := self._heads.windows[head]) is not None:
                visible &= keys > (paths + 1 - window).unsqueeze(-1)
            visible |= everywhere == places.unsqueeze(-1)
            made[:, :, head] = self._passed(head, tokens, inputs, paths + 1, visible)
        self._made.held[homes, places] = made
        return made.flatten(2)

    def _passed(self, head: int, tokens: Tensor, states: Tensor, positions: Tensor, visible: Tensor) -> Tensor:
        """Return a head's outputs [B, n, H] for tokens [B, n]; `visible` is bool [B, n, places]."""
        heads = self._heads
        embeddings = heads.embeddings[head](tokens)
        mask = torch.zeros_like(visible, dtype=self.dtype).masked_fill_(~visible, torch.finfo(self.dtype).min)
        options: dict[str, Any] = {"position_ids": positions, "past_key_values": self._cache}
        return heads.layers[head](
            embeddings,
            states,
            position_embeddings=heads.rotary(embeddings, positions, head),
            attention_mask=mask.unsqueeze(1),
            **options,
        )
