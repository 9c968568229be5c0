"""Forward passes of any model from transformers, one row after another, over any of transformers' caches.

With full attention a row goes back to a shorter text by cropping. Recurrent state cannot be cropped: states are kept at
intervals, and the tokens since the last kept state are read again. `rewind_of` tries which way a model allows.
"""

from __future__ import annotations

import copy
import inspect
import itertools
import math
from collections.abc import Sequence
from enum import Enum
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import (
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionAndFullAttentionLayer,
    LinearAttentionAndSlidingWindowAttentionLayer,
)

from mars_viz.errors import ModelError
from mars_viz.speculators.devices import first_line, inference, is_gone, lacks_memory, place_of
from mars_viz.speculators.networks.base import LayerInputs, Network, Slots, TreeMask, last_states
from mars_viz.speculators.networks.batched import SLACK

STRIDE = 8  # fewest tokens between kept states of a recurrent model
TRIAL = 24  # tokens of the text on which ways of going back are tried


class Rewind(Enum):
    """Ways in which a row goes back to a shorter text, the cheapest first. The value is a note for users."""

    CROP = ""
    REPLAY = "its state cannot be cropped, so up to the last accepted tokens are read again after a rejection"
    STEPS = f"{REPLAY}, and tokens are read one per pass"
    WHOLE = "its cache cannot be used, so every pass reads the whole text"


class RowCache:
    """Cache of one row."""

    def __init__(self, rewind: Rewind):
        self._rewind = rewind
        self.tokens = torch.empty(0, dtype=torch.int64)  # [n]; at least the first `read` are valid
        self.read = 0  # tokens in the cache
        self.cache: DynamicCache | None = None
        self.long = False  # whether the cache was computed with the rotary angles of long texts
        self._kept: list[tuple[int, dict[int, Any]]] = []  # lengths, ascending, and layers that cannot be cropped

    def back_to(self, length: int) -> int:
        """Go back to `length` tokens, or to the last kept state before; return the number of tokens in the cache."""
        if self.read <= length:
            return self.read
        while self._kept and self._kept[-1][0] > length:
            self._kept.pop()
        if self._rewind is Rewind.CROP:
            end, layers = length, dict[int, Any]()
        else:
            end, layers = self._kept[-1] if self._kept else (0, {})
        if end == 0 or self.cache is None:
            self.clear()
            return 0
        for i, layer in enumerate(self.cache.layers):
            if i in layers:
                self.cache.layers[i] = copy.deepcopy(layers[i])
            else:
                layer.crop(end - self.read)
        self.read = end
        return end

    def clear(self) -> None:
        self.cache, self.read, self._kept = None, 0, []

    def keep(self) -> None:
        """Keep the present state if enough was read since the last kept one; older states are thinned out."""
        last = self._kept[-1][0] if self._kept else 0
        if self.read - last < STRIDE or self.cache is None:
            return
        state = {
            i: copy.deepcopy(layer) for i, layer in enumerate(self.cache.layers) if type(layer) is not DynamicLayer
        }
        now, places = self.read // STRIDE, [length // STRIDE for length, _ in self._kept]
        recent = (now - place <= 2 * (place & -place) for place in places)
        self._kept = [*itertools.compress(self._kept, recent), (self.read, state)]

    def copied(self) -> RowCache:
        """Return a row with a copy of the cache; kept states are shared, since they are never changed."""
        row = copy.copy(self)
        row.cache, row._kept = copy.deepcopy(self.cache), list(self._kept)
        return row


class PlainNetwork(Network):
    """Keeps a cache per row, so that rows of unequal length need no padding. A tree is scored in one pass if the model
    respects a custom mask, which is tested on the first tree. Otherwise its paths are scored one after another."""

    def __init__(self, model: PreTrainedModel, vocabulary_size: int, rewind: Rewind = Rewind.CROP):
        self.inputs = LayerInputs()
        self.device = place_of(model)
        self._model, self._vocabulary_size, self._rewind = model, vocabulary_size, rewind
        self._config = model.config.get_text_config(decoder=True)
        parameters = getattr(self._config, "rope_parameters", None) or {}
        kinds = [parameters, *(value for value in parameters.values() if isinstance(value, dict))]
        lengths = [value["original_max_position_embeddings"] for value in kinds if value.get("rope_type") == "longrope"]
        self._switch = min(lengths, default=None)  # the length above which all keys have other rotary angles
        self._accepts = inspect.signature(model.forward).parameters
        self._rows: dict[int, RowCache] = {}
        self._held: dict[int, dict[int, Tensor]] = {}  # by row and place, the ids of a tree's tokens
        croppable = rewind is Rewind.CROP and self._switch is None
        self._masks = None if croppable and not any(DynamicCache(config=self._config).is_sliding) else False

    def score(
        self, tokens: Tensor, starts: Sequence[int], rows: int, slots: Slots = None, tree: TreeMask | None = None
    ) -> Tensor:
        scored = []
        for i, (row, ids, start) in enumerate(zip(slots or range(len(starts)), tokens, starts, strict=True)):
            if tree is None:
                scored.append(self._score(row, ids, start, rows))
            else:
                scored.append(self._branched(row, ids, start, rows, tree.part(slice(i, i + 1), 0, len(ids))))
        return torch.stack(scored)

    def _score(self, slot: int, ids: Tensor, start: int, rows: int, tree: TreeMask | None = None) -> Tensor:
        end = start + len(ids)
        if self._switch is not None and start < self._switch < end and rows > end - self._switch:
            cut, after = self._switch - start, end - self._switch
            short = self._score(slot, ids[:cut], start, rows - after)
            return torch.cat([short, self._score(slot, ids[cut:], self._switch, after)])
        row = self._rows.setdefault(slot, RowCache(self._rewind))
        row.tokens = torch.cat([row.tokens[:start].to(ids.device), ids])
        row.back_to(start)
        if self._switch is not None and row.long != (end > self._switch):
            row.clear()  # keys were turned by other angles
            row.long = end > self._switch
        if self._rewind in (Rewind.REPLAY, Rewind.STEPS):
            if start - row.read >= STRIDE:
                self._read(slot, row, start, 1)
            if row.read == start:
                row.keep()
        return self._read(slot, row, end, rows, tree)

    def _read(self, slot: int, row: RowCache, end: int, rows: int, tree: TreeMask | None = None) -> Tensor:
        """Read a row's tokens up to `end`; return logits [rows, V] after the last ones."""
        parts: list[Tensor] = []
        while row.read < end:
            step_end = row.read + 1 if self._rewind is Rewind.STEPS and row.read else end
            parts.append(self._pass(slot, row, step_end, min(rows, step_end - row.read), tree))
            if self._rewind is Rewind.WHOLE:
                row.clear()
                break
        return torch.cat(parts[-rows:])[-rows:]

    def _pass(self, slot: int, row: RowCache, end: int, rows: int, tree: TreeMask | None) -> Tensor:
        ids = row.tokens[row.read : end].unsqueeze(0)
        options: dict[str, Any] = {"output_hidden_states": True} if self.inputs.layers else {}
        if "logits_to_keep" in self._accepts:
            options["logits_to_keep"] = rows
        if tree is not None:
            lowest = torch.finfo(self._model.dtype).min  # in place of -inf, as in transformers
            options["attention_mask"] = tree.added(end, self._model.dtype).clamp_(min=lowest).unsqueeze(1)
            options["position_ids"] = tree.positions
        if self._rewind is Rewind.WHOLE:
            options["use_cache"] = False
        else:
            row.cache = _cache_of(self._config) if row.cache is None else row.cache
            name = "past_key_values" if "past_key_values" in self._accepts else "cache_params"
            options |= {"use_cache": True, name: row.cache}
        with last_states(self._model, self.inputs.layers) as last:
            output = self._model(input_ids=ids, **options)
        if self.inputs.layers:  # hidden_states[i] enters layer i
            states = dict(enumerate(output.hidden_states)) | last
            self.inputs.put([slot], [row.read], [states[i] for i in self.inputs.layers])
        row.read = end
        return output.logits[0, -rows:, : self._vocabulary_size].float()

    def _branched(self, slot: int, ids: Tensor, start: int, rows: int, tree: TreeMask) -> Tensor:
        (begin,) = tree.begins
        if start == begin:
            self._held[slot] = {}
        self._held[slot].update(enumerate(ids, start))
        if self._masks is None:
            self._masks = self._heeds_masks(slot, ids, start, tree)
        return self._score(slot, ids, start, rows, tree) if self._masks else self._paths(slot, ids, start, rows, tree)

    def _heeds_masks(self, slot: int, ids: Tensor, start: int, tree: TreeMask) -> bool:
        """Return whether a pass over the tree gives the logits of passes over its paths, within rounding."""
        before = self._rows.setdefault(slot, RowCache(self._rewind)).copied()
        paths = self._paths(slot, ids, start, len(ids), tree)
        self._rows[slot] = before
        try:
            logits = self._score(slot, ids, start, len(ids), tree)
        except (TypeError, ValueError, RuntimeError):  # it takes no such mask
            self._rows[slot].clear()
            return False
        return bool((logits - paths).abs().amax() <= rounding(self._model.dtype) * paths.abs().amax())

    def _paths(self, slot: int, ids: Tensor, start: int, rows: int, tree: TreeMask) -> Tensor:
        """Score a tree path by path, the first path last, so that the cache holds it afterwards."""
        (begin,), sees, ids_at = tree.begins, tree.sees[0].cpu(), self._held[slot]
        first = start - begin  # of the places that are seen by some, the one where the tokens are written
        followed = sees[:, first : first + len(ids)].sum(0) > 1
        logits_at: dict[int, Tensor] = {}
        for leaf in reversed((~followed).nonzero().flatten().tolist()):
            path = sees[leaf].nonzero().flatten().tolist()
            path_logits = self._score(slot, torch.stack([ids_at[begin + place] for place in path]), begin, len(path))
            logits_at.update(
                (place - first, row) for place, row in zip(path, path_logits, strict=True) if place >= first
            )
        return torch.stack([logits_at[i] for i in range(len(ids))])[-rows:]

    def copy(self, source: int, slot: int, length: int) -> None:
        self._rows[slot] = self._rows[source].copied()
        self._rows[slot].back_to(length)
        self.inputs.copy(source, slot, length)


def rewind_of(model: PreTrainedModel, vocabulary_size: int) -> Rewind:
    """Return the cheapest way of going back that reproduces the model's logits, by trial on a short text.

    Each way reads blocks, goes back within the last pass and beyond it, and copies a row. Its logits are compared with
    those of passes over whole texts without a cache. Raises ModelError for a model whose passes without a cache fail,
    or whose logits depend on later tokens.
    """
    name = type(model).__name__
    ids = torch.arange(2 * TRIAL, device=place_of(model)).reshape(2, TRIAL) * 7919 % vocabulary_size
    ids[1, :10] = ids[0, :10]  # two texts that part
    uncached = PlainNetwork(model, vocabulary_size, Rewind.WHOLE)
    with inference():
        try:
            expected = uncached.score(ids, [0, 0], TRIAL)
            shorter = uncached.score(ids[:1, :12], [0], 12)
        except Exception as error:  # whatever the model's code raises
            if lacks_memory(error) or is_gone(error):
                raise
            why = first_line(error)
            raise ModelError(f"{name} cannot read plain text ({why}). Take a causal language model.") from error
        if (change := apart(shorter, expected[:1, :12])) > rounding(model.dtype):
            raise ModelError(
                f"{name} changes its logits by up to {change:.2g} of the largest when more text follows, so one pass "
                "cannot verify a draft. Take a causal language model."
            )
        slack, differences = 2 * SLACK.get(model.dtype, 0.05), dict.fromkeys(Rewind, math.inf)
        for rewind in Rewind:
            if rewind is Rewind.CROP and not _cache_of(model.config.get_text_config(decoder=True)).is_croppable:
                continue
            try:
                differences[rewind] = _tried(PlainNetwork(model, vocabulary_size, rewind), ids, expected)
            except Exception as error:  # it takes no such cache, or cannot go on from it
                if lacks_memory(error) or is_gone(error):
                    raise
            if differences[rewind] <= slack:
                return rewind
    noise = 4 * differences[Rewind.WHOLE]  # of passes of other lengths, as when experts are chosen otherwise
    return next((rewind for rewind in Rewind if differences[rewind] <= noise), Rewind.WHOLE)


def _tried(network: PlainNetwork, ids: Tensor, expected: Tensor) -> float:
    """Return how far logits are from expected ones [2, TRIAL, V] after passes that go on, back and diverge."""
    difference = 0.0
    for text, start, end in ((0, 0, 1), (0, 1, 12), (0, 12, 17), (0, 14, 18), (1, 10, 15), (1, 15, 16)):
        logits = network.score(ids[text : text + 1, start:end], [start], end - start)
        difference = max(difference, apart(logits, expected[text : text + 1, start:end]))
    network.copy(0, 1, 12)
    logits = network.score(torch.stack([ids[1, 16:19], ids[1, 12:15]]), [16, 12], 3)
    return max(difference, apart(logits, torch.stack([expected[1, 16:19], expected[1, 12:15]])))


def rounding(dtype: torch.dtype) -> float:
    """Return the largest rounding difference of two passes, as a share of the largest logit. It is 0.001 in float32, 32
    steps of other dtypes, and at most 0.25."""
    return min(0.25, max(1e-3, 32 * torch.finfo(dtype).eps))


def apart(found: Tensor, expected: Tensor) -> float:
    """Return the largest difference as a share of the largest logit; NaN if there is a NaN."""
    return float((found - expected).abs().amax() / expected.abs().amax())


def _cache_of(config: PreTrainedConfig) -> DynamicCache:
    """Return an empty cache without windows: masks limit attention, and a branch may go back beyond a window."""
    cache = DynamicCache(config=config)
    for i, layer in enumerate(cache.layers):
        if type(layer) is DynamicSlidingWindowLayer:
            cache.layers[i] = DynamicLayer()
        elif type(layer) is LinearAttentionAndSlidingWindowAttentionLayer:
            cache.layers[i] = LinearAttentionAndFullAttentionLayer(layer.number_of_states)
    return cache
