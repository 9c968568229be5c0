"""Reader of layers for multi-token prediction (MTP), from the folder of the target or one of their own.

DeepSeek-V3, GLM-4.5 and Step-3.5 number them on after the target's layers, Qwen3-Next, Qwen3.5 and Mellum name them
`mtp.*`, and vLLM's speculators `mtp_layers.*`. transformers' `MtpModel` makes the layers of the target's family and
renames the tensors, as for `generate(use_mtp=True)`.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding
from transformers import PreTrainedModel
from transformers.core_model_loading import convert_and_load_state_dict_in_model
from transformers.modeling_layers import MtpModel
from transformers.modeling_utils import ContextManagers, LoadStateDictConfig

from mars_viz import demo
from mars_viz.errors import ModelError
from mars_viz.speculators.backend import Part
from mars_viz.speculators.drafters import Mtp
from mars_viz.speculators.drafters.checkpoints import PLAIN, Saved, place_of, some_of
from mars_viz.speculators.drafters.heads import HeadDrafter
from mars_viz.speculators.networks.base import NORMED
from mars_viz.speculators.networks.mtp_head import MtpHeads, MtpNetwork
from mars_viz.speculators.site import DrafterPart, Origin, Ready, Site

COUNTS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers")  # entries of config.json
NUMBERED = re.compile(r"(?:model\.)?(?:language_model\.)?(?:model\.)?layers\.(\d+)\.(.+)")
SPECULATORS = re.compile(r"mtp_layers\.(\d+)\.(.+)")
RENAMED = {"token_layernorm": "enorm", "hidden_layernorm": "hnorm", "input_proj": "eh_proj"} | {
    "final_layernorm": "shared_head.norm"
}
"""DeepSeek's names of the modules that speculators names otherwise."""
ELSEWHERE = "Fetch the whole model, name a folder that holds them (mtp:DIR), or take another drafter."
OWN = ("embed_tokens.weight", "shared_head.head.weight")  # optional embeddings and output rows of a head, [V, H]


def ready(named: Mtp, target: Origin) -> Ready:
    """Find the layers, in the target's folder or one of their own, as soon as they are here, and return the function
    that loads them."""
    own = demo.MTP if demo.is_built_in(target.name) else None
    found = find_layers(named, target, own) if named.head or own or target.is_here else None

    def load(site: Site) -> DrafterPart:
        model = site.inside(named.name)
        origin = Origin(target.name, lambda: model.config)
        saved, layout, count, name, revision = found or find_layers(named, origin, own)
        heads = load_heads(saved, count, model, site.size)
        vocabulary = None if site.kept is None else site.kept.to(site.place)
        if vocabulary is not None:
            heads = replace(heads, outputs=[rows[vocabulary] for rows in heads.outputs])
        layers = "one MTP layer" if count == 1 else f"{count} MTP layers"
        return Part(
            name,
            lambda settings: HeadDrafter(MtpNetwork(heads), (NORMED,), vocabulary, settings),
            revision or site.target.revision,
            note=f"{layers} in {layout} layout; as in transformers, states are read after their final norm, the "
            f"target's and its own, and no embedding is left out; token {count + 1} of a draft is made by the first "
            "layer again, as in vLLM",
            drafts_trees=True,
        )

    return load


def find_layers(named: Mtp, target: Origin, own: Path | None) -> tuple[Saved, str, int, str, str]:
    """Return the MTP layers, their layout and their number, and the drafter's name and revision. Raises ModelError,
    with the remedy, if there are none, or not all, or if they are quantised."""
    config = target.config()
    if named.head or own:
        folder, drafter, revision = place_of(named, own)
        name = drafter
    else:
        folder, drafter, revision, name = Path(config.name_or_path), named.name, "", target.name
    layers, layouts = config.get_text_config().num_hidden_layers, dict[str, set[int]]()

    def plain(original: str) -> str:
        layout, head, renamed = _read_name(original, layers)
        if layout:
            layouts.setdefault(layout, set()).add(head)
        return renamed

    saved = Saved(folder, name, plain)
    text = {**saved.config, **saved.config.get("text_config", {})}
    kind = text.get("speculators_model_type") or next((key for key in text if key.startswith("dspark_")), "mtp")
    if kind != "mtp":
        raise ModelError(f"{name} holds a drafter of another kind ({str(kind)[:40]}). {ELSEWHERE}")
    if len(layouts) != 1:
        kinds = f"MTP layers in more than one layout ({', '.join(layouts)})" if layouts else "no MTP layers"
        raise ModelError(f"{name} holds {kinds}. {ELSEWHERE}")
    ((layout, heads),) = layouts.items()
    count = max((text[key] for key in COUNTS if isinstance(text.get(key), int)), default=0)
    if len(heads) < count or heads != set(range(len(heads))):
        raise ModelError(f"{name} holds tensors of {len(heads)} of the {count} MTP layers in its config. {ELSEWHERE}")
    if quantised := [f"{tensor} is {kind}" for tensor, kind in saved.kinds.items() if kind not in PLAIN]:
        raise ModelError(f"The MTP layers of {name} are quantised ({quantised[0]}), which cannot be read. {ELSEWHERE}")
    return saved, layout, len(heads), drafter, revision


def _read_name(name: str, layers: int) -> tuple[str, int, str]:
    """Return a tensor's layout, its head, and its name for transformers; an empty layout if it is of no MTP layer."""
    if match := SPECULATORS.fullmatch(name):
        module, _, rest = match[2].partition(".")
        head = int(match[1])
        return "speculators'", head, f"model.layers.{layers + head}.{RENAMED.get(module, module)}.{rest}"
    if (match := NUMBERED.fullmatch(name)) and int(match[1]) >= layers:
        plain = match[2].removeprefix("transformer.").replace("shared_head.output.", "shared_head.head.")  # of Step-3.5
        return "DeepSeek's", int(match[1]) - layers, f"model.layers.{match[1]}.{plain}"
    if name.startswith("mtp."):
        match = re.match(r"mtp\.layers\.(\d+)\.", name)
        return "Qwen's", int(match[1]) if match else 0, name
    return "", 0, ""


def load_heads(saved: Saved, count: int, target: PreTrainedModel, size: int) -> MtpHeads:
    """Return the heads on the target's device and in its dtype. They score the first `size` tokens. Raises ModelError
    unless every tensor of the target's family of layers is there, and no other."""
    tensors = saved.tensors()
    first, shared = target.config.get_text_config().num_hidden_layers, target.get_input_embeddings()
    output = target.get_output_embeddings().weight
    embeddings: list[Callable[[Tensor], Tensor]] = []
    outputs: list[Tensor] = []
    for head in range(count):
        of_input, of_output = (tensors.pop(f"model.layers.{first + head}.{name}", None) for name in OWN)
        own = _unlike(of_input, shared.weight)
        embeddings.append(shared if own is None else partial(embedding, weight=own))
        own = _unlike(of_output, output)
        outputs.append((output if own is None else own)[:size])
    model, rotary = _filled(saved.name, count, target, tensors)
    kinds = getattr(model.config, "layer_types", None) or ["full_attention"] * count
    if set(kinds) - {"full_attention", "sliding_attention"}:
        raise ModelError(f"MTP layers of the kind {', '.join(kinds)} cannot be rolled back; take another drafter.")
    windows = [
        (getattr(layer.mtp_block.self_attn, "sliding_window", None) or model.config.sliding_window)
        if kind == "sliding_attention"
        else None
        for layer, kind in zip(model.layers, kinds, strict=True)
    ]

    def turned(values: Tensor, positions: Tensor, head: int) -> tuple[Tensor, Tensor]:
        by_kind = {"layer_type": kinds[head]} if model.has_per_layer_rope else {}
        return rotary(values, position_ids=positions, **by_kind)

    return MtpHeads(list(model.layers), windows, turned, embeddings, outputs)


def _unlike(rows: Tensor | None, shared: Tensor) -> Tensor | None:
    """Return a head's own rows on the target's device; None if there are none, or if they repeat the target's."""
    own = None if rows is None else rows.to(shared)
    return None if own is None or torch.equal(own, shared) else own


def _filled(name: str, count: int, target: PreTrainedModel, tensors: dict[str, Tensor]) -> tuple[MtpModel, nn.Module]:
    """Return transformers' model of the layers with these tensors, and its rotary positions. Raises ModelError."""
    main = copy.copy(target)  # for `MtpModel`, which reads the number and the kinds of layers in its configuration
    main.config, kind = _config(target, count), target.config.model_type
    try:
        with ContextManagers(MtpModel.get_init_context(target.dtype, False, False, None)):
            model = MtpModel(main, count)
    except (AttributeError, StopIteration, TypeError, ValueError) as error:  # such as norms of another kind
        raise ModelError(f"A target of the type {kind} has no such MTP layers ({error}). {ELSEWHERE}") from error
    rotary, model.embed_tokens, model.shared_head, model.rotary_emb = model.rotary_emb, None, None, None
    loading = LoadStateDictConfig(
        weight_mapping=model.get_weight_conversions(main), device_map={"": target.device}, dtype=target.dtype
    )
    report, _ = convert_and_load_state_dict_in_model(model, tensors, loading)
    wrong = {
        "lack": report.missing_keys,
        "hold unknown": report.unexpected_keys,
        "hold in another size or form": [*report.mismatched_keys, *report.conversion_errors],
    }
    for what, keys in wrong.items():
        if keys:
            which = some_of(sorted(str(key[0] if isinstance(key, tuple) else key) for key in keys))
            raise ModelError(
                f"The MTP layers of {name} {what} tensors ({which}) for a target of the type {kind}. {ELSEWHERE}"
            )
    return model.eval().requires_grad_(False), rotary


def _config(target: PreTrainedModel, count: int) -> Any:
    """Return the target's configuration with `count` MTP layers. If it does not name their kinds, they have full
    attention and the last layer's MLP, as Qwen's do."""
    config = copy.deepcopy(target.config)
    text = config.get_text_config(decoder=True)
    text.num_mtp_layers = count
    for kinds, usual in (("layer_types", "full_attention"), ("mlp_layer_types", None)):
        named = getattr(text, kinds, None)
        if named is not None and len(getattr(text, f"mtp_{kinds}", None) or ()) != count:
            setattr(text, f"mtp_{kinds}", [usual or named[-1]] * count)
    return config
