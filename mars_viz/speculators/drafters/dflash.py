"""DFlash drafters: the reader of their checkpoints in three layouts, and the drafter.

Layouts are z-lab's (github.com/z-lab/dflash), vLLM's speculators (github.com/vllm-project/speculators) and that of
transformers' Muse Glimmer assistants. z-lab and transformers number the target's layers by their outputs; here, as in
speculators, a number means a layer's input. The last output is before the last norm in speculators, after it elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding
from torch.nn.utils.rnn import pad_sequence
from transformers import LlamaConfig, Qwen3Config

from mars_viz.errors import ModelError
from mars_viz.speculators.backend import Part
from mars_viz.speculators.devices import sent
from mars_viz.speculators.draft import Draft
from mars_viz.speculators.drafters import Dflash
from mars_viz.speculators.drafters.checkpoints import Config, Saved, TargetShape, opened, some_of, with_shared
from mars_viz.speculators.drafters.heads import ALONE, FollowingDrafter
from mars_viz.speculators.drafters.model import keyed_uniforms
from mars_viz.speculators.drafters.token_trees import tree_drafted
from mars_viz.speculators.networks.base import NORMED
from mars_viz.speculators.networks.dflash import Block, BlockNetwork, BlockWeights, Sight
from mars_viz.speculators.networks.llama_forward import Heads
from mars_viz.speculators.site import DrafterPart, Origin, Ready, Site
from mars_viz.walk import Prefix

ZLAB, SPECULATORS, TRANSFORMERS = "z-lab's", "speculators'", "transformers'"  # layouts of checkpoints
ALIASES = {"encoder.fc.weight": "fc.weight", "encoder.output_norm_enc.weight": "hidden_norm.weight"}
OTHERS = {
    "DFlash2": "dflash2|conv_kernel_size|selector_",
    "DSpark": "dspark|markov",
    "Domino": "domino|prefix_gru|embed_proj",
    "P-EAGLE": "p_?eagle|mask_hidden",
    "EAGLE-3": "eagle|midlayer",
    "MTP": r"\b(mtp|enorm)",
}
"""Other kinds of drafters, by a part of an entry in their configuration or of a tensor's name."""
COPIED = (
    *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
    *("rms_norm_eps", "hidden_act", "attention_bias"),
)
"""Entries of a configuration that set the sizes of layers."""
TAKE_TARGET = "Take the target that the drafter was trained for."


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A drafter as saved, under z-lab's names."""

    layout: str
    layers: tuple[int, ...]  # the target's layers whose inputs it reads; see `LayerInputs`
    slots: tuple[int, int]  # B, the size of a block, and the first slot that drafts a token
    mask: int  # the token that all slots but the first read
    sights: tuple[Sight, ...]  # of each layer
    config: Qwen3Config  # sizes of its layers
    rotary: LlamaConfig  # configuration of its positions
    vocabulary: Tensor | None  # int64 [V'], ascending; the target's ids of its tokens; None if they are the target's
    tensors: Mapping[str, Tensor]  # of `Block`; optionally embed_tokens.weight and lm_head.weight

    @property
    def longest(self) -> int:
        return self.slots[0] - self.slots[1]

    @property
    def note(self) -> str:
        read = ", ".join("the last norm's output" if layer == NORMED else str(layer) for layer in self.layers)
        note = f"{self.layout} layout, drafts {self.longest} tokens in one pass from the inputs of the target's layers"
        return f"{note} (counted from 0): {read}"


def ready(named: Dflash, target: Origin) -> Ready:
    """Read a drafter, and return the function that shares the tensors which it lacks with the target."""
    folder, name, revision, shape = opened(named, target)
    head = read_checkpoint(folder, shape, name)

    def load(site: Site) -> DrafterPart:
        tensors, vocabulary = with_shared(name, head.tensors, head.vocabulary, site)
        embeddings, rows = tensors.pop("embed_tokens.weight"), tensors.pop("lm_head.weight")
        shared: Callable[[Tensor], Tensor] = site.inside(name).get_input_embeddings()  # may scale them
        embed = partial(embedding, weight=embeddings) if "embed_tokens.weight" in head.tensors else shared
        with torch.device("meta"):
            block = Block(head.config, len(head.layers))
        block.load_state_dict(tensors, assign=True)
        weights = BlockWeights(
            block.requires_grad_(False), head.rotary, head.sights, head.slots, head.mask, embed, rows
        )
        return Part(
            name,
            lambda settings: DflashDrafter(BlockNetwork(weights), head.layers, vocabulary, settings, guess=""),
            revision,
            note=head.note,
            drafts_trees=True,
            longest=head.longest,
        )

    return load


def read_checkpoint(folder: Path, target: TargetShape, name: str) -> Checkpoint:
    """Return the drafter in a folder; `name` is for messages. Raises ModelError with a remedy for another model, or one
    for another target."""
    saved = Saved(folder, name, lambda name: ALIASES.get(name, name))
    config, shapes = saved.config, saved.shapes
    nested, inner = (config.get(name) for name in ("dflash_config", "transformer_layer_config"))
    own: dict[str, Any] = nested if isinstance(nested, dict) else {}
    layer: dict[str, Any] = {"attention_bias": False, **config} | (inner if isinstance(inner, dict) else {})
    layout = SPECULATORS if isinstance(inner, dict) or "speculators_model_type" in config else ZLAB
    if any(names.keys() & ALIASES.keys() for names in saved.files.values()):
        layout = TRANSFORMERS
    _check_kind(saved, own)
    count = saved.entry("num_hidden_layers", int, layer)
    layers, features = _layers_read(saved, layout, own, count, target), shapes.get("fc.weight", (0, 0))[1]
    size = shapes.get("layers.0.self_attn.q_norm.weight", (1,))[0]
    queries, keys = (saved.entry(f"num_{kind}_heads", int, layer) for kind in ("attention", "key_value"))
    rotary = saved.rotary(layer, Heads(queries, keys, size))
    if layer.get("hidden_size") != target.width or features != len(layers) * target.width:
        raise ModelError(
            f"{name} is {layer.get('hidden_size')} wide and reads {features} numbers of each token; {len(layers)} "
            f"layers of {target.name}, {target.width} wide, give {len(layers) * target.width}. {TAKE_TARGET}"
        )
    try:
        if not 0 < count <= len(shapes):
            raise ValueError(f"{count} layers")
        sizes = Qwen3Config(**{name: layer[name] for name in COPIED if name in layer}, head_dim=size)
        with torch.device("meta"):
            expected = {name: tuple(each.shape) for name, each in Block(sizes, len(layers)).state_dict().items()}
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise ModelError(f"The config.json of {name} describes no layers ({error}); mend it.") from error
    rows = shapes.get("lm_head.weight", (target.vocabulary,))[0]
    embedded = max(target.vocabulary, shapes.get("embed_tokens.weight", (0,))[0])
    optional: dict[str, tuple[int, ...]] = {"d2t": (rows,), "t2d": (target.vocabulary,)}
    optional |= {"embed_tokens.weight": (embedded, target.width), "lm_head.weight": (rows, target.width)}
    saved.check(
        expected,
        optional if layout == SPECULATORS else {},
        "Take a whole DFlash drafter, in the layout of z-lab, speculators or transformers, that was trained for this "
        "target.",
    )
    tensors = saved.tensors()
    vocabulary = saved.vocabulary(tensors, target)
    block, first = saved.entry("block_size", int, config | own), int(config.get("sample_from_anchor") is True)
    mask = saved.entry("mask_token_id", int, config | own)
    if block < 2 or mask >= embedded:
        raise ModelError(
            f"The config.json of {name} has no usable block_size ({block}) and mask_token_id ({mask}) for the "
            f"{target.vocabulary} tokens of {target.name}. {TAKE_TARGET}"
        )
    sights = _sights(saved, layout, own, layer, count)
    return Checkpoint(layout, layers, (block, 1 - first), mask, sights, sizes, rotary, vocabulary, tensors)


def _check_kind(saved: Saved, own: Config) -> None:
    """Raise ModelError for a drafter of another kind, and for entries that change the pass."""
    config = saved.config
    entries = [key for each in (config, own) for key, value in each.items() if value]
    words = [config.get("architectures"), config.get("speculators_model_type"), own.get("projector_type")]
    described = " ".join([*entries, *map(str, words), *saved.shapes]).lower()
    kind = next((kind for kind, part in OTHERS.items() if re.search(part, described)), "")
    if kind:
        raise ModelError(f"{saved.name} is a drafter of the kind {kind}; take a DFlash drafter.")
    changes = [name for name in ("is_neox_style", "rope_is_neox_style") if config.get(name) is False]
    changes += [name for name in ("shift_label", "fc_layernorm", "attention_sink_bias") if own.get(name)]
    if changes:
        raise ModelError(
            f"{saved.name} sets {some_of(changes)} in config.json, which is not computed here; take another drafter."
        )


def _layers_read(saved: Saved, layout: str, own: Config, drafting: int, target: TargetShape) -> tuple[int, ...]:
    """Return the target's layers whose inputs are read. Raises ModelError for numbers that are no layers."""
    key, count = "aux_hidden_state_layer_ids" if layout == SPECULATORS else "target_layer_ids", target.layers
    config = saved.config | dict(own)
    numbers: Any = config.get(key)
    if numbers is None and layout == ZLAB:  # z-lab's own choice
        step = (count - 4) / max(1, drafting - 1)
        numbers = [count // 2] if drafting == 1 else [round(1 + i * step) for i in range(drafting)]
    whole = isinstance(numbers, list) and all(type(each) is int for each in numbers)
    inputs = [each + (layout != SPECULATORS) for each in numbers] if whole else []
    if not inputs or not all(0 <= each <= count for each in inputs) or config.get("num_target_layers", count) != count:
        raise ModelError(
            f"{saved.name} reads layers {some_of([str(numbers)])} ({key}) of a target of "
            f"{config.get('num_target_layers', 'unknown')} layers, and {target.name} has {count}. {TAKE_TARGET}"
        )
    return tuple(NORMED if each == count and layout != SPECULATORS else each for each in inputs)


def _sights(saved: Saved, layout: str, own: Config, layer: Config, count: int) -> tuple[Sight, ...]:
    """Return the sight of each layer. Windows are those of transformers, of speculators' training, and for z-lab's
    layout of vLLM, which serves it. Raises ModelError for unknown kinds of layers."""
    default = "sliding_attention" if layout == TRANSFORMERS or own.get("use_swa") else "full_attention"
    kinds, window = layer.get("layer_types") or [default] * count, own.get("swa_window_size")
    window = layer.get("sliding_window") if window is None else window
    if len(kinds) != count or not {"full_attention", "sliding_attention"}.issuperset(kinds):
        raise ModelError(
            f"The config.json of {saved.name} has no usable layer_types ({some_of([str(kinds)])}); mend it."
        )
    sights = []
    for kind in kinds:
        sliding = kind == "sliding_attention"
        width = saved.entry("sliding_window", int, {"sliding_window": window}) if sliding else None
        if layout == TRANSFORMERS or width is None and layout == SPECULATORS:
            sights.append(Sight(width, width))
        elif layout == SPECULATORS:
            sights.append(Sight(width, None if saved.config.get("sliding_window_non_causal") else 0, from_anchor=True))
        else:
            causal = saved.config.get("is_causal", own.get("causal", sliding))
            width = None if width is None else width - 1
            sights.append(Sight(width, 0 if causal else width))
    return tuple(sights)


class DflashDrafter(FollowingDrafter):
    """Drafts a block in one pass. The laws of its tokens do not depend on each other, so that all nodes of a tree at
    one depth have the same law."""

    at_once = True
    _network: BlockNetwork

    def _drafted(self, prefixes: Sequence[Prefix], count: int) -> Draft:
        starts = [len(prefix) for prefix in prefixes]
        texts = [prefix[:-1] for prefix in prefixes]
        # a target that has read nothing has nothing to show, so a text of one token is read by it
        self._read(texts, self._rows.settle(prefixes), [prefix[: max(1, len(prefix) - 1)] for prefix in prefixes])
        slots = self._rows.slots
        in_rows = [prefix for _, prefix in sorted(zip(slots, prefixes, strict=True))]
        anchors = sent([prefix[-1] for prefix in in_rows], self.device)
        logits = self._network.draft(anchors, [len(prefix) - 1 for prefix in in_rows])  # [B, drafted, V']
        logits = logits if slots == sorted(slots) else logits[slots]
        if self._shape.is_chain:
            logits = logits[:, :count]
            tokens = self._pick(logits, keyed_uniforms(self._settings, starts, logits.shape[1], self.device))
            draft = Draft(tokens, logits, self.vocabulary)
        else:
            deeper = lambda level: logits[:, level.depth, None].expand(-1, level.ids.shape[1], -1)  # noqa: E731
            draft = tree_drafted(logits[:, 0], deeper, self._shape, self._settings, starts, count, self.vocabulary)
        lengths = draft.lengths or (draft.tokens.shape[1],) * len(starts)
        return replace(draft, passes=tuple(np.ones(length + 1, np.int32) for length in lengths))

    def _read(self, texts: Sequence[Prefix], known: Sequence[int], read: Sequence[Prefix]) -> None:
        """Write the missing places of the texts. Those after them are about to hold a block, so that they do not count
        as cached."""
        starts, features = list(known), self._features(read, known)
        features = [each[: len(text) - start] for each, text, start in zip(features, texts, known, strict=True)]
        for i, slot in enumerate(self._rows.slots):
            if len(features[i]) > ALONE:
                self._network.remember(features[i].unsqueeze(0), [starts[i]], slot)
                starts[i], features[i] = len(texts[i]), features[i][:0]
        order = sorted(range(len(texts)), key=self._rows.slots.__getitem__)
        padded = pad_sequence(
            [features[i] for i in order], batch_first=True
        )  # padding is overwritten before it is seen
        self._network.remember(padded, [starts[i] for i in order])
        self._rows.note(texts)
