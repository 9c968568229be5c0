"""EAGLE-3 heads as drafters (Li et al. 2025, arXiv 2503.01840), and the reader of their checkpoints in three layouts.

SafeAILab's own (github.com/SafeAILab/EAGLE), vLLM's speculators (github.com/vllm-project/speculators) and SpecForge's,
as SGLang serves it (github.com/sgl-project/SpecForge). They name the same layer differently, and also the target's
layers whose hidden states the head reads. Sizes follow from the weights, which are checked before they are read.

Here a layer's number means its input, as in speculators and vLLM: 0 is the embedding, L the last layer's output before
the last norm. SpecForge and ModelOpt write the numbers of layers whose output is read, one less, into `eagle_config`;
other heads, such as gpt-oss-120b-Eagle3-v3, have numbers of inputs there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import LlamaConfig

from mars_viz.errors import ModelError
from mars_viz.speculators.backend import Part
from mars_viz.speculators.drafters import Eagle3
from mars_viz.speculators.drafters.checkpoints import Config, Saved, TargetShape, opened, with_shared
from mars_viz.speculators.drafters.heads import HeadDrafter
from mars_viz.speculators.networks.base import NORMED
from mars_viz.speculators.networks.eagle3_head import EagleNetwork, HeadWeights
from mars_viz.speculators.networks.llama_forward import Heads
from mars_viz.speculators.site import DrafterPart, Origin, Ready, Site

PREFIX = re.compile(r"^(midlayer|layers\.0)\.")  # of the names of the head's layer
KEY = "eagle_aux_hidden_state_layer_ids"  # entry of a configuration that names the target's layers
IGNORED = "rotary_emb.inv_freq"  # follows from the configuration
SAFEAILAB, SPECULATORS, SPECFORGE = "SafeAILab", "speculators", "SpecForge"  # layouts of checkpoints


def ready(named: Eagle3, target: Origin) -> Ready:
    """Read a head, and return the function that shares the tensors which it lacks with the target."""
    folder, name, revision, shape = opened(named, target)
    head = read_checkpoint(folder, shape, name)

    def load(site: Site) -> DrafterPart:
        tensors, vocabulary = with_shared(name, head.tensors, head.vocabulary, site)
        how = {"normed_residual": head.normed_residual, "normed_output": head.normed_output}
        weights = HeadWeights(tensors, head.heads, head.epsilon, head.rotary, **how)
        reads = head.reading.layers, vocabulary
        return Part(
            name,
            lambda settings: HeadDrafter(EagleNetwork(weights), *reads, settings, head.reading.guess),
            revision,
            note=head.note,
            drafts_trees=True,
        )

    return load


@dataclass(frozen=True, slots=True)
class Reading:
    """Hidden states that a head may read."""

    layers: tuple[int, ...]  # in the order of concatenation; 0 to L, or `NORMED`
    count: int  # L, the target's number of layers
    guess: str = ""  # reason why these may be wrong, as the end of a sentence; empty if the configuration is clear

    @property
    def words(self) -> str:
        """In words: 'inputs of layers 2, 16 and 29'."""
        if self.layers == (NORMED,):
            return "output of the last norm"
        *most, last = map(str, self.layers)
        which = f"inputs of layers {', '.join(most)} and {last}" if most else f"input of layer {last}"
        return which + f" ({self.count}: the last layer's output, before the last norm)" * (self.count in self.layers)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A head as saved, under one set of names."""

    layout: str
    reading: Reading  # the hidden states of the target that it reads
    heads: Heads
    epsilon: float  # of the norms
    rotary: LlamaConfig  # configuration of its positions
    normed_residual: bool  # True if attention's result is added to the normed state
    normed_output: bool  # True if its normed output is fed back, as in EAGLE-3.1
    vocabulary: Tensor | None  # int64 [Vd], ascending; the target's ids of its tokens; None if they are the target's
    tensors: Mapping[str, Tensor]
    """By SafeAILab's names, without 'midlayer.'; rows of lm_head in the vocabulary's order."""

    @property
    def note(self) -> str:
        note = f"{self.layout} layout, {self.reading.words} of the target"
        if self.reading.layers != (NORMED,):
            note = f"{note}, counted from 0"
        if self.reading.guess:
            note = f"{note}, which is a guess: {self.reading.guess} ({KEY} in its config.json names them)"
        return f"{note}; its normed output is fed back" if self.normed_output else note


def read_checkpoint(folder: Path, target: TargetShape, name: str = "") -> Checkpoint:
    """Return the head in a folder; `name` is for messages. Raises ModelError for another model, or one for another
    target."""
    saved = Saved(folder, name, lambda name: "" if name.endswith(IGNORED) else PREFIX.sub("", name))
    config, head, shapes = saved.config, saved.name, saved.shapes
    names, layout = config.get("architectures") or [], SAFEAILAB
    if config.get("speculators_model_type") or "transformer_layer_config" in config or "Eagle3Speculator" in names:
        layout = SPECULATORS
    elif isinstance(config.get("eagle_config"), dict) or "LlamaForCausalLMEagle3" in names:
        layout = SPECFORGE
    nested = config.get("transformer_layer_config")
    layer: dict[str, Any] = {"num_hidden_layers": 1, "hidden_act": "silu", "rms_norm_eps": 1e-6, **config}
    layer |= nested if layout == SPECULATORS and isinstance(nested, dict) else {}
    kind = config.get("speculators_model_type", "eagle3") if layout == SPECULATORS else "eagle3"
    if (kind, layer["num_hidden_layers"], layer["hidden_act"]) != ("eagle3", 1, "silu"):
        kind = f"{str(kind)[:40]!r} of {layer['num_hidden_layers']} layers with {str(layer['hidden_act'])[:40]!r}"
        raise ModelError(f"{head} is a drafter of the kind {kind}; take an EAGLE-3 head of one layer with silu.")
    last_alone = _flag(saved, "use_aux_hidden_state") is False
    reading = _reading(saved, last_alone, target)
    fc_unread = last_alone and shapes.get("norm.weight") == (target.width,)
    if fc_unread:
        shapes.pop("fc.weight", None)
    heads, normed_output = _checked(saved, layer, reading, target), _flag(saved, "norm_output")
    norms = {name.partition(".")[0] for name in shapes if name.startswith(("fc_norm.", "input_norm."))}
    wanted = {"fc_norm": _flag(saved, "fc_norm"), "input_norm": _flag(saved, "norm_before_fc")}
    if norms != {name for name, is_set in wanted.items() if is_set} or len(norms) > 1:
        raise ModelError(
            f"{head} has other norms of the features that it reads ({', '.join(sorted(norms)) or 'none'}) than its "
            "config.json (fc_norm, norm_before_fc); give config.json and weights of one head."
        )
    if normed_output is not None and layout == SPECFORGE:
        raise ModelError(
            f"norm_output in the config.json of {head} means a norm before lm_head where SpecForge trains, and that "
            "the normed output is fed back where SGLang and vLLM serve. Leave it out if the head was trained on its "
            "output without the norm; else save it in speculators' layout."
        )
    residual = config.get("norm_before_residual") if layout == SPECULATORS else False
    if not isinstance(residual, bool):
        raise ModelError(
            f"The config.json of {head} does not say norm_before_residual; without it speculators takes false "
            'and vLLM true. Write "norm_before_residual": true or false into it, as it was trained.'
        )
    rotary, tensors = saved.rotary(layer, heads), saved.tensors()
    if fc_unread:
        tensors.pop("fc.weight", None)
    vocabulary, epsilon = saved.vocabulary(tensors, target), saved.entry("rms_norm_eps", float, layer)
    return Checkpoint(layout, reading, heads, epsilon, rotary, residual, bool(normed_output), vocabulary, tensors)


def _checked(saved: Saved, layer: Config, reading: Reading, target: TargetShape) -> Heads:
    """Return the heads of a complete EAGLE-3 head. Raises ModelError for missing or unknown weights, and for weights of
    other sizes than those of a head for this target."""
    shapes, queries = saved.shapes, saved.entry("num_attention_heads", int, layer)
    keys = saved.entry("num_key_value_heads", int, {"num_key_value_heads": queries, **layer})
    width, inner = (shapes.get(name, (0,))[0] for name in ("mlp.down_proj.weight", "mlp.gate_proj.weight"))
    size, features = shapes.get("self_attn.q_proj.weight", (0,))[0] // queries, len(reading.layers) * target.width
    rows = shapes.get("lm_head.weight", (target.vocabulary,))[0]
    needed: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj.weight": (queries * size, 2 * width),
        **dict.fromkeys(("self_attn.k_proj.weight", "self_attn.v_proj.weight"), (keys * size, 2 * width)),
        "self_attn.o_proj.weight": (width, queries * size),
        **dict.fromkeys(("mlp.gate_proj.weight", "mlp.up_proj.weight"), (inner, width)),
        "mlp.down_proj.weight": (width, inner),
        **dict.fromkeys(("hidden_norm.weight", "input_layernorm.weight"), (width,)),
        **dict.fromkeys(("post_attention_layernorm.weight", "norm.weight"), (width,)),
    }
    fc_norms = {f"fc_norm.{i}.weight": (target.width,) for i in range(len(reading.layers))}
    optional: dict[str, tuple[int, ...]] = {
        "fc.weight": (width, features),
        "lm_head.weight": (rows, width),
        "embed_tokens.weight": (max(target.vocabulary, shapes.get("embed_tokens.weight", (0,))[0]), width),
        "d2t": (rows,),
        "t2d": (target.vocabulary,),
        "input_norm.weight": (features,),
        **fc_norms,
        **dict.fromkeys(("self_attn.q_norm.weight", "self_attn.k_norm.weight"), (size,)),
    }
    also = set(fc_norms) if any(name.startswith("fc_norm.") for name in shapes) else set()
    if features != width or also or "input_norm.weight" in shapes:
        also.add("fc.weight")
    if width != target.width:  # rows cannot be the target's
        also |= {"embed_tokens.weight", "lm_head.weight"}
    if layer.get("draft_vocab_size") not in (None, rows):
        also.add("lm_head.weight")
    saved.check(
        needed | {name: optional[name] for name in also},
        optional,
        f"Take a whole EAGLE-3 head of one plain layer (EAGLE-1 and 2 have another), with {queries} heads, {keys} of "
        f"keys, and {reading.words} of {target.name}, {target.width} wide. If it reads others, name them in its "
        f'config.json ({KEY}, or "use_aux_hidden_state": false for the last hidden state alone).',
    )
    if queries % keys:
        raise ModelError(f"{saved.name} cannot have {queries} heads with {keys} of keys; mend its config.json.")
    return Heads(queries, keys, size)


def _flag(saved: Saved, name: str) -> bool | None:
    """Return a setting of EAGLE-3.1, which may be in SpecForge's eagle_config; None if it is missing."""
    nested = saved.config.get("eagle_config")
    value = saved.config.get(name, nested.get(name) if isinstance(nested, dict) else None)
    return None if value is None else saved.entry(name, bool, {name: value})


def _reading(saved: Saved, last_alone: bool, target: TargetShape) -> Reading:
    """Return the reading in a head's configuration, the last hidden state only if `last_alone`. Raises ModelError for
    numbers that are no layers of the target."""
    count, guess = target.layers, ""
    if last_alone:
        return Reading((NORMED,), count)
    nested = saved.config.get("eagle_config")
    inner = _listed(saved, nested) if isinstance(nested, dict) else ()
    outer = _listed(saved, saved.config)
    following = tuple(layer + 1 for layer in inner)  # inputs, if the list names outputs
    if outer:
        layers = outer
    elif inner:
        layers = inner if max(following) > count or inner == _usual(count) else following
        if layers == following != _usual(count):
            guess = (
                f"{list(inner)} in its eagle_config is read as outputs, as SpecForge and ModelOpt write them; vLLM "
                "reads it as inputs"
            )
    else:
        layers, guess = _usual(count), "its config.json names none, and these are EAGLE-3's own choice"
    conflict = outer and inner and outer not in (inner, following)
    if conflict or len(set(layers)) < len(layers) or not all(0 <= layer <= count for layer in layers):
        named = f"{list(layers)} ({KEY}) and {list(inner)}" if conflict else f"{list(layers)} ({KEY})"
        raise ModelError(
            f"The config.json of {saved.name} names layers {named}; {target.name} has {count} different layers, 0 to "
            f"{count - 1}, and {count} for the last one's output. Name those that the head was trained with, or take "
            "its target."
        )
    return Reading(layers, count, guess)


def _usual(count: int) -> tuple[int, ...]:
    """Return SafeAILab's choice; with few layers some coincide."""
    return tuple(dict.fromkeys((2, count // 2, count - 3)))


def _listed(saved: Saved, config: Config) -> tuple[int, ...]:
    """Return the layers named in a part of the configuration; may be empty."""
    listed = [] if config.get(KEY) is None else saved.entry(KEY, list, config)
    if any(type(each) is not int for each in listed):
        raise ModelError(f"{KEY} in the config.json of {saved.name} is no list of whole numbers.")
    return tuple(listed)
