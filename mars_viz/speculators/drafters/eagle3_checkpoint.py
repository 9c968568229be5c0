"""Reader of EAGLE-3 checkpoints in three layouts.

SafeAILab's own (github.com/SafeAILab/EAGLE), vLLM's speculators (github.com/vllm-project/speculators) and SpecForge's,
as SGLang serves it (github.com/sgl-project/SpecForge). They name the same layer differently, and also the target's
layers whose hidden states the head reads. Sizes follow from the weights, which are checked before they are read.

Here a layer's number means its input, as in speculators and vLLM: 0 is the embedding, L the last layer's output before
the last norm. SpecForge and ModelOpt write the numbers of layers whose output is read, one less, into `eagle_config`;
other heads, such as gpt-oss-120b-Eagle3-v3, have numbers of inputs there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import LlamaConfig

from mars_viz.errors import ModelError
from mars_viz.speculators.networks.base import NORMED
from mars_viz.speculators.networks.llama_forward import Heads

ROTARY = ("default", "linear", "llama3", "yarn")
"""Kinds of rotary positions whose angles do not depend on the text, so that they may begin at 0 or at 1."""
CONVERT = (
    'python -c "import torch, safetensors.torch as s; s.save_file({k: v.contiguous() for k, v in '
    "torch.load('pytorch_model.bin', weights_only=True).items()}, 'model.safetensors')\""
)
PREFIX = re.compile(r"^(midlayer|layers\.0)\.")  # of the names of the head's layer
KEY = "eagle_aux_hidden_state_layer_ids"  # entry of a configuration that names the target's layers
IGNORED = "rotary_emb.inv_freq"  # follows from the configuration
SAFEAILAB, SPECULATORS, SPECFORGE = "SafeAILab", "speculators", "SpecForge"  # layouts of checkpoints
Config = Mapping[str, Any]  # of a head, or of a part of it
Shapes = Mapping[str, tuple[int, ...]]  # by SafeAILab's names, without 'midlayer.'


@dataclass(frozen=True, slots=True)
class TargetShape:
    """The sizes of a target that a head must match."""

    name: str  # name for messages
    width: int  # width of its hidden states
    layers: int  # L
    vocabulary: int  # number of tokens that it scores


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
    name: str = ""  # 'eagle3:' and its hub id or folder's name; 'eagle3' for the built-in one
    revision: str = ""  # commit on the hub, or the start of the weights' SHA-256

    @property
    def note(self) -> str:
        """A sentence about the layout and the features."""
        note = f"{self.layout} layout, {self.reading.words} of the target"
        if self.reading.layers != (NORMED,):
            note = f"{note}, counted from 0"
        if self.reading.guess:
            note = f"{note}, which is a guess: {self.reading.guess} ({KEY} in its config.json names them)"
        return f"{note}; its normed output is fed back" if self.normed_output else note


def read_checkpoint(folder: Path, target: TargetShape) -> Checkpoint:
    """Return the head in a folder. Raises ModelError with a remedy for another model, or one for another target."""
    config, head = config_in(folder), folder.name
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
    names_in = names_in_files(folder)
    shapes = {_plain(name): shape for names in names_in.values() for name, shape in names.items()}
    last_alone = _flag(config, "use_aux_hidden_state", head) is False
    reading = _reading(config, last_alone, target, head)
    left_out = ["fc.weight"] if last_alone and shapes.get("norm.weight") == (target.width,) else []
    heads, normed_output = _checked(shapes, left_out, layer, reading, target, head), _flag(config, "norm_output", head)
    norms = {name.partition(".")[0] for name in shapes if name.startswith(("fc_norm.", "input_norm."))}
    named = {"fc_norm": _flag(config, "fc_norm", head), "input_norm": _flag(config, "norm_before_fc", head)}
    if norms != {name for name, is_set in named.items() if is_set} or len(norms) > 1:
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
    rotary, tensors = rotary_of(layer, heads, head), dict[str, Tensor]()
    for path, names in names_in.items():
        with safe_open(path, "pt") as opened:
            tensors |= {_plain(name): opened.get_tensor(name) for name in names if _plain(name) not in left_out}
    rows = len(tensors.get("lm_head.weight", range(target.vocabulary)))
    vocabulary = vocabulary_of(tensors.pop("d2t", None), tensors.pop("t2d", None), rows, target, head)
    if "lm_head.weight" not in tensors:
        vocabulary = None  # the rows are the target's
    elif vocabulary is not None:
        vocabulary, order = vocabulary.sort()
        tensors["lm_head.weight"] = tensors["lm_head.weight"][order]
    epsilon = entry_of(layer, "rms_norm_eps", float, head)
    return Checkpoint(layout, reading, heads, epsilon, rotary, residual, bool(normed_output), vocabulary, tensors)


def config_in(folder: Path) -> dict[str, Any]:
    """Return the configuration in a folder. Raises ModelError."""
    try:
        config = json.loads((folder / "config.json").read_bytes())
        return {**config}
    except (OSError, ValueError, TypeError) as error:
        raise ModelError(
            f"The config.json of {folder.name} cannot be read ({error}). Give the folder of a head."
        ) from error


def names_in_files(folder: Path) -> dict[Path, dict[str, tuple[int, ...]]]:
    """Return the shape of each tensor by file and name. Raises ModelError."""
    shapes = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, "pt") as opened:
                shapes[path] = {name: tuple(opened.get_slice(name).get_shape()) for name in opened.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise ModelError(f"{path.name} of {folder.name} cannot be read ({error}). Fetch it again.") from error
    if not shapes:
        raise ModelError(
            f"{folder.name} holds no *.safetensors, the only format that is loaded. Give the folder of a "
            f"head, or convert its pytorch_model.bin there: {CONVERT}"
        )
    return shapes


def _plain(name: str) -> str:
    return PREFIX.sub("", name)


def _checked(
    shapes: Shapes, left_out: list[str], layer: Config, reading: Reading, target: TargetShape, head: str
) -> Heads:
    """Return the heads of a complete EAGLE-3 head. Raises ModelError for missing or unknown weights, and for weights of
    other sizes than those of a head for this target."""
    queries = entry_of(layer, "num_attention_heads", int, head)
    keys = entry_of({"num_key_value_heads": queries} | dict(layer), "num_key_value_heads", int, head)
    width, inner = (shapes.get(name, (0,))[0] for name in ("mlp.down_proj.weight", "mlp.gate_proj.weight"))
    size, features = shapes.get("self_attn.q_proj.weight", (0,))[0] // queries, len(reading.layers) * target.width
    rows = shapes.get("lm_head.weight", (target.vocabulary,))[0]
    sizes: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj.weight": (queries * size, 2 * width),
        **dict.fromkeys(("self_attn.k_proj.weight", "self_attn.v_proj.weight"), (keys * size, 2 * width)),
        "self_attn.o_proj.weight": (width, queries * size),
        **dict.fromkeys(("mlp.gate_proj.weight", "mlp.up_proj.weight"), (inner, width)),
        "mlp.down_proj.weight": (width, inner),
        **dict.fromkeys(("hidden_norm.weight", "input_layernorm.weight"), (width,)),
        **dict.fromkeys(("post_attention_layernorm.weight", "norm.weight"), (width,)),
    }
    optional: dict[str, tuple[int, ...]] = {
        "fc.weight": (width, features),
        "lm_head.weight": (rows, width),
        "embed_tokens.weight": (max(target.vocabulary, shapes.get("embed_tokens.weight", (0,))[0]), width),
        "d2t": (rows,),
        "t2d": (target.vocabulary,),
        "input_norm.weight": (features,),
        **{f"fc_norm.{i}.weight": (target.width,) for i in range(len(reading.layers))},
        **dict.fromkeys(("self_attn.q_norm.weight", "self_attn.k_norm.weight"), (size,)),
    }
    needed = set(sizes)
    if features != width or {"input_norm.weight", "fc_norm.0.weight"} & shapes.keys():
        needed.add("fc.weight")
    if width != target.width:  # rows cannot be the target's
        needed |= {"embed_tokens.weight", "lm_head.weight"}
    if layer.get("draft_vocab_size") not in (None, rows):
        needed.add("lm_head.weight")
    if any(name.startswith("fc_norm.") for name in shapes):
        needed |= {name for name in optional if name.startswith("fc_norm.")}
    found = {name: shape for name, shape in shapes.items() if not name.endswith(IGNORED) and name not in left_out}
    sizes |= optional
    if missing := sorted(needed - found.keys()):
        raise ModelError(
            f"{head} is no whole EAGLE-3 head for {target.name}: it lacks {some_of(missing)}. Fetch the whole "
            "checkpoint (EAGLE-1 and 2 have another layer), or take the target that it was trained for. If it reads "
            'the last hidden state alone, write "use_aux_hidden_state": false into its config.json.'
        )
    if unknown := sorted(found.keys() - sizes.keys()):
        raise ModelError(
            f"{head} holds {some_of(unknown)}, which heads of one plain layer do not have, so it would draft otherwise "
            "than it was trained to; take another head."
        )
    for name, shape in found.items():
        if shape != sizes[name] or queries % keys:
            raise ModelError(
                f"{name} of {head} is {list(shape)} large, but with {queries} heads, {keys} of keys, and "
                f"{reading.words} of {target.name}, {target.width} wide, it would be {list(sizes[name])}; take the "
                f"target that the head was trained for, or name the layers in its config.json ({KEY})."
            )
    return Heads(queries, keys, size)


def some_of(names: list[str]) -> str:
    """Return the first three names, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if names[3:] else "")


def rotary_of(layer: Config, heads: Heads, head: str) -> LlamaConfig:
    """Return the configuration of rotary positions. Raises ModelError."""
    names = ("rope_theta", "rope_scaling", "rope_parameters")
    named = {name: layer[name] for name in names if layer.get(name) is not None}
    try:
        config = LlamaConfig(
            hidden_size=heads.queries * heads.size,
            num_attention_heads=heads.queries,
            num_key_value_heads=heads.keys,
            head_dim=heads.size,
            max_position_embeddings=int(layer.get("max_position_embeddings") or 2048),
            **named,
        )
        kind = (config.rope_parameters or {}).get("rope_type", "default")
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise ModelError(f"The rotary positions of {head} cannot be read ({error}); mend config.json.") from error
    if kind not in ROTARY:
        raise ModelError(f"{head} has rotary positions of the kind {str(kind)[:40]!r}; taken are {', '.join(ROTARY)}.")
    return config


def entry_of(config: Config, name: str, kind: type, head: str) -> Any:
    """Return a setting of this type: a whole number from 1, or a fraction between 0 and 1. Raises ModelError for any
    other value."""
    value: Any = config.get(name)
    right = isinstance(value, kind) and isinstance(value, bool) == (kind is bool)
    limits = {int: 1 << 24, float: 1}
    if not right or (kind in limits and not 0 < value < limits[kind]):
        raise ModelError(f"The config.json of {head} has no usable {name} ({str(value)[:40]}); mend it.")
    return value


def _flag(config: Config, name: str, head: str) -> bool | None:
    """Return a setting of EAGLE-3.1, which may be in SpecForge's eagle_config; None if it is missing."""
    nested = config.get("eagle_config")
    value = config.get(name, nested.get(name) if isinstance(nested, dict) else None)
    return None if value is None else bool(entry_of({name: value}, name, bool, head))


def vocabulary_of(
    offsets: Tensor | None, kept: Tensor | None, drafted: int, target: TargetShape, head: str
) -> Tensor | None:
    """Return the target's ids of the head's tokens, int64 [Vd], from d2t (id minus place) and t2d (marks of ids); None
    if they are all of the target's. Raises ModelError."""
    size = target.vocabulary
    if offsets is None and drafted == size:
        return None
    ids = torch.arange(drafted) if offsets is None else offsets.long() + torch.arange(drafted)
    ascending = ids.sort().values
    marked = ascending if kept is None else kept.bool().nonzero().squeeze(-1)
    distinct = bool((ascending.diff() > 0).all()) and int(ascending[0]) >= 0 and int(ascending[-1]) < size
    if offsets is None or not distinct or not torch.equal(marked, ascending):
        raise ModelError(
            f"d2t of {head} does not lead to {drafted} different tokens of the {size} of {target.name}, or to others "
            f"than the {len(marked)} that t2d marks. It must hold offsets, id minus place, as saved with t2d: "
            f"subtract arange({drafted}) if it holds ids, or take the target that the head was trained for."
        )
    return None if torch.equal(ids, torch.arange(size)) else ids


def _reading(config: Config, last_alone: bool, target: TargetShape, head: str) -> Reading:
    """Return the reading in a head's configuration, the last hidden state only if `last_alone`. Raises ModelError for
    numbers that are no layers of the target."""
    count, guess = target.layers, ""
    if last_alone:
        return Reading((NORMED,), count)
    nested = config.get("eagle_config")
    inner = _listed(nested, head) if isinstance(nested, dict) else ()
    outer = _listed(config, head)
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
        raise ModelError(
            f"The config.json of {head} names layers {list(layers)} ({KEY}){f' and {list(inner)}' * bool(conflict)}; "
            f"{target.name} has {count} different layers, 0 to {count - 1}, and {count} for the last one's output. "
            "Name those that the head was trained with, or take its target."
        )
    return Reading(layers, count, guess)


def _usual(count: int) -> tuple[int, ...]:
    """Return SafeAILab's choice; with few layers some coincide."""
    return tuple(dict.fromkeys((2, count // 2, count - 3)))


def _listed(config: Config, head: str) -> tuple[int, ...]:
    """Return the layers named in the configuration; may be empty."""
    listed = [] if config.get(KEY) is None else entry_of(config, KEY, list, head)
    if any(isinstance(each, bool) or not isinstance(each, int) for each in listed):
        raise ModelError(f"{KEY} in the config.json of {head} is no list of whole numbers.")
    return tuple(listed)
