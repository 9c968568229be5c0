"""GGUF files through transformers' own reader: configuration, tokenizer and dequantised weights.

Its names are imported when a file is read, since older versions lack some.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

from mars_viz.speculators.gguf_files import gguf_here, header_of
from mars_viz.speculators.memory import DTYPES, bytes_of, in_words

_ENDS = ("eos", "eot", "eom")  # tokens that end a text, a turn or a message
_ROPE_FACTORS = "rope_freqs.weight"


def config_in(file: Path) -> PreTrainedConfig:
    """Return the configuration, with end tokens and scaled rotary positions, which transformers leaves out."""
    values = header_of(file).values
    config = AutoConfig.from_pretrained(file.parent, gguf_file=str(file.absolute()), trust_remote_code=False)
    ends = [values.get(f"tokenizer.ggml.{each}_token_id") for each in _ENDS]
    more = config.eos_token_id if isinstance(config.eos_token_id, list) else []
    config.eos_token_id = list(dict.fromkeys(each for each in (*ends, *more) if each is not None)) or None
    rope, scaling = getattr(config, "rope_parameters", None), f"{values['general.architecture']}.rope.scaling"
    kind = values.get(f"{scaling}.type")
    if kind in ("linear", "yarn") and rope and rope.get("rope_type") == "default":
        rope |= {"rope_type": kind, "factor": float(values[f"{scaling}.factor"])}
        if kind == "yarn" and (original := values.get(f"{scaling}.original_context_length")):
            rope["original_max_position_embeddings"] = int(original)
    return config


def tokenizer_in(file: Path) -> PreTrainedTokenizerFast:
    """Return the tokenizer, whatever other files its folder contains."""
    from transformers.integrations.gguf import convert_gguf_tokenizer, get_gguf_tokenizer

    architecture, contents, settings = get_gguf_tokenizer(str(file))
    backend, more = convert_gguf_tokenizer(architecture, contents)
    return PreTrainedTokenizerFast(tokenizer_object=backend, **settings, **more)


def arguments(file: Path, config: PreTrainedConfig, dtype: torch.dtype | str) -> dict[str, Any]:
    """Return what `from_pretrained` needs to read the weights; 'auto' takes the dtype that the header implies."""
    from transformers import GgufConfig

    return {
        "pretrained_model_name_or_path": file.parent,
        "gguf_file": str(file.absolute()),  # a bare name would be looked for in the working directory first
        "config": config,
        "dtype": DTYPES[header_of(file).computed] if dtype == "auto" else dtype,
        "quantization_config": GgufConfig(dequantize=True),
    }


def scale_rotary(model: PreTrainedModel, file: Path) -> None:
    """Divide the frequencies by Llama 3's factors, which transformers' reader leaves out."""
    factors = header_of(file).tensors.get(_ROPE_FACTORS)
    rotary = getattr(model.base_model, "rotary_emb", None)
    if factors is not None and rotary is not None and rotary.inv_freq.numel() == factors.values:
        divisors = np.fromfile(file, np.float32, factors.values, offset=factors.start)
        rotary.inv_freq = rotary.inv_freq / torch.from_numpy(divisors).to(rotary.inv_freq)


def gguf_note(name: str, model: PreTrainedModel) -> str:
    """Return a note about the cost of dequantising a GGUF file; empty for other models."""
    if (file := gguf_here(name)) is None:
        return ""
    size, kind = in_words(file.stat().st_size), header_of(file).quantisation
    return f"its weights are dequantised from {kind}: {size} in the file, {in_words(bytes_of(model))} in memory"


@contextmanager
def parsed_once() -> Iterator[None]:
    """Let transformers parse a file and its table of names once; it does so several times, and once per module."""
    import gguf

    library: Any = gguf
    before = library.GGUFReader, library.get_tensor_name_map
    library.GGUFReader, library.get_tensor_name_map = (cache(each) for each in before)
    try:
        yield
    finally:
        library.GGUFReader, library.get_tensor_name_map = before
