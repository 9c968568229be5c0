"""Any model's own forward pass and cache from transformers, one row after the other."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from mars_viz.speculators.device_map import place_of
from mars_viz.speculators.networks.layer_inputs import LayerInputs
from mars_viz.speculators.networks.tree_mask import TreeMask
from mars_viz.speculators.threads import on_shared_cores


class PlainNetwork:
    """Keeps a cache per row, so that rows of unequal length need no padding and any cache that can be cropped works.

    A tree is scored in one pass where the model heeds a mask of our own, which is tried on the first one; else its
    paths are, one after the other.
    """

    def __init__(self, model: PreTrainedModel, vocabulary_size: int):
        self.inputs = LayerInputs()
        self.device = place_of(model)
        self._model = model
        self._vocabulary_size = vocabulary_size
        self._caches: dict[int, DynamicCache] = {}
        self._held: dict[int, dict[int, Tensor]] = {}  # by row and place, the ids of a tree's tokens
        self._masks: bool | None = None  # not known yet

    @on_shared_cores
    def score(
        self,
        tokens: Tensor,
        starts: Sequence[int],
        rows: int,
        slots: Sequence[int] | None = None,
        tree: TreeMask | None = None,
    ) -> Tensor:
        """Raw float32 logits [B, rows, V] after the last `rows` of the tokens [B, n]; see `Network.score`."""
        found = []
        for i, (row, ids, start) in enumerate(zip(slots or range(len(starts)), tokens, starts, strict=True)):
            if tree is None:
                found.append(self._score(row, ids, start, rows))
            else:
                found.append(self._branched(row, ids, start, rows, tree.part(slice(i, i + 1), 0, len(ids))))
        return torch.stack(found)

    def _score(self, row: int, ids: Tensor, start: int, rows: int, tree: TreeMask | None = None) -> Tensor:
        cache = self._cache(row)
        _crop(cache, start)
        placed = {}
        if tree is not None:
            placed = {
                "attention_mask": _finite(tree.added(start + len(ids), self._model.dtype)).unsqueeze(1),
                "position_ids": tree.positions,
            }
        output = self._model(
            input_ids=ids.unsqueeze(0),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=rows,
            output_hidden_states=bool(self.inputs),
            **placed,
        )
        if self.inputs:  # hidden_states[i] enters layer i
            self.inputs.put([row], [start], [output.hidden_states[i] for i in self.inputs.layers])
        return output.logits[0, :, : self._vocabulary_size].float()

    def _cache(self, row: int) -> DynamicCache:
        if row not in self._caches:
            self._caches[row] = DynamicCache(config=self._model.config)
            self._caches[row].activate_past_recording()  # some layers can be cropped only then
        return self._caches[row]

    def _branched(self, row: int, ids: Tensor, start: int, rows: int, tree: TreeMask) -> Tensor:
        """`_score` of a tree."""
        (begin,) = tree.begins
        if start == begin:
            self._held[row] = {}
        self._held[row].update(enumerate(ids, start))
        if self._masks is None:
            self._masks = self._heeds_masks(row, ids, start, tree)
        return self._score(row, ids, start, rows, tree) if self._masks else self._paths(row, ids, start, rows, tree)

    def _heeds_masks(self, row: int, ids: Tensor, start: int, tree: TreeMask) -> bool:
        """True if a pass over the tree says what passes over its paths say, within rounding."""
        if any(type(layer) is not DynamicLayer for layer in self._cache(row).layers):  # such as a sliding window
            return False
        before = copy.deepcopy(self._caches[row])
        paths = self._paths(row, ids, start, len(ids), tree)
        self._caches[row] = before
        try:
            found = self._score(row, ids, start, len(ids), tree)
        except (TypeError, ValueError, RuntimeError):  # it takes no such mask
            return False
        allowed = min(0.25, max(1e-3, 32 * torch.finfo(self._model.dtype).eps))
        return bool((found - paths).abs().amax() <= allowed * paths.abs().amax())

    def _paths(self, row: int, ids: Tensor, start: int, rows: int, tree: TreeMask) -> Tensor:
        """Path by path, the first one last, which the cache holds then."""
        (begin,), sees, held = tree.begins, tree.sees[0].cpu(), self._held[row]
        first = start - begin  # of the places that are seen by some, the one where the tokens are written
        followed = sees[:, first : first + len(ids)].sum(0) > 1
        found: dict[int, Tensor] = {}
        for leaf in reversed((~followed).nonzero().flatten().tolist()):
            path = sees[leaf].nonzero().flatten().tolist()
            logits = self._score(row, torch.stack([held[begin + place] for place in path]), begin, len(path))
            found.update((place - first, each) for place, each in zip(path, logits, strict=True) if place >= first)
        return torch.stack([found[i] for i in range(len(ids))])[-rows:]

    def copy(self, source: int, slot: int, length: int) -> None:
        """Make row `slot` of the cache what row `source` is, up to `length` places."""
        self._caches[slot] = copy.deepcopy(self._caches[source])
        _crop(self._caches[slot], length)
        self.inputs.copy(source, slot, length)


def _finite(mask: Tensor) -> Tensor:
    """The same with the dtype's least number in place of -inf, as transformers writes it."""
    return mask.clamp_(min=torch.finfo(mask.dtype).min)


def _crop(cache: DynamicCache, length: int) -> None:
    excess = cache.get_seq_length() - length
    if excess > 0:
        cache.crop(-excess)
