"""A model loaded onto a local device, and facts about it.

Safetensors and GGUF only, and no code from a repository.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MULTIMODAL_LM_MAPPING,
    AutoModelForCausalLM,
    AutoModelForMultimodalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as transformers_logging

from mars_viz.errors import MarsVizError, ModelError
from mars_viz.speculators.devices import DeviceMap, is_gone, lacks_memory, loaded_over, lost, place_of
from mars_viz.speculators.download_progress import Arrival
from mars_viz.speculators.gguf_model import arguments, parsed_once, scale_rotary
from mars_viz.speculators.memory import too_large
from mars_viz.speculators.model_files import cannot_load, config_at, fetched_model

NO_TEXT = "{name} is a model of the type {kind}, which continues no text by itself; take a causal language model."


def device_named(name: str) -> torch.device:
    """Return the device cpu, cuda or mps; auto takes a GPU if there is one. Raises ModelError if it is not
    available."""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        name = next(kind for kind in ("cuda", "mps", "cpu") if available[kind])
    if not available[name]:
        raise ModelError(f"The device {name} was asked for, but PyTorch finds none here; use --device cpu or auto.")
    return torch.device(name)


def loaded_model(
    name: str, device: torch.device, dtype: torch.dtype | str, arrival: Arrival, device_map: DeviceMap | None = None
) -> PreTrainedModel:
    """Load the model of a hub id or folder onto a device, or as in the device map. Raises BadInput if it is
    unavailable, does not fit, lacks weights or cannot continue a text."""
    transformers_logging.disable_progress_bar()  # the arrival is told instead
    try:
        with arrival.reading():
            place = fetched_model(name, arrival.bars())
            load = partial(_checked_model, name, place, dtype)
            model: PreTrainedModel = load() if device_map is None else loaded_over(device_map, load)
        if device_map is None:
            model.to(device)
        model.requires_grad_(False)
        _check_reads_text(name, model)
        return model
    except MarsVizError:
        raise
    except Exception as error:  # the hub's library, its client and transformers raise what they like
        if lacks_memory(error):
            raise too_large([name], device, dtype) from error
        if is_gone(error):
            raise lost(error) from error
        raise ModelError(cannot_load(name, "model", error)) from error


def _checked_model(name: str, place: Path, dtype: torch.dtype | str, **layout: Any) -> PreTrainedModel:
    with parsed_once() if place.is_file() else nullcontext():
        return _read_model(name, place, dtype, layout)


def _read_model(name: str, place: Path, dtype: torch.dtype | str, layout: Mapping[str, Any]) -> PreTrainedModel:
    config = config_at(place)
    what = {"pretrained_model_name_or_path": place, "dtype": dtype, "use_safetensors": True}
    if place.is_file():
        what = arguments(place, config, dtype)
    auto = AutoModelForCausalLM
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        multimodal, auto = MODEL_FOR_MULTIMODAL_LM_MAPPING.get(type(config), None), AutoModelForMultimodalLM
        if (
            multimodal is None
            or config.is_encoder_decoder
            or "logits_to_keep" not in signature(multimodal.forward).parameters
        ):
            raise ModelError(NO_TEXT.format(name=name, kind=config.model_type))
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()  # it would list the weights of an image encoder that is left out
    try:
        model, report = auto.from_pretrained(**what, trust_remote_code=False, output_loading_info=True, **layout)
    finally:
        transformers_logging.set_verbosity(verbosity)
    if missing := sorted(report["missing_keys"]):
        raise ModelError(
            f"{name} holds no weights for {len(missing)} parts of {type(model).__name__}, such as {missing[0]}; save "
            "the whole model there with save_pretrained."
        )
    if place.is_file():
        scale_rotary(model, place)
    return model


def _check_reads_text(name: str, model: PreTrainedModel) -> None:
    """Raise ModelError if a multimodal model needs more than a text."""
    if type(model.config) in MODEL_FOR_CAUSAL_LM_MAPPING:
        return
    try:
        with torch.inference_mode():
            model(input_ids=torch.zeros(1, 2, dtype=torch.int64, device=place_of(model)), use_cache=False)
    except Exception as error:  # whatever it is that misses the image
        if lacks_memory(error) or is_gone(error):
            raise
        raise ModelError(NO_TEXT.format(name=name, kind=model.config.model_type)) from error


def output_size(model: PreTrainedModel) -> int:
    """Return the number of tokens that it scores."""
    return int(model.get_output_embeddings().weight.shape[0])


def context_of(model: PreTrainedModel) -> int:
    """Return the maximum number of positions."""
    return int(getattr(model.config.get_text_config(), "max_position_embeddings", None) or 1 << 20)


def readable_ids(model: PreTrainedModel) -> tuple[int, int]:
    """Return the number of readable ids, and one that can replace any other: padding, the end of a text, or the
    last."""
    count, config = int(model.get_input_embeddings().weight.shape[0]), model.config.get_text_config()
    ends = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
    neutral = [each for each in (config.pad_token_id, *ends) if each is not None and 0 <= each < count]
    return count, int([*neutral, count - 1][0])


def eos_ids_of(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Return the tokens that end its texts: those of its generation config, its tokenizer's, and the one with which its
    chat template ends an answer."""
    configured = model.generation_config.eos_token_id if model.generation_config else None
    ids = configured if isinstance(configured, list) else [configured]
    return frozenset(int(token) for token in (*ids, tokenizer.eos_token_id, turn_end(tokenizer)) if token is not None)


def turn_end(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """Return the special token that a chat template writes after an answer; None if there is no such token."""
    answer = "MARS"
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": answer}]
    try:
        text: str = tokenizer.apply_chat_template(messages, tokenize=False) if tokenizer.chat_template else ""
    except Exception:  # a template is code of the model's, and may want other messages
        return None
    after = tokenizer(text.partition(answer)[2].strip(), add_special_tokens=False)["input_ids"]
    added = tokenizer.added_tokens_decoder
    return int(after[0]) if after and after[0] in added and added[after[0]].special else None


def processor_of(place: torch.device) -> str:
    """Return the name of the GPU or processor."""
    if place.type == "cuda":
        named: str = torch.cuda.get_device_name(place)
        return named
    if place.type != "cpu":
        return f"{_cpu()} ({place.type})"
    threads = torch.get_num_threads()
    return f"{_cpu()}, {threads} thread{'s' if threads > 1 else ''}"


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
