"""Small random models as GGUF files, written as llama.cpp's converter writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import AutoConfig as Config
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from mars_viz import demo

VOCABULARY = 4096
END_OF_TURN = 7
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<>{% endif %}"
ARCHITECTURES = {name: name for name in ("llama", "qwen2", "qwen3", "gemma2")} | {"gemma3": "gemma3_text"}
"""transformers' name of each of llama.cpp's."""


def _size(architecture: str) -> int:
    return 128 if architecture == "qwen3" else 16  # transformers takes 128 for every Qwen3


def random_model(architecture: str, **changes: Any) -> PreTrainedModel:
    torch.manual_seed(5)
    sizes: dict[str, Any] = {"vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96}
    sizes |= {
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
    }
    if gemma := architecture.startswith("gemma"):
        sizes["sliding_window"] = 32
    sizes |= {"head_dim": _size(architecture), "tie_word_embeddings": gemma} | changes
    config = Config.for_model(ARCHITECTURES[architecture], **sizes)
    model = AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    for name, weight in model.named_parameters():
        if "norm" in name:
            weight.uniform_(0.5, 1.5)
        else:
            weight.normal_(0, 0.08 if weight.dim() == 2 else 0.3)  # Qwen2's biases
    return model


def save(
    path: Path,
    model: PreTrainedModel,
    architecture: str = "llama",
    *,
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    rope_factors: np.ndarray[Any, Any] | None = None,
    rope_scaling: dict[str, Any] | None = None,
) -> Path:
    """Write the model; matrices are stored as `kind`."""
    writer, config = gguf.GGUFWriter(path, architecture), model.config
    writer.add_context_length(config.max_position_embeddings)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_key_length(_size(architecture))
    writer.add_rope_dimension_count(_size(architecture))
    rope = config.rope_parameters.get("full_attention") or config.rope_parameters
    writer.add_rope_freq_base(rope["rope_theta"])
    if getattr(config, "sliding_window", None):
        writer.add_sliding_window(config.sliding_window)
    for key, value in (rope_scaling or {}).items():
        writer.add_key_value(f"{architecture}.rope.scaling.{key}", value, gguf.GGUFValueType.get_type(value))
    _add_tokenizer(writer)
    if rope_factors is not None:
        writer.add_tensor("rope_freqs.weight", rope_factors)
    known = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(known, config.num_hidden_layers)
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = weight.float().numpy()
        if architecture == "llama" and (".q_proj." in name or ".k_proj." in name):
            heads = config.num_attention_heads if ".q_proj." in name else config.num_key_value_heads
            values = values.reshape(heads, 2, -1, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
        if architecture.startswith("gemma") and "norm" in name:
            values = values + 1
        stem, ending = name.rsplit(".", 1)
        stored = gguf.quantize(values, kind) if weight.dim() == 2 else values
        writer.add_tensor(f"{names.get_name(stem)}.{ending}", stored, raw_dtype=kind if weight.dim() == 2 else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tokenizer(writer: gguf.GGUFWriter) -> None:
    tokenizer = AutoTokenizer.from_pretrained(demo.TARGET)
    core = json.loads(tokenizer.backend_tokenizer.to_str())
    by_id = {index: token for token, index in tokenizer.get_vocab().items()}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([by_id[index] for index in range(VOCABULARY)])
    writer.add_token_types([3 if index == 0 else 1 for index in range(VOCABULARY)])
    writer.add_token_merges([" ".join(each) for each in core["model"]["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.add_eot_token_id(END_OF_TURN)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
