"""Reader of EAGLE-3 checkpoints in three layouts.

SafeAILab's own (github.com/SafeAILab/EAGLE), vLLM's speculators (github.com/vllm-project/speculators) and SpecForge's,
as SGLang serves it (github.com/sgl-project/SpecForge). They name the same layer differently, and also the target's
layers whose hidden states the head reads. Unknown names are refused before weights are read.

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

LARGEST_CONFIG = 1 << 20  # maximum number of bytes of a config.json
ROTARY = ("default", "linear", "llama3", "yarn")
"""Kinds of rotary positions whose angles do not depend on the text, so that they may begin at 0 or at 1."""
CONVERT = (
    'python -c "import torch, safetensors.torch as s; s.save_file({k: v.contiguous() for k, v in '
    "torch.load('pytorch_model.bin', weights_only=True).items()}, 'model.safetensors')\""
)
PREFIXES = ("midlayer.", "layers.0.")  # prefixes of the names of the head's layer
KEY = "eagle_aux_hidden_state_layer_ids"  # entry of a configuration that names the target's layers
MUST = (
    *(f"self_attn.{name}_proj.weight" for name in "qkvo"),
    *(f"mlp.{name}_proj.weight" for name in ("gate", "up", "down")),
    "hidden_norm.weight",
    "input_layernorm.weight",
    "post_attention_layernorm.weight",
    "norm.weight",
)
"""Names in every head, without the prefix."""
MAY = (
    *("fc.weight", "lm_head.weight", "embed_tokens.weight", "d2t", "t2d", "input_norm.weight"),
    *(f"self_attn.{name}_norm.weight" for name in "qk"),
)
"""Optional names."""
SAFEAILAB, SPECULATORS, SPECFORGE = "SafeAILab", "speculators", "SpecForge"  # layouts of checkpoints
FEATURE_NORM = re.compile(r"fc_norm\.\d+\.weight")  # optional names, one for each feature that it reads: EAGLE-3.1
Config = Mapping[str, Any]  # of a head, or of a part of it
Shapes = Mapping[str, tuple[int, ...]]  # by name
IGNORED = "rotary_emb.inv_freq"  # follows from the configuration


@dataclass(frozen=True, slots=True)
class TargetShape:
    """The sizes of a target that a head must match."""

    name: str  # name for messages
    width: int  # width of its hidden states
    layers: int  # L
    vocabulary: int  # number of tokens that it scores


@dataclass(frozen=True, slots=True)
class HeadShape:
    """Size of a head: H wide, I inside, reading k features of a target Ht wide."""

    width: int  # H
    inner: int  # I
    heads: Heads
    epsilon: float  # epsilon of the norms
    vocabulary: int  # Vd, number of tokens that it can draft


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

    @property
    def setting(self) -> str:
        """The entry of config.json that names them."""
        if self.layers == (NORMED,):
            return '"use_aux_hidden_state": false'
        return f'"{KEY}": {json.dumps(self.layers)}'

    @property
    def others(self) -> tuple[Reading, ...]:
        """Equally many other hidden states that a head may have been trained on: neighbours, and usual choices."""
        count = self.count
        shifted = [tuple(layer + by for layer in self.layers) for by in (-1, 1) if self.layers != (NORMED,)]
        usual = [_usual(count), (2 * count // 3, 5 * count // 6, count), (NORMED,), (count,), (count - 1,)]
        others = dict.fromkeys(each for each in (*shifted, *usual) if each != self.layers)
        distinct = (each for each in others if len(each) == len(self.layers) == len(set(each)))
        fit = (each for each in distinct if each == (NORMED,) or all(0 <= layer <= count for layer in each))
        return tuple(Reading(layers, count) for layers in fit)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A head as saved, under one set of names."""

    layout: str
    reading: Reading  # the hidden states of the target that it reads
    shape: HeadShape
    rotary: LlamaConfig  # configuration of its positions
    normed_residual: bool  # True if attention's result is added to the normed state
    normed_output: bool  # True if its normed output is fed back, as in EAGLE-3.1
    vocabulary: Tensor | None  # int64 [Vd], ascending; the target's ids of its tokens; None if they are the target's
    tensors: Mapping[str, Tensor]
    """By SafeAILab's names, without 'midlayer.'; rows of lm_head in the vocabulary's order."""
    remark: str = ""  # a sentence about other entries of its configuration
    name: str = ""  # 'eagle3:' and its hub id or folder's name; 'eagle3' for the built-in one
    revision: str = ""  # commit on the hub, or the start of the weights' SHA-256

    @property
    def note(self) -> str:
        """A sentence about the layout and the features."""
        note = f"{self.layout} layout, {self.reading.words} of the target"
        if self.reading.layers != (NORMED,):
            note = f"{note}, counted from 0"
        if self.reading.guess:
            note = f"{note}, which is a guess: {self.reading.guess} (`mars-viz heads` tries others)"
        if "fc_norm.0.weight" in self.tensors:
            note = f"{note}, each with a norm of its own"
        if self.normed_output:
            note = f"{note}; its normed output is fed back"
        return f"{note}; {self.remark}" if self.remark else note

    @property
    def others(self) -> tuple[Reading, ...]:
        """Other hidden states that it may have been trained on; the last norm's output only if it uses `fc`."""
        fc = self.tensors.get("fc.weight")
        square = fc is not None and fc.shape[0] == fc.shape[1]
        return tuple(each for each in self.reading.others if not square or each.layers != (NORMED,))


def read_checkpoint(folder: Path, target: TargetShape) -> Checkpoint:
    """Return the head in a folder. Raises ModelError with a remedy for another model, or one for another target."""
    config, head = _config(folder), folder.name
    names, layout = config.get("architectures") or [], SAFEAILAB
    if config.get("speculators_model_type") or "transformer_layer_config" in config or "Eagle3Speculator" in names:
        layout = SPECULATORS
    elif isinstance(config.get("eagle_config"), dict) or "LlamaForCausalLMEagle3" in names:
        layout = SPECFORGE
    dims = config if layout != SPECULATORS else config.get("transformer_layer_config")
    kind = config.get("speculators_model_type", "eagle3")
    if layout == SPECULATORS and kind != "eagle3":
        raise ModelError(f"{head} is a drafter of the kind {str(kind)[:40]!r}; take an EAGLE-3 head.")
    if not isinstance(dims, dict):
        raise ModelError(f"The config.json of {head} has no transformer_layer_config; save the head again.")
    files = _files(folder)
    shapes = {_plain(name): size for held in files.values() for name, size in held.items()}
    _check_names(shapes, head, layout)
    last_alone = _flag(config, "use_aux_hidden_state", head) is False
    reading = _reading(config, last_alone, target, head)
    shape = _shape(dims, config, shapes, target, head)
    features = len(reading.layers)
    needs_fc = features * target.width != shape.width
    if needs_fc and "fc.weight" not in shapes:
        raise ModelError(
            f"{head} is {shape.width} wide and reads {features * target.width} numbers of each token, but has "
            "no fc.weight, which joins them; fetch the whole checkpoint, or, if it reads the target's last hidden "
            'state alone, write "use_aux_hidden_state": false into its config.json.'
        )
    unused = last_alone and not needs_fc and shapes.pop("fc.weight", None) is not None
    _check_shapes(shapes, shape, target, features, head)
    rotary = _rotary(dims, shape, head)
    normed_output = _normed_output(config, layout, shapes, features, head)
    residual = config.get("norm_before_residual") if layout == SPECULATORS else False
    if not isinstance(residual, bool):
        raise ModelError(
            f"The config.json of {head} does not say norm_before_residual; without it speculators takes false "
            'and vLLM true. Write "norm_before_residual": true or false into it, as it was trained.'
        )
    tensors: dict[str, Tensor] = {}
    for path, held in files.items():
        with safe_open(path, "pt") as opened:
            tensors |= {_plain(name): opened.get_tensor(name) for name in held}
    if unused:
        del tensors["fc.weight"]
    vocabulary = _vocabulary(tensors.pop("d2t", None), tensors.pop("t2d", None), shape.vocabulary, target, head)
    if "lm_head.weight" not in tensors:
        vocabulary = None  # the rows are the target's
    elif vocabulary is not None:
        vocabulary, order = vocabulary.sort()
        tensors["lm_head.weight"] = tensors["lm_head.weight"][order]
    remarks = [_remark(config), "its fc is left out, as in vLLM (use_aux_hidden_state)" * unused]
    remark = "; ".join(filter(None, remarks))
    return Checkpoint(layout, reading, shape, rotary, residual, normed_output, vocabulary, tensors, remark)


def _refuse(sentences: Mapping[str, object]) -> None:
    """Raise ModelError with the first sentence whose value is true."""
    for sentence, wrong in sentences.items():
        if wrong:
            raise ModelError(sentence)


def _config(folder: Path) -> dict[str, Any]:
    file, give = folder / "config.json", "Give the folder of an EAGLE-3 head."
    try:
        with file.open("rb") as opened:
            config = json.loads(opened.read(LARGEST_CONFIG))
    except (OSError, ValueError) as error:
        raise ModelError(f"{file} cannot be read as JSON ({error}). {give}") from error
    if not isinstance(config, dict):
        raise ModelError(f"{file} holds no settings of a model. {give}")
    return config


def _files(folder: Path) -> dict[Path, dict[str, tuple[int, ...]]]:
    paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        if list(folder.glob("*.bin")):
            raise ModelError(
                f"{folder.name} holds its weights as pytorch_model.bin; only safetensors are loaded. Convert it in its "
                f"folder: {CONVERT}"
            )
        raise ModelError(f"{folder.name} holds no *.safetensors; give the folder of an EAGLE-3 head.")
    shapes = {}
    for path in paths:
        try:
            with safe_open(path, "pt") as opened:
                shapes[path] = {name: tuple(opened.get_slice(name).get_shape()) for name in opened.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise ModelError(f"{path.name} of {folder.name} cannot be read ({error}). Fetch it again.") from error
    return shapes


def _plain(name: str) -> str:
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    return name


def _rotary(dims: Config, shape: HeadShape, head: str) -> LlamaConfig:
    names = ("rope_theta", "rope_scaling", "rope_parameters")
    named = {name: dims[name] for name in names if dims.get(name) is not None}
    try:
        config = LlamaConfig(
            hidden_size=shape.heads.queries * shape.heads.size,
            num_attention_heads=shape.heads.queries,
            num_key_value_heads=shape.heads.keys,
            head_dim=shape.heads.size,
            max_position_embeddings=int(dims.get("max_position_embeddings") or 2048),
            **named,
        )
        kind = (config.rope_parameters or {}).get("rope_type", "default")
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise ModelError(f"The rotary positions of {head} cannot be read ({error}); mend config.json.") from error
    if kind not in ROTARY:
        raise ModelError(f"{head} has rotary positions of the kind {str(kind)[:40]!r}; taken are {', '.join(ROTARY)}.")
    return config


def _entry(dims: Config, name: str, kind: type, head: str) -> Any:
    """Return a setting of this type: a whole number from 1, or a fraction between 0 and 1. Raises ModelError for any
    other value."""
    value: Any = dims.get(name)
    right = isinstance(value, kind) and isinstance(value, bool) == (kind is bool)
    limits = {int: 1 << 24, float: 1}
    if not right or (kind in limits and not 0 < value < limits[kind]):
        raise ModelError(f"The config.json of {head} has no usable {name} ({str(value)[:40]}); mend it.")
    return value


def _flag(config: Config, name: str, head: str) -> bool | None:
    """Return a setting of EAGLE-3.1, which may be in SpecForge's eagle_config; None if it is missing."""
    nested = config.get("eagle_config")
    value = config.get(name, nested.get(name) if isinstance(nested, dict) else None)
    return None if value is None else bool(_entry({name: value}, name, bool, head))


def _normed_output(config: Config, layout: str, shapes: Shapes, features: int, head: str) -> bool:
    """Return whether the normed output is fed back. Raises ModelError if the layout has no such setting, and unless the
    norms of features match the configuration."""
    norms = {name for name in shapes if FEATURE_NORM.fullmatch(name)}
    configured, joint = bool(_flag(config, "fc_norm", head)), "input_norm.weight" in shapes
    named, normed = _flag(config, "norm_before_fc", head), _flag(config, "norm_output", head)
    expected = {f"fc_norm.{i}.weight" for i in range(features)} if configured else set[str]()
    lacks_fc = (norms or joint) and "fc.weight" not in shapes
    mixed = norms != expected or joint != bool(named) or (norms and joint) or lacks_fc
    _refuse(
        {
            f"{head} has norms of its features (fc_norm) or feeds its normed output back (norm_output), which "
            "SafeAILab's layout does not have; give it in the layout that it was saved in, with architectures in its "
            "config.json.": layout == SAFEAILAB and (configured or norms or normed),
            f"{head} holds {len(norms)} norms of single features and {'one' if joint else 'none'} of all, which "
            "its config.json (fc_norm, norm_before_fc) does not describe, or which lack fc.weight or exclude each "
            "other; give config.json and weights of one head.": mixed,
            f"norm_output in the config.json of {head} means a norm before lm_head where SpecForge trains, and that "
            "the normed output is fed back where SGLang and vLLM serve. Leave it out if the head was trained on its "
            "output without the norm; else save it in speculators' layout.": normed is not None and layout == SPECFORGE,
        }
    )
    return bool(normed)


def _vocabulary(
    offsets: Tensor | None, kept: Tensor | None, drafted: int, target: TargetShape, head: str
) -> Tensor | None:
    """Return the target's ids of the head's tokens, int64 [Vd], from d2t (id minus place) and t2d (marks of ids)."""
    size = target.vocabulary
    marks = size if kept is None else len(kept)
    _refuse(
        {
            f"{head} was made for a vocabulary of {marks} tokens, {target.name} scores {size}; take the target that "
            "the head was trained for.": marks != size,
            f"{head} drafts {drafted} of the {size} tokens of {target.name}, but does not say which: d2t is missing; "
            "fetch the whole checkpoint.": offsets is None and drafted != size,
        }
    )
    if offsets is None:
        return None
    ids = offsets.long() + torch.arange(drafted)
    ascending = ids.sort().values
    marked = ascending if kept is None else kept.bool().nonzero().squeeze(-1)
    distinct = bool((ascending.diff() > 0).all()) and int(ascending[0]) >= 0 and int(ascending[-1]) < size
    if not distinct or not torch.equal(marked, ascending):
        raise ModelError(
            f"d2t of {head} does not lead to {drafted} different tokens of the target's vocabulary of {size}, or to "
            f"others than the {len(marked)} that t2d marks. It must hold offsets, id minus place, as saved with t2d: "
            f"subtract arange({drafted}) if it holds ids, or take the target that the head was trained for."
        )
    return None if torch.equal(ids, torch.arange(size)) else ids


def _remark(config: Config) -> str:
    """Return a note on the relaxed rule in a speculators configuration, which engines do not read."""
    nested = config.get("speculators_config")
    methods = nested.get("proposal_methods") if isinstance(nested, dict) else None
    for method in filter(lambda each: isinstance(each, dict), methods if isinstance(methods, list) else ()):
        best, off = method.get("verifier_accept_k", 1), method.get("accept_tolerance", 0.0)
        if isinstance(best, int) and isinstance(off, int | float) and (best > 1 or off > 0):
            asks = f"its configuration asks to keep one of the target's {best} best tokens within {off:g} nats"
            return f"{asks}, which is left to the rule here"
    return ""


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
    wrong = len(set(layers)) < len(layers) or not all(0 <= layer <= count for layer in layers)
    _refuse(
        {
            f"The config.json of {head} names layers {list(outer)} ({KEY}), but its eagle_config names {list(inner)}; "
            "leave the list out that the head was not trained with.": conflict,
            f"{head} reads the inputs of layers {list(layers)}, but {target.name} has {count} different layers (0 to "
            f"{count - 1}, and {count} for the last one's output); take the target that the head was trained for, or "
            f"name its layers in its config.json ({KEY}).": wrong,
        }
    )
    return Reading(layers, count, guess)


def _usual(count: int) -> tuple[int, ...]:
    """Return SafeAILab's choice; with few layers some coincide."""
    return tuple(dict.fromkeys((2, count // 2, count - 3)))


def _listed(config: Config, head: str) -> tuple[int, ...]:
    """Return the layers named in the configuration; may be empty."""
    listed = [] if config.get(KEY) is None else _entry(config, KEY, list, head)
    if any(isinstance(each, bool) or not isinstance(each, int) for each in listed):
        raise ModelError(f"{KEY} in the config.json of {head} is no list of whole numbers.")
    return tuple(listed)


def _shape(dims: Config, config: Config, shapes: Shapes, target: TargetShape, head: str) -> HeadShape:
    """Return the shape by configuration and weights; `dims` is the layer's part. Raises ModelError."""
    dims = {"num_hidden_layers": 1, "hidden_act": "silu", "rms_norm_eps": 1e-6} | dict(dims)
    heads = _entry(dims, "num_attention_heads", int, head)
    groups = _entry({"num_key_value_heads": heads} | dims, "num_key_value_heads", int, head)
    layers, activation = dims["num_hidden_layers"], dims["hidden_act"]
    own = "lm_head.weight" in shapes
    rows, query_rows = shapes.get("lm_head.weight", (target.vocabulary,))[0], shapes["self_attn.q_proj.weight"][0]
    drafted = config.get("draft_vocab_size")
    differs = isinstance(drafted, int) and drafted != rows
    _refuse(
        {
            f"{head} has {layers} layers; heads of one layer are taken, so take another.": layers != 1,
            f"{head} has the activation {str(activation)[:40]!r}; only silu is taken.": activation != "silu",
            f"{head} is to draft {drafted} tokens (draft_vocab_size), but its lm_head has {rows} rows; one of them is "
            "from another head.": own and differs,
            f"{head} has no lm_head.weight; fetch the whole checkpoint.": not own and differs,
            f"{head} has {heads} heads of queries and {groups} of keys by its config.json, which its weights do not "
            "fit; mend config.json.": query_rows % heads or heads % groups,
        }
    )
    return HeadShape(
        width=_entry(dims, "hidden_size", int, head),
        inner=_entry(dims, "intermediate_size", int, head),
        heads=Heads(heads, groups, query_rows // heads),
        epsilon=_entry(dims, "rms_norm_eps", float, head),
        vocabulary=rows,
    )


def _check_names(found: Shapes, head: str, layout: str) -> None:
    """Raise ModelError for the names of an incomplete head, or of more than one."""
    missing = sorted(name for name in MUST if name not in found)
    others = (name for name in found if name not in (*MUST, *MAY) and not name.endswith(IGNORED))
    unknown = sorted(name for name in others if not FEATURE_NORM.fullmatch(name))
    _refuse(
        {
            f"{head} is no whole EAGLE-3 head in the {layout} layout: it lacks {_some(missing)}. Give the folder of an "
            "EAGLE-3 head; EAGLE-1 and 2 have another layer.": missing,
            f"{head} holds {_some(unknown)}, which heads of one plain layer do not have, so it would draft otherwise "
            "than it was trained to; take another head.": unknown,
        }
    )


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if names[3:] else "")


def _check_shapes(found: Shapes, shape: HeadShape, target: TargetShape, features: int, head: str) -> None:
    """Raise ModelError if the weights do not match the head's size, or the features of the target."""
    h, size_of_head, wide = shape.width, shape.heads.size, features * target.width
    queries, keys = shape.heads.queries * size_of_head, shape.heads.keys * size_of_head
    embeddings = next(iter(found.get("embed_tokens.weight", (target.vocabulary,))), 0)
    sizes: dict[str, tuple[int, ...]] = {  # by the configuration
        "fc.weight": (h, wide),
        "self_attn.q_proj.weight": (queries, 2 * h),
        **dict.fromkeys(("self_attn.k_proj.weight", "self_attn.v_proj.weight"), (keys, 2 * h)),
        "self_attn.o_proj.weight": (h, queries),
        **dict.fromkeys(("mlp.gate_proj.weight", "mlp.up_proj.weight"), (shape.inner, h)),
        "mlp.down_proj.weight": (h, shape.inner),
        "lm_head.weight": (shape.vocabulary, h),
        "d2t": (shape.vocabulary,),
        "t2d": (next(iter(found.get("t2d", ())), 0),),
        **dict.fromkeys(("self_attn.q_norm.weight", "self_attn.k_norm.weight"), (size_of_head,)),
        "input_norm.weight": (wide,),
        "embed_tokens.weight": (embeddings, h),
    }
    sizes |= {name: (target.width,) for name in found if FEATURE_NORM.fullmatch(name)}
    expected = {name: sizes.get(name, (h,)) for name in found if not name.endswith(IGNORED)}
    fc = found.get("fc.weight", ())
    unshared = h != target.width and not {"embed_tokens.weight", "lm_head.weight"} <= set(found)
    read = fc[1] if len(fc) == 2 else wide
    _refuse(
        {
            f"{head} reads {read} numbers of each token, but {features} layers of {target.name}, {target.width} wide, "
            f"give {wide}; take the target that the head was trained for, or name the layers in its config.json "
            f"({KEY}).": fc == (h, read) and read != wide,
            **{
                f"{name} of {head} is {list(found[name])} large, but by its config.json it would be {list(size)}; give "
                "config.json and weights of one head.": found[name] != size
                for name, size in expected.items()
            },
            f"{head} is {h} wide and {target.name} {target.width}, so it cannot share the target's embeddings; take "
            "the target that the head was trained for.": unshared,
            f"{head} has embeddings of {embeddings} tokens, {target.name} scores {target.vocabulary}; take the target "
            "that the head was trained for.": embeddings < target.vocabulary,
        }
    )
