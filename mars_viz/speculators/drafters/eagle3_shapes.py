"""Size of an EAGLE-3 head: the required names and shapes of its checkpoint. Reads no files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mars_viz.errors import ModelError

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
FEATURE_NORM = re.compile(r"fc_norm\.\d+\.weight")
"""Optional names, one for each feature that it reads: EAGLE-3.1."""
IGNORED = "rotary_emb.inv_freq"
"""Follows from the configuration."""


@dataclass(frozen=True, slots=True)
class TargetShape:
    """The sizes of a target that a head must match."""

    name: str
    """Name for messages."""
    width: int
    """Width of its hidden states."""
    layers: int
    """L."""
    vocabulary: int
    """Number of tokens that it scores."""


@dataclass(frozen=True, slots=True)
class HeadShape:
    """Size of a head: H wide, I inside, reading k features of a target Ht wide."""

    width: int
    """H."""
    inner: int
    """I."""
    heads: int
    """Heads of queries."""
    groups: int
    """Heads of keys and values."""
    size: int
    """D, of each head."""
    epsilon: float
    """Epsilon of the norms."""
    vocabulary: int
    """Vd, number of tokens that it can draft."""


def _number(dims: Mapping[str, Any], name: str, head: str) -> int:
    number = dims.get(name)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 < number < 1 << 24:
        raise ModelError(f"The config.json of {head} has no usable {name} ({str(number)[:40]}); mend it.")
    return number


def shape_of(
    dims: Mapping[str, Any],
    config: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...]],
    target: TargetShape,
    head: str,
) -> HeadShape:
    """Return the shape from the configuration and the weights' shapes; `dims` is the layer's part. Raises
    ModelError."""
    heads = _number(dims, "num_attention_heads", head)
    groups = _number({"num_key_value_heads": heads, **dims}, "num_key_value_heads", head)
    if dims.get("num_hidden_layers", 1) != 1:
        raise ModelError(
            f"{head} has {dims['num_hidden_layers']} layers; heads of one layer are taken, so take another."
        )
    if dims.get("hidden_act", "silu") != "silu":
        raise ModelError(f"{head} has the activation {str(dims['hidden_act'])[:40]!r}; only silu is taken.")
    drafted = config.get("draft_vocab_size")
    if "lm_head.weight" in shapes:
        rows = shapes["lm_head.weight"][0]
        if isinstance(drafted, int) and drafted != rows:
            raise ModelError(
                f"{head} is to draft {drafted} tokens (draft_vocab_size), but its lm_head has {rows} rows; one "
                "of them is from another head."
            )
    else:
        rows = target.vocabulary
        if isinstance(drafted, int) and drafted != rows:
            raise ModelError(f"{head} has no lm_head.weight; fetch the whole checkpoint.")
    query_rows = shapes["self_attn.q_proj.weight"][0]
    if query_rows % heads or heads % groups:
        raise ModelError(
            f"{head} has {heads} heads of queries and {groups} of keys by its config.json, which its weights do "
            "not fit; mend config.json."
        )
    epsilon = dims.get("rms_norm_eps", 1e-6)
    if not isinstance(epsilon, float) or not 0 < epsilon < 1:
        raise ModelError(f"The config.json of {head} has no usable rms_norm_eps ({str(epsilon)[:40]}); mend it.")
    return HeadShape(
        width=_number(dims, "hidden_size", head),
        inner=_number(dims, "intermediate_size", head),
        heads=heads,
        groups=groups,
        size=query_rows // heads,
        epsilon=epsilon,
        vocabulary=rows,
    )


def _expected(
    shape: HeadShape, features: int, target_width: int, found: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """Return the expected shapes of existing tensors by the configuration; -1 for any size."""
    h, queries, keys = shape.width, shape.heads * shape.size, shape.groups * shape.size
    sizes = {
        "fc.weight": (h, features * target_width),
        "self_attn.q_proj.weight": (queries, 2 * h),
        "self_attn.k_proj.weight": (keys, 2 * h),
        "self_attn.v_proj.weight": (keys, 2 * h),
        "self_attn.o_proj.weight": (h, queries),
        "mlp.gate_proj.weight": (shape.inner, h),
        "mlp.up_proj.weight": (shape.inner, h),
        "mlp.down_proj.weight": (h, shape.inner),
        "lm_head.weight": (shape.vocabulary, h),
        "d2t": (shape.vocabulary,),
        "t2d": (-1,),
        "self_attn.q_norm.weight": (shape.size,),
        "self_attn.k_norm.weight": (shape.size,),
        "input_norm.weight": (features * target_width,),
        "embed_tokens.weight": (-1, h),
    }
    sizes |= {name: (target_width,) for name in found if FEATURE_NORM.fullmatch(name)}
    return {name: sizes.get(name, (h,)) for name in found if not name.endswith(IGNORED)}


def check_names(found: Mapping[str, object], head: str, layout: str) -> None:
    """Raise ModelError for the names of an incomplete head, or of more than one."""
    if missing := sorted(name for name in MUST if name not in found):
        raise ModelError(
            f"{head} is no whole EAGLE-3 head in the {layout} layout: it lacks {_some(missing)}. Give the "
            "folder of an EAGLE-3 head; EAGLE-1 and 2 have another layer."
        )
    known_names = [
        name for name in found if name in (*MUST, *MAY) or name.endswith(IGNORED) or FEATURE_NORM.fullmatch(name)
    ]
    if unknown := sorted(set(found).difference(known_names)):
        raise ModelError(
            f"{head} holds {_some(unknown)}, which heads of one plain layer do not have, so it would draft "
            "otherwise than it was trained to; take another head."
        )


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if names[3:] else "")


def check_shapes(
    found: Mapping[str, tuple[int, ...]], shape: HeadShape, target: TargetShape, features: int, head: str
) -> None:
    """Raise ModelError if the weights do not match the head's size, or the features of the target."""
    expected = _expected(shape, features, target.width, found)
    fc, fc_expected = found.get("fc.weight"), expected.get("fc.weight")
    if fc and fc_expected and fc != fc_expected and len(fc) == 2 and fc[0] == fc_expected[0]:
        raise ModelError(
            f"{head} reads {fc[1]} numbers of each token, but {features} layers of {target.name}, "
            f"{target.width} wide, give {fc_expected[1]}; take the target that the head was trained for, or name the "
            "layers in its config.json (eagle_aux_hidden_state_layer_ids)."
        )
    for name, size in expected.items():
        got = found[name]
        if len(got) != len(size) or any(want not in (-1, have) for want, have in zip(size, got, strict=True)):
            raise ModelError(
                f"{name} of {head} is {list(got)} large, but by its config.json it would be {list(size)}; give "
                "config.json and weights of one head."
            )
    width = expected["norm.weight"][0]
    if width != target.width and not {"embed_tokens.weight", "lm_head.weight"} <= set(found):
        raise ModelError(
            f"{head} is {width} wide and {target.name} {target.width}, so it cannot share the target's "
            "embeddings; take the target that the head was trained for."
        )
    if "embed_tokens.weight" in found and found["embed_tokens.weight"][0] < target.vocabulary:
        raise ModelError(
            f"{head} has embeddings of {found['embed_tokens.weight'][0]} tokens, {target.name} scores "
            f"{target.vocabulary}; take the target that the head was trained for."
        )
