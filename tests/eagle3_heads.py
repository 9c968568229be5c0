"""Random EAGLE-3 heads and targets, the head in three layouts, and its forward pass once more, in NumPy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

WIDTH, INNER, HEADS, GROUPS, VOCABULARY, DRAFTED = 64, 96, 4, 2, 97, 31
IDS = (1, 3, 4)
"""Layers whose inputs are read."""
DIMS: dict[str, Any] = {
    **{"hidden_size": WIDTH, "intermediate_size": INNER, "num_attention_heads": HEADS, "num_key_value_heads": GROUPS},
    **{"rms_norm_eps": 1e-6, "max_position_embeddings": 256, "vocab_size": VOCABULARY},
}


def random_target() -> PreTrainedModel:
    torch.manual_seed(1)
    config = LlamaConfig(**DIMS, num_hidden_layers=6, initializer_range=0.2, bos_token_id=0, eos_token_id=None)
    return LlamaForCausalLM(config).eval().requires_grad_(False)


def words() -> PreTrainedTokenizerFast:
    """Token i reads 'w<i>'."""
    made = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCABULARY)}, unk_token="w0"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=made)


def random_head(features: int = 3, seed: int = 2) -> dict[str, Tensor]:
    """In SafeAILab's names, d2t and t2d included."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator) / shape[-1] ** 0.5

    def norm() -> Tensor:
        return 1 + 0.2 * torch.randn(WIDTH, generator=generator)

    size = WIDTH // HEADS
    kept = torch.randperm(VOCABULARY, generator=generator)[:DRAFTED].sort().values
    sizes = {"q": (HEADS * size, 2 * WIDTH), "k": (GROUPS * size, 2 * WIDTH), "v": (GROUPS * size, 2 * WIDTH)}
    parts = {f"self_attn.{name}_proj": each for name, each in (sizes | {"o": (WIDTH, HEADS * size)}).items()}
    parts |= {"mlp.gate_proj": (INNER, WIDTH), "mlp.up_proj": (INNER, WIDTH), "mlp.down_proj": (WIDTH, INNER)}
    return {
        "fc.weight": normal(WIDTH, features * WIDTH),
        **{f"midlayer.{name}.weight": normal(*shape) for name, shape in parts.items()},
        **{
            f"midlayer.{name}.weight": norm() for name in ("hidden_norm", "input_layernorm", "post_attention_layernorm")
        },
        "norm.weight": norm(),
        "lm_head.weight": normal(DRAFTED, WIDTH),
        "d2t": kept - torch.arange(DRAFTED),
        "t2d": torch.zeros(VOCABULARY, dtype=torch.bool).index_fill_(0, kept, value=True),
    }


def config_of(layout: str, ids: Sequence[int] | None = IDS) -> dict[str, Any]:
    """The configuration of a head in that layout that reads the inputs of these layers; None leaves that open."""
    dims = DIMS | {"model_type": "llama", "num_hidden_layers": 1, "rope_theta": 10000.0}
    named = {} if ids is None else {"eagle_aux_hidden_state_layer_ids": [i - (layout == "SpecForge") for i in ids]}
    if layout == "SpecForge":
        own = dims | {"architectures": ["LlamaForCausalLMEagle3"], "eagle_config": named}
    elif layout == "speculators":
        own = named | {"architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3"}
        own |= {"transformer_layer_config": dims, "norm_before_residual": False}
    else:
        own = named | dims | {"architectures": ["LlamaForCausalLM"]}
    return own | {"draft_vocab_size": DRAFTED}


def tensors_of(layout: str, head: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A head in that layout's names."""
    if layout != "speculators":
        return dict(head)
    return {name.replace("midlayer.", "layers.0."): each for name, each in head.items()}


def written(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(dict(tensors), folder / "model.safetensors")
    return folder


def head_in(folder: Path, layout: str, head: Mapping[str, Tensor] | None = None) -> Path:
    return written(folder, config_of(layout), tensors_of(layout, head or random_head()))


def entered(model: PreTrainedModel, ids: Sequence[int], layers: Sequence[int] = IDS) -> np.ndarray:
    """[n, layers · H]; what enters these layers, caught by hooks on the layers themselves; the last norm is entered by
    the output of the last layer, and the output head (-1) by that of the norm."""
    caught: dict[int, Tensor] = {}
    places = {-1: model.lm_head, **dict(enumerate([*model.model.layers, model.model.norm]))}
    hooks = [
        places[i].register_forward_pre_hook(
            lambda _, given, named, i=i: caught.update({i: given[0] if given else named["hidden_states"]}),
            with_kwargs=True,
        )
        for i in layers
    ]
    with torch.inference_mode():
        model(input_ids=torch.tensor([list(ids)]), use_cache=False)
    for hook in hooks:
        hook.remove()
    return torch.cat([caught[i] for i in layers], -1)[0].float().numpy()


def in_numpy(
    head: Mapping[str, Tensor],
    embedding: Tensor,
    features: np.ndarray,
    tokens: Sequence[int],
    first: int,
    *,
    normed_output: bool = False,
    normed_residual: bool = False,
) -> np.ndarray:
    """Logits [rows, Vd] of each row of a text's head, of which rows from `first` on read the row before's own state,
    after the last norm if `normed_output`; the layer adds to its normed input if `normed_residual`.

    Row j is that of token j + 1; features [first, k H] are the target's.
    """
    w = {
        name.removeprefix("midlayer."): each.double().numpy() for name, each in head.items() if each.is_floating_point()
    }
    table, size = embedding.double().numpy(), WIDTH // HEADS

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * w[f"{name}.weight"]

    def turn(x: np.ndarray, place: int) -> np.ndarray:
        angles = place * 10000.0 ** (-np.arange(0, size, 2) / size)
        a, b = x[..., : size // 2], x[..., size // 2 :]
        return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], -1)

    keys: list[np.ndarray] = []
    values: list[np.ndarray] = []
    found, state = [], np.zeros(WIDTH)
    for j, token in enumerate(tokens[1:]):
        if j < first:
            read = features[j].astype(np.float64)
            if "input_norm.weight" in w:
                read = norm(read, "input_norm")
            if "fc_norm.0.weight" in w:
                read = np.concatenate([norm(part, f"fc_norm.{i}") for i, part in enumerate(read.reshape(-1, WIDTH))])
            state = w["fc.weight"] @ read if "fc.weight" in w else read
        x = np.concatenate([norm(table[token], "input_layernorm"), norm(state, "hidden_norm")])
        asked, key, value = ((w[f"self_attn.{name}_proj.weight"] @ x).reshape(-1, size) for name in ("q", "k", "v"))
        keys.append(np.repeat(turn(key, j), HEADS // GROUPS, 0))
        values.append(np.repeat(value, HEADS // GROUPS, 0))
        scores = np.einsum("hd,jhd->hj", turn(asked, j), np.stack(keys)) / np.sqrt(size)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        state = norm(state, "hidden_norm") if normed_residual else state
        state = state + w["self_attn.o_proj.weight"] @ np.einsum("hj,jhd->hd", shares, np.stack(values)).ravel()
        x = norm(state, "post_attention_layernorm")
        gate = w["mlp.gate_proj.weight"] @ x
        state = state + w["mlp.down_proj.weight"] @ (gate / (1 + np.exp(-gate)) * (w["mlp.up_proj.weight"] @ x))
        output = norm(state, "norm")
        found.append(w["lm_head.weight"] @ output)
        state = output if normed_output else state
    return np.stack(found)
