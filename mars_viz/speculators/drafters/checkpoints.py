"""Reader of folders with a drafter for one target: configuration, tensors' names and sizes, and then the tensors."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import LlamaConfig

from mars_viz import demo
from mars_viz.errors import ModelError, SettingError
from mars_viz.speculators import model_files as files
from mars_viz.speculators import names
from mars_viz.speculators.drafters import NamedDrafter
from mars_viz.speculators.networks.llama_forward import Heads
from mars_viz.speculators.site import Origin, Site

ROTARY = ("default", "linear", "llama3", "yarn")
"""Kinds of rotary positions whose angles do not depend on the text, so that they may begin at 0 or at 1."""
PLAIN = ("BF16", "F16", "F32", "F64")  # kinds of numbers that are not quantised, in safetensors' names
CONVERT = (
    'python -c "import torch, safetensors.torch as s; s.save_file({k: v.contiguous() for k, v in '
    "torch.load('pytorch_model.bin', weights_only=True).items()}, 'model.safetensors')\""
)
Config = Mapping[str, Any]  # of a drafter, or of a part of it
Shapes = Mapping[str, tuple[int, ...]]  # by a tensor's name
T = TypeVar("T")


class TargetShape(NamedTuple):
    """The sizes of a target that a drafter must match."""

    name: str  # name for messages
    width: int  # width of its hidden states
    layers: int  # L
    vocabulary: int  # number of tokens that it scores


class Saved:
    """A drafter's folder. The tensors are read when they have been checked."""

    def __init__(self, folder: Path, name: str = "", plain: Callable[[str], str] = str):
        """`name` is for messages. `plain` returns a tensor's name from that in the file; empty for one to leave out.
        Raises ModelError for a folder that cannot be read."""
        self.folder, self.name = folder, name or folder.name
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.kinds: dict[str, str] = {}  # of the tensors' numbers, in safetensors' names
        self.files: dict[Path, dict[str, str]] = {}  # by file, the plain names of its tensors
        file = folder / "config.json"
        try:
            self.config: dict[str, Any] = {**json.loads(file.read_bytes())}
            for file in sorted(folder.glob("*.safetensors")):
                with safe_open(file, "pt") as opened:
                    self.files[file] = {each: plain(each) for each in opened.keys() if plain(each)}  # noqa: SIM118
                    for each, named in self.files[file].items():
                        tensor = opened.get_slice(each)
                        self.shapes[named], self.kinds[named] = tuple(tensor.get_shape()), tensor.get_dtype()
        except (OSError, ValueError, TypeError, SafetensorError) as error:
            raise ModelError(
                f"{file.name} of {self.name} cannot be read ({error}). Give the whole folder of a drafter."
            ) from error
        if not self.files:
            raise ModelError(
                f"{self.name} holds no *.safetensors, the only format that is loaded. Convert its pytorch_model.bin in "
                f"a folder DIR, and name that: {CONVERT}"
            )

    def check(self, needed: Shapes, optional: Shapes, remedy: str) -> None:
        """Raise ModelError for missing and unknown tensors, and for others in another size or quantised."""
        sizes, found = {**needed, **optional}, self.shapes
        faults = {
            "lacks": needed.keys() - found.keys(),
            "holds, other than such drafters,": found.keys() - sizes.keys(),
        }
        for fault, which in faults.items():
            if which:
                raise ModelError(f"{self.name} {fault} {some_of(sorted(which))}. {remedy}")
        for name, shape in found.items():
            if shape != sizes[name]:
                raise ModelError(
                    f"{name} of {self.name} is {list(shape)} large, but for its config.json and its target it would be "
                    f"{list(sizes[name])}. {remedy}"
                )
        quantised = {name for name, kind in self.kinds.items() if kind not in PLAIN} - {"d2t", "t2d"}
        if quantised or self.config.get("quantization_config"):
            raise ModelError(f"{self.name} is quantised; take the drafter in bfloat16, as it was trained.")

    def tensors(self) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {}
        for path, names_here in self.files.items():
            with safe_open(path, "pt") as opened:
                tensors |= {plain: opened.get_tensor(name) for name, plain in names_here.items()}
        return tensors

    def entry(self, name: str, kind: type[T], config: Config | None = None) -> T:
        """Return a setting of this type, of the whole configuration or of a part: a whole number from 1, or a fraction
        between 0 and 1. Raises ModelError for any other value."""
        value: Any = (self.config if config is None else config).get(name)
        right = isinstance(value, kind) and isinstance(value, bool) == (kind is bool)
        limits: dict[type, int] = {int: 1 << 24, float: 1}
        if not right or (kind in limits and not 0 < value < limits[kind]):
            raise ModelError(f"The config.json of {self.name} has no usable {name} ({str(value)[:40]}); mend it.")
        checked: T = value
        return checked

    def rotary(self, layer: Config, heads: Heads) -> LlamaConfig:
        own = ("rope_theta", "rope_scaling", "rope_parameters")
        named = {name: layer[name] for name in own if layer.get(name) is not None}
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
            raise ModelError(
                f"The rotary positions of {self.name} cannot be read ({error}); mend config.json."
            ) from error
        if kind not in ROTARY:
            known = ", ".join(ROTARY)
            raise ModelError(f"{self.name} has rotary positions of the kind {str(kind)[:40]!r}; taken are {known}.")
        return config

    def vocabulary(self, tensors: dict[str, Tensor], target: TargetShape) -> Tensor | None:
        """Return the target's ids of the drafter's tokens, int64 [V'], ascending, from d2t (id minus place) and t2d
        (marks of ids), and sort the output rows accordingly. None if they are all of the target's, or have no rows of
        their own. Raises ModelError."""
        offsets, kept, size = tensors.pop("d2t", None), tensors.pop("t2d", None), target.vocabulary
        own = tensors.get("lm_head.weight")
        drafted = size if own is None else len(own)
        if offsets is None and drafted == size:
            return None
        ids = torch.arange(drafted) if offsets is None else offsets.long() + torch.arange(drafted)
        ascending, order = ids.sort()
        marked = ascending if kept is None else kept.bool().nonzero().squeeze(-1)
        distinct = bool((ascending.diff() > 0).all()) and int(ascending[0]) >= 0 and int(ascending[-1]) < size
        if offsets is None or not distinct or not torch.equal(marked, ascending):
            raise ModelError(
                f"d2t of {self.name} does not lead to {drafted} different tokens of the {size} of {target.name}, or to "
                f"others than the {len(marked)} that t2d marks. It must hold offsets, id minus place, as saved with "
                f"t2d: subtract arange({drafted}) if it holds ids, or take the target that it was trained for."
            )
        if own is None or torch.equal(ids, torch.arange(size)):
            return None
        tensors["lm_head.weight"] = own[order]
        return ascending


def some_of(names: list[str]) -> str:
    """Return the first three names, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if names[3:] else "")


def place_of(named: NamedDrafter, own: Path | None) -> tuple[Path, str, str]:
    """Return the folder of a drafter's checkpoint, fetched if needed, its name in runs, and its revision; its `own`
    folder if the name has none. Raises ModelError."""
    head = named.head
    if not head:
        assert own is not None
        return own, named.name, files.revision_of(str(own))
    if names.is_place(head):
        return Path(head), replace(named, head=files.short_name(head)).name, files.revision_of(head)  # type: ignore[type-var]
    with files.refusals(head, "checkpoint"):
        folder = files.fetched(head, ["config.json", "*.safetensors"])
    return folder, named.name, files.revision_of(str(folder))


def opened(named: NamedDrafter, target: Origin) -> tuple[Path, str, str, TargetShape]:
    """Return the folder of a drafter, its name, its revision, and the shape of its target."""
    config = target.config().get_text_config()
    shape = TargetShape(target.name, config.hidden_size, config.num_hidden_layers, config.vocab_size)
    return *place_of(named, demo.head_for(named.family, target.name)), shape


def with_shared(
    name: str, tensors: Mapping[str, Tensor], vocabulary: Tensor | None, site: Site
) -> tuple[dict[str, Tensor], Tensor | None]:
    """Return the tensors of a drafter on the target's device, with embeddings and output rows of the target if it has
    none, and the target's ids of the tokens that it drafts: those of its vocabulary that the site keeps. Raises
    SettingError if there are none."""
    target, size, kept = site.inside(name), site.size, site.kept
    place = target.device
    own = {each: tensor.to(place, target.dtype) for each, tensor in tensors.items()}
    shared = {
        "embed_tokens.weight": target.get_input_embeddings().weight,
        "lm_head.weight": target.get_output_embeddings().weight[:size],
    }
    vocabulary = None if vocabulary is None else vocabulary.to(place)
    if kept is not None:
        tokens = rows = kept.to(place)
        if vocabulary is not None:
            rows = torch.isin(vocabulary, tokens).nonzero()[:, 0]  # of the head
            tokens = vocabulary[rows]
        if not len(rows):
            raise SettingError(f"{name} has none of the {len(kept):,} tokens that are to be kept; keep more.")
        vocabulary, own["lm_head.weight"] = tokens, (shared | own)["lm_head.weight"][rows]
    elif vocabulary is None and "lm_head.weight" in own:
        own["lm_head.weight"] = own["lm_head.weight"][:size]
    return shared | own, vocabulary
