"""DFlash drafters: the reader of their checkpoints in three layouts, and the drafter.

Layouts are z-lab's (github.com/z-lab/dflash), vLLM's speculators (github.com/vllm-project/speculators) and that of
transformers' Muse Glimmer assistants. z-lab and transformers number the target's layers by their outputs; here, as in
speculators, a number means a layer's input. The last output is before the last norm in speculators, after it elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import LlamaConfig, Qwen3Config

from mars_viz.errors import ModelError
from mars_viz.run import Settings
from mars_viz.shapes import shape_named
from mars_viz.speculators.devices import sent
from mars_viz.speculators.draft import Draft, Drafter, Target
from mars_viz.speculators.drafters.eagle3_checkpoint import (
    Config,
    Shapes,
    TargetShape,
    config_in,
    entry_of,
    names_in_files,
    rotary_of,
    some_of,
    vocabulary_of,
)
from mars_viz.speculators.drafters.model import ALONE, Picking, keyed_uniforms
from mars_viz.speculators.drafters.token_trees import Level, tree_drafted
from mars_viz.speculators.networks.base import NORMED
from mars_viz.speculators.networks.dflash import Block, BlockNetwork, Sight
from mars_viz.speculators.networks.llama_forward import Heads
from mars_viz.speculators.targets import UNREAD, ModelTarget, PrefixRows
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


@dataclass(frozen=True, slots=True)
class BlockCheckpoint:
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
    name: str = ""  # 'dflash:' and its hub id or folder's name; 'dflash' for the built-in one
    revision: str = ""  # commit on the hub, or the start of the weights' SHA-256

    @property
    def longest(self) -> int:
        """The number of tokens that it drafts."""
        return self.slots[0] - self.slots[1]

    @property
    def note(self) -> str:
        """A sentence about the layout and the features."""
        read = ", ".join("the last norm's output" if layer == NORMED else str(layer) for layer in self.layers)
        note = f"{self.layout} layout, drafts {self.longest} tokens in one pass from the inputs of the target's layers"
        return f"{note} (counted from 0): {read}"


def read_block_checkpoint(folder: Path, target: TargetShape) -> BlockCheckpoint:
    """Return the drafter in a folder. Raises ModelError with a remedy for another model, or one for another target."""
    config, head, files = config_in(folder), folder.name, names_in_files(folder)
    shapes = {ALIASES.get(name, name): shape for names in files.values() for name, shape in names.items()}
    nested, inner = (config.get(name) for name in ("dflash_config", "transformer_layer_config"))
    own: dict[str, Any] = nested if isinstance(nested, dict) else {}
    layer: dict[str, Any] = {"attention_bias": False, **config} | (inner if isinstance(inner, dict) else {})
    layout = SPECULATORS if isinstance(inner, dict) or "speculators_model_type" in config else ZLAB
    if any("encoder.fc.weight" in names for names in files.values()):
        layout = TRANSFORMERS
    _check_kind(config, own, [*shapes], head)
    count = entry_of(layer, "num_hidden_layers", int, head)
    layers, features = _layers_read(layout, config | own, count, target, head), shapes.get("fc.weight", (0, 0))[1]
    size = shapes.get("layers.0.self_attn.q_norm.weight", (1,))[0]
    queries, keys = (entry_of(layer, f"num_{kind}_heads", int, head) for kind in ("attention", "key_value"))
    rotary = rotary_of(layer, Heads(queries, keys, size), head)
    if layer.get("hidden_size") != target.width or features != len(layers) * target.width:
        raise ModelError(
            f"{head} is {layer.get('hidden_size')} wide and reads {features} numbers of each token; {len(layers)} "
            f"layers of {target.name}, {target.width} wide, give {len(layers) * target.width}. Take the target that "
            "the drafter was trained for."
        )
    try:
        if not 0 < count <= len(shapes):
            raise ValueError(f"{count} layers")
        sizes = Qwen3Config(**{name: layer[name] for name in COPIED if name in layer}, head_dim=size)
        with torch.device("meta"):
            expected = {name: tuple(each.shape) for name, each in Block(sizes, len(layers)).state_dict().items()}
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise ModelError(f"The config.json of {head} describes no layers ({error}); mend it.") from error
    rows = shapes.get("lm_head.weight", (target.vocabulary,))[0]
    embedded = max(target.vocabulary, shapes.get("embed_tokens.weight", (0,))[0])
    optional: dict[str, tuple[int, ...]] = {"d2t": (rows,), "t2d": (target.vocabulary,)}
    optional |= {"embed_tokens.weight": (embedded, target.width), "lm_head.weight": (rows, target.width)}
    _check_tensors(shapes, expected, optional if layout == SPECULATORS else {}, head)
    tensors: dict[str, Tensor] = {}
    for path, names in files.items():
        with safe_open(path, "pt") as opened:
            tensors |= {ALIASES.get(name, name): opened.get_tensor(name) for name in names}
    if config.get("quantization_config") or not all(tensors[name].is_floating_point() for name in expected):
        raise ModelError(f"{head} is quantised; take the drafter in bfloat16, as it was trained.")
    vocabulary = vocabulary_of(tensors.pop("d2t", None), tensors.pop("t2d", None), rows, target, head)
    if vocabulary is not None:
        vocabulary, order = vocabulary.sort()
        tensors["lm_head.weight"] = tensors["lm_head.weight"][order]
    block, first = entry_of(config | own, "block_size", int, head), int(config.get("sample_from_anchor") is True)
    mask = entry_of({"mask_token_id": None} | config | own, "mask_token_id", int, head)
    if block < 2 or mask >= embedded:
        raise ModelError(
            f"The config.json of {head} has no usable block_size ({block}) and mask_token_id ({mask}) for the "
            f"{target.vocabulary} tokens of {target.name}; take the target that the drafter was trained for."
        )
    sights = _sights(layout, config, own, layer, count, head)
    return BlockCheckpoint(layout, layers, (block, 1 - first), mask, sights, sizes, rotary, vocabulary, tensors)


def _check_kind(config: Config, own: Config, names: Sequence[str], head: str) -> None:
    """Raise ModelError for a drafter of another kind, and for entries that change the pass."""
    entries = [key for each in (config, own) for key, value in each.items() if value]
    words = [config.get("architectures"), config.get("speculators_model_type"), own.get("projector_type")]
    described = " ".join([*entries, *map(str, words), *names]).lower()
    kind = next((kind for kind, part in OTHERS.items() if re.search(part, described)), "")
    if kind:
        raise ModelError(f"{head} is a drafter of the kind {kind}; take a DFlash drafter.")
    changes = [name for name in ("is_neox_style", "rope_is_neox_style") if config.get(name) is False]
    changes += [name for name in ("shift_label", "fc_layernorm", "attention_sink_bias") if own.get(name)]
    if changes:
        raise ModelError(
            f"{head} sets {some_of(changes)} in its config.json, which is not computed here; take another drafter."
        )


def _layers_read(layout: str, config: Config, drafting: int, target: TargetShape, head: str) -> tuple[int, ...]:
    """Return the target's layers whose inputs are read. Raises ModelError for numbers that are no layers."""
    key, count = "aux_hidden_state_layer_ids" if layout == SPECULATORS else "target_layer_ids", target.layers
    numbers: Any = config.get(key)
    if numbers is None and layout == ZLAB:  # z-lab's own choice
        step = (count - 4) / max(1, drafting - 1)
        numbers = [count // 2] if drafting == 1 else [round(1 + i * step) for i in range(drafting)]
    whole = isinstance(numbers, list) and all(type(each) is int for each in numbers)
    inputs = [each + (layout != SPECULATORS) for each in numbers] if whole else []
    if not inputs or not all(0 <= each <= count for each in inputs) or config.get("num_target_layers", count) != count:
        raise ModelError(
            f"{head} reads layers {some_of([str(numbers)])} ({key}) of a target of "
            f"{config.get('num_target_layers', 'unknown')} layers, and {target.name} has {count}; take the target that "
            "the drafter was trained for."
        )
    return tuple(NORMED if each == count and layout != SPECULATORS else each for each in inputs)


def _check_tensors(found: Shapes, expected: Shapes, optional: Shapes, head: str) -> None:
    """Raise ModelError for missing tensors, unknown ones, and others of another size."""
    sizes = {**expected, **optional}
    faults = {
        "lacks": expected.keys() - found.keys(),
        "holds, other than plain DFlash drafters,": found.keys() - sizes.keys(),
        "holds in another size than its config.json and its target give": {
            name for name in found.keys() & sizes.keys() if found[name] != sizes[name]
        },
    }
    for fault, names in faults.items():
        if names:
            raise ModelError(
                f"{head} {fault} {some_of(sorted(names))}; take a whole DFlash drafter, in the layout of z-lab, "
                "speculators or transformers, that was trained for this target."
            )


def _sights(layout: str, config: Config, own: Config, layer: Config, count: int, head: str) -> tuple[Sight, ...]:
    """Return the sight of each layer. Windows are those of transformers, of speculators' training, and for z-lab's
    layout of vLLM, which serves it. Raises ModelError for unknown kinds of layers."""
    default = "sliding_attention" if layout == TRANSFORMERS or own.get("use_swa") else "full_attention"
    kinds, window = layer.get("layer_types") or [default] * count, own.get("swa_window_size")
    window = layer.get("sliding_window") if window is None else window
    if len(kinds) != count or not {"full_attention", "sliding_attention"}.issuperset(kinds):
        raise ModelError(f"The config.json of {head} has no usable layer_types ({some_of([str(kinds)])}); mend it.")
    sights = []
    for kind in kinds:
        sliding = kind == "sliding_attention"
        width = entry_of({"sliding_window": window}, "sliding_window", int, head) if sliding else None
        if layout == TRANSFORMERS or width is None and layout == SPECULATORS:
            sights.append(Sight(width, width))
        elif layout == SPECULATORS:
            sights.append(Sight(width, None if config.get("sliding_window_non_causal") else 0, from_anchor=True))
        else:
            causal = config.get("is_causal", own.get("causal", sliding))
            width = None if width is None else width - 1
            sights.append(Sight(width, 0 if causal else width))
    return tuple(sights)


class DflashDrafter(Drafter):
    """Drafts a block in one pass: greedily at temperature 0, and by keyed draws from the law of each token above.

    These laws do not depend on each other, so that all nodes of a tree at one depth have the same law.
    """

    reads_target = True
    at_once = True

    def __init__(self, network: BlockNetwork, layers: tuple[int, ...], vocabulary: Tensor | None, settings: Settings):
        """Read the inputs of these layers. `vocabulary`, int64 [V'], ascending, are the target's ids of the drafter's
        tokens; None if they are the same."""
        self._network, self.layers, self.vocabulary = network, layers, vocabulary
        self._settings, self._pick = settings, Picking.by(settings, vocabulary)
        self._shape = shape_named(settings.tree)
        self._rows = PrefixRows(network.copy)
        self._target: ModelTarget | None = None

    def follow(self, target: Target) -> None:
        """Draft for this target. Raises TypeError for one that cannot keep its layers' inputs."""
        if not isinstance(target, ModelTarget):
            raise TypeError("a DFlash drafter needs a target that keeps what enters its layers")
        target.keep(self.layers)
        self._target = target

    def prefill(self, prompts: Sequence[Prefix]) -> None:
        """Read the prompts, which the target has read."""
        if prompts:
            self._read(prompts, self._rows.settle([(*prompt, UNREAD) for prompt in prompts]), prompts)

    def draft(self, prefixes: Sequence[Prefix], count: int) -> Draft:
        """Return `count` tokens after each prefix, at most as many as a block has."""
        device = self._network.device
        if not count:
            return Draft(torch.zeros(len(prefixes), 0, dtype=torch.int64, device=device))
        starts = [len(prefix) for prefix in prefixes]
        texts = [prefix[:-1] for prefix in prefixes]
        # a target that has read nothing has nothing to show, so a text of one token is read by it
        self._read(texts, self._rows.settle(prefixes), [prefix[: max(1, len(prefix) - 1)] for prefix in prefixes])
        slots = self._rows.slots
        in_rows = [prefix for _, prefix in sorted(zip(slots, prefixes, strict=True))]
        anchors = sent([prefix[-1] for prefix in in_rows], device)
        logits = self._network.draft(anchors, [len(prefix) - 1 for prefix in in_rows])  # [B, drafted, V']
        logits = logits if slots == sorted(slots) else logits[slots]
        if self._shape.is_chain:
            logits = logits[:, :count]
            tokens = self._pick(logits, keyed_uniforms(self._settings, starts, logits.shape[1], device))
            draft = Draft(tokens, logits, self.vocabulary)
        else:
            draft = self._tree(logits, starts, count)
        lengths = draft.lengths or (draft.tokens.shape[1],) * len(starts)
        return replace(draft, passes=tuple(np.ones(length + 1, np.int32) for length in lengths))

    def _tree(self, logits: Tensor, starts: Sequence[int], nodes: int) -> Draft:
        def deeper(level: Level) -> Tensor:
            return logits[:, level.depth, None].expand(-1, level.ids.shape[1], -1)

        return tree_drafted(logits[:, 0], deeper, self._shape, self._settings, starts, nodes, self.vocabulary)

    def _read(self, texts: Sequence[Prefix], known: Sequence[int], read: Sequence[Prefix]) -> None:
        """Write the missing places of the texts, of which `known` tokens are cached; `read` is the part that the target
        has read. The places after the texts are about to hold a block, so that they do not count as cached."""
        assert self._target is not None, "a drafter follows a target before it drafts"
        starts, features = list(known), self._target.inputs(read, known)
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
