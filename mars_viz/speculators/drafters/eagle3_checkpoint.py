"""Reader of EAGLE-3 checkpoints in three layouts.

SafeAILab's own (github.com/SafeAILab/EAGLE), vLLM's speculators (github.com/vllm-project/speculators) and SpecForge's,
as SGLang serves it (github.com/sgl-project/SpecForge). They name the same layer differently, and also the target's
layers; see `eagle3_layers`. Unknown names are refused before weights are read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import LlamaConfig

from mars_viz.errors import ModelError
from mars_viz.speculators.drafters.eagle3_layers import Reading, reading_of
from mars_viz.speculators.drafters.eagle3_shapes import (
    FEATURE_NORM,
    HeadShape,
    TargetShape,
    check_names,
    check_shapes,
    shape_of,
)
from mars_viz.speculators.networks.layer_inputs import NORMED

LARGEST_CONFIG = 1 << 20
"""Maximum number of bytes of a config.json."""
ROTARY = ("default", "linear", "llama3", "yarn")
"""Kinds of rotary positions whose angles do not depend on the length of the text, so that a head's positions may begin
at 0 or at 1."""
CONVERT = (
    'python -c "import torch, safetensors.torch as s; s.save_file({k: v.contiguous() for k, v in '
    "torch.load('pytorch_model.bin', weights_only=True).items()}, 'model.safetensors')\""
)
PREFIXES = ("midlayer.", "layers.0.")
"""Prefixes of the names of the head's layer."""


class Layout(Enum):
    """The origin of a checkpoint."""

    SAFEAILAB = "SafeAILab"
    SPECULATORS = "speculators"
    SPECFORGE = "SpecForge"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A head as saved, under one set of names."""

    layout: Layout
    reading: Reading
    """The hidden states of the target that it reads."""
    shape: HeadShape
    rotary: LlamaConfig
    """Configuration of its positions."""
    normed_residual: bool
    """True if attention's result is added to the normed state."""
    normed_output: bool
    """True if its normed output is fed back, as in EAGLE-3.1."""
    vocabulary: Tensor | None
    """int64 [Vd], ascending; the target's ids of its tokens; None if they are the target's."""
    tensors: Mapping[str, Tensor]
    """By SafeAILab's names, without 'midlayer.'; rows of lm_head in the vocabulary's order."""
    remark: str = ""
    """A sentence about other entries of its configuration."""

    @property
    def note(self) -> str:
        """A sentence about the layout and the features."""
        note = f"{self.layout.value} layout, {self.reading.words} of the target"
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
        """Other hidden states that it may have been trained to read; the last norm's output only if its `fc` is then
        used."""
        fc = self.tensors.get("fc.weight")
        square = fc is not None and fc.shape[0] == fc.shape[1]
        return tuple(each for each in self.reading.others if not square or each.layers != (NORMED,))


def read_checkpoint(folder: Path, target: TargetShape) -> Checkpoint:
    """Return the head in a folder. Raises ModelError with a remedy for another model, or one for another target."""
    config = _config(folder)
    layout = _layout(config)
    dims = _layer_config(config, layout, folder)
    files = _files(folder)
    shapes = {_plain(name): shape for names in files.values() for name, shape in names.items()}
    check_names(shapes, folder.name, layout.value)
    last_alone = _flag(config, "use_aux_hidden_state", folder) is False
    reading = reading_of(config, last_alone, target, folder.name)
    shape = shape_of(dims, config, shapes, target, folder.name)
    features = len(reading.layers)
    needs_fc = features * target.width != shape.width
    if needs_fc and "fc.weight" not in shapes:
        raise ModelError(
            f"{folder.name} is {shape.width} wide and reads {features * target.width} numbers of each token, but has "
            "no fc.weight, which joins them; fetch the whole checkpoint, or, if it reads the target's last hidden "
            'state alone, write "use_aux_hidden_state": false into its config.json.'
        )
    unused = last_alone and not needs_fc and shapes.pop("fc.weight", None) is not None
    check_shapes(shapes, shape, target, features, folder.name)
    rotary = _rotary(dims, shape, folder)
    _check_feature_norms(config, layout, shapes, features, folder)
    residual = _normed_residual(config, layout, folder)
    tensors = _load(files)
    if unused:
        del tensors["fc.weight"]
    vocabulary = _vocabulary(tensors.pop("d2t", None), tensors.pop("t2d", None), shape.vocabulary, target, folder)
    if "lm_head.weight" not in tensors:
        vocabulary = None  # the rows are the target's
    elif vocabulary is not None:
        vocabulary, order = vocabulary.sort()
        tensors["lm_head.weight"] = tensors["lm_head.weight"][order]
    output = _normed_output(config, layout, folder)
    remarks = [_remark(config), "its fc is left out, as in vLLM (use_aux_hidden_state)" * unused]
    remark = "; ".join(filter(None, remarks))
    return Checkpoint(layout, reading, shape, rotary, residual, output, vocabulary, tensors, remark)


def _config(folder: Path) -> dict[str, Any]:
    file = folder / "config.json"
    try:
        with file.open("rb") as opened:
            config = json.loads(opened.read(LARGEST_CONFIG))
    except (OSError, ValueError) as error:
        raise ModelError(f"{file} cannot be read as JSON ({error}). Give the folder of an EAGLE-3 head.") from error
    if not isinstance(config, dict):
        raise ModelError(f"{file} holds no settings of a model. Give the folder of an EAGLE-3 head.")
    return config


def _layout(config: Mapping[str, Any]) -> Layout:
    names = config.get("architectures") or []
    if config.get("speculators_model_type") or "transformer_layer_config" in config or "Eagle3Speculator" in names:
        return Layout.SPECULATORS
    if isinstance(config.get("eagle_config"), dict) or "LlamaForCausalLMEagle3" in names:
        return Layout.SPECFORGE
    return Layout.SAFEAILAB


def _layer_config(config: Mapping[str, Any], layout: Layout, folder: Path) -> Mapping[str, Any]:
    """Return the settings with the size of the head's layer."""
    if layout is not Layout.SPECULATORS:
        return config
    kind = config.get("speculators_model_type", "eagle3")
    if kind != "eagle3":
        raise ModelError(f"{folder.name} is a drafter of the kind {str(kind)[:40]!r}; take an EAGLE-3 head.")
    dims = config.get("transformer_layer_config")
    if not isinstance(dims, dict):
        raise ModelError(f"The config.json of {folder.name} has no transformer_layer_config; save the head again.")
    return dims


def _files(folder: Path) -> dict[Path, dict[str, tuple[int, ...]]]:
    """Return the names and shapes in each of its files."""
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


def _load(files: Mapping[Path, Mapping[str, tuple[int, ...]]]) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for path, names in files.items():
        with safe_open(path, "pt") as opened:
            tensors |= {_plain(name): opened.get_tensor(name) for name in names}
    return tensors


def _rotary(dims: Mapping[str, Any], shape: HeadShape, folder: Path) -> LlamaConfig:
    """Return the configuration for transformers' rotary positions."""
    named = {
        name: dims[name] for name in ("rope_theta", "rope_scaling", "rope_parameters") if dims.get(name) is not None
    }
    try:
        config = LlamaConfig(
            hidden_size=shape.heads * shape.size,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.groups,
            head_dim=shape.size,
            max_position_embeddings=int(dims.get("max_position_embeddings") or 2048),
            **named,
        )
        kind = (config.rope_parameters or {}).get("rope_type", "default")
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise ModelError(
            f"The rotary positions of {folder.name} cannot be read ({error}); mend config.json."
        ) from error
    if kind not in ROTARY:
        raise ModelError(
            f"{folder.name} has rotary positions of the kind {str(kind)[:40]!r}; taken are {', '.join(ROTARY)}."
        )
    return config


def _normed_residual(config: Mapping[str, Any], layout: Layout, folder: Path) -> bool:
    if layout is not Layout.SPECULATORS:
        return False
    normed = config.get("norm_before_residual")
    if not isinstance(normed, bool):
        raise ModelError(
            f"The config.json of {folder.name} does not say norm_before_residual, of which speculators takes false and "
            'vLLM true where it is missing; write "norm_before_residual": true or false into it, as it was trained.'
        )
    return normed


def _flag(config: Mapping[str, Any], name: str, folder: Path) -> bool | None:
    """Return a setting of EAGLE-3.1, which may be in SpecForge's eagle_config; None if it is missing."""
    nested = config.get("eagle_config")
    value = config.get(name, nested.get(name) if isinstance(nested, dict) else None)
    if value is not None and not isinstance(value, bool):
        raise ModelError(f"{name} in the config.json of {folder.name} is neither true nor false; mend it.")
    return value


def _check_feature_norms(
    config: Mapping[str, Any], layout: Layout, shapes: Mapping[str, object], features: int, folder: Path
) -> None:
    """Raise ModelError unless the norms of features match the configuration."""
    norms = {name for name in shapes if FEATURE_NORM.fullmatch(name)}
    configured = bool(_flag(config, "fc_norm", folder))
    if layout is Layout.SAFEAILAB and (configured or norms):
        raise ModelError(
            f"{folder.name} has norms of its features (fc_norm), which SafeAILab's layout does not have; give it in "
            "the layout that it was saved in, with architectures in its config.json."
        )
    if configured != bool(norms) or (norms and norms != {f"fc_norm.{i}.weight" for i in range(features)}):
        raise ModelError(
            f"{folder.name} holds {len(norms)} norms of features, but by its config.json (fc_norm) it has "
            f"{features if configured else 'none'}; give config.json and weights of one head."
        )
    if norms and "input_norm.weight" in shapes:
        raise ModelError(
            f"{folder.name} has a norm of all its features (norm_before_fc) and one of each (fc_norm), which exclude "
            "each other; save the head with the one that it was trained with."
        )
    joint, named = "input_norm.weight" in shapes, _flag(config, "norm_before_fc", folder)
    if joint != bool(named):
        raise ModelError(
            f"{folder.name} {'has' if joint else 'lacks'} input_norm.weight, a norm of all its features, but "
            f"norm_before_fc in its config.json is {'missing' if named is None else str(named).lower()}; give "
            f'config.json and weights of one head, or write "norm_before_fc": {str(joint).lower()} if it was trained '
            "so."
        )
    if (norms or joint) and "fc.weight" not in shapes:
        raise ModelError(f"{folder.name} has norms for its fc, but no fc.weight; fetch the whole checkpoint.")


def _normed_output(config: Mapping[str, Any], layout: Layout, folder: Path) -> bool:
    normed = _flag(config, "norm_output", folder)
    if normed is not None and layout is Layout.SPECFORGE:
        raise ModelError(
            f"norm_output in the config.json of {folder.name} means a norm before lm_head where SpecForge trains, and "
            "that the normed output is fed back where SGLang and vLLM serve. Leave it out if the head was trained on "
            "its output without the norm; else save it in speculators' layout."
        )
    if normed and layout is Layout.SAFEAILAB:
        raise ModelError(
            f"{folder.name} feeds its normed output back (norm_output), which SafeAILab's layout does not have; save "
            "it in the layout of speculators."
        )
    return bool(normed)


def _vocabulary(
    offsets: Tensor | None, kept: Tensor | None, drafted: int, target: TargetShape, folder: Path
) -> Tensor | None:
    """Return the target's ids of the head's tokens, int64 [Vd], from d2t (id minus place) and t2d (marks of ids)."""
    if kept is not None and len(kept) != target.vocabulary:
        raise ModelError(
            f"{folder.name} was made for a vocabulary of {len(kept)} tokens, {target.name} scores {target.vocabulary}; "
            "take the target that the head was trained for."
        )
    if offsets is None:
        if drafted != target.vocabulary:
            raise ModelError(
                f"{folder.name} drafts {drafted} of the {target.vocabulary} tokens of {target.name}, but does not say "
                "which: d2t is missing; fetch the whole checkpoint."
            )
        return None
    ids = offsets.long() + torch.arange(drafted)
    marked = None if kept is None else kept.bool().nonzero().squeeze(-1)
    if marked is not None and torch.equal(marked, offsets.long()):
        raise ModelError(
            f"d2t of {folder.name} holds token ids where offsets are held, id minus place; subtract arange({drafted})."
        )
    outside = bool(((ids < 0) | (ids >= target.vocabulary)).any())
    if outside or len(set(ids.tolist())) < drafted:
        what = "leaves the target's vocabulary" if outside else "gives one token twice"
        raise ModelError(
            f"d2t of {folder.name}, offsets of the head's tokens, {what} of {target.vocabulary}; take the target that "
            "the head was trained for, and d2t as it was saved with it."
        )
    if marked is not None and not torch.equal(marked, ids.sort().values):
        raise ModelError(
            f"d2t and t2d of {folder.name} name different tokens ({len(marked)} are marked, {drafted} drafted); they "
            "were not saved together, or never filled in: save the head with both."
        )
    return None if torch.equal(ids, torch.arange(target.vocabulary)) else ids


def _remark(config: Mapping[str, Any]) -> str:
    """Return a note on the relaxed rule in a speculators configuration, which engines do not read."""
    nested = config.get("speculators_config")
    methods = nested.get("proposal_methods") if isinstance(nested, dict) else None
    for method in methods if isinstance(methods, list) else ():
        if isinstance(method, dict):
            best, off = method.get("verifier_accept_k", 1), method.get("accept_tolerance", 0.0)
            if isinstance(best, int) and isinstance(off, int | float) and (best > 1 or off > 0):
                return (
                    f"its configuration asks to keep what is among the target's {best} best tokens within {off:g} "
                    "nats, which is left to the rule here"
                )
    return ""
