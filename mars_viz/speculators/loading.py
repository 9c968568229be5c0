"""Loading a target and a drafter, and refusing what cannot work, each time with the remedy.

Knows hubs, folders, devices and dtypes; knows no decoding. Safetensors only, and no code from a model's repository.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from mars_viz import demo
from mars_viz.errors import MarsVizError, ModelError
from mars_viz.run import Settings
from mars_viz.speculators.backend import Backend, Part
from mars_viz.speculators.device_errors import is_gone, lacks_memory, lost
from mars_viz.speculators.download_progress import Arrival, LoadShare
from mars_viz.speculators.draft import Drafter, Target
from mars_viz.speculators.drafter_names import Eagle3, Layers, NamedDrafter, Trimmed
from mars_viz.speculators.drafter_parts import (
    LoadedHead,
    kept_tokens,
    model_drafter,
    read_head,
    text_drafter,
    with_fewer_layers,
    with_fewer_tokens,
    with_head,
    without_model,
)
from mars_viz.speculators.drafters.translation import Translation
from mars_viz.speculators.dtypes import dtype_of
from mars_viz.speculators.memory import check_fit, too_large
from mars_viz.speculators.model_files import (
    Loaded,
    agree,
    cannot_load,
    check_no_folder,
    config_of,
    fetched_model,
    revision_of,
    short_name,
    tokenizer_of,
)
from mars_viz.speculators.names import check_names, drafter_for, models_named, whole_drafter
from mars_viz.speculators.networks import Opener, opener
from mars_viz.speculators.targets.model import ModelTarget
from mars_viz.speculators.threads import fit_cores
from mars_viz.speculators.token_bytes import TransformersTokenizer


def load_backend(
    target: str | os.PathLike[str] | None = None,
    drafter: str | os.PathLike[str] | None = None,
    *,
    device: str = "auto",
    dtype: str = "auto",
    folders: bool = True,
    cuda_graphs: bool = False,
    tell: Callable[[str, float], None] = lambda doing, share: None,
) -> Backend:
    """Load a target and a drafter by hub id or folder, or a drafter by its settings, such as 'ngram:n=3'.

    None takes the built-in target, and for the drafter what `drafter_for` says. `device` auto takes a GPU if there is
    one; `dtype` auto takes the weights' own on a GPU, and on the CPU float32, or bfloat16 where all models are stored
    in it, the target is large and the processor has units for it (see `dtypes`). `cuda_graphs` goes to `opener`.
    Without `folders` models are asked of the hub, and nobody learns which folders there are. `tell` hears what is being
    done and how far it is, from 0 to 1; what it raises ends the loading. Raises BadInput, with the remedy, for anything
    that keeps them from working, TooLarge for what does not fit.
    """
    check_names(target, drafter, device=device, dtype=dtype, folders=folders)
    named, drafting = drafter_for(target, drafter), whole_drafter(target, drafter)
    names = [str(target or demo.TARGET)]
    if isinstance(drafting, str):
        names.append(drafting or str(demo.DRAFTER))
    if not folders:
        for name in models_named(target, drafter):
            check_no_folder(name)
    place = _device(device)
    tell("Reading the tokenizers", 0.0)
    tokenizers = [tokenizer_of(name) for name in names]
    by_text = len(names) > 1 and not agree(*tokenizers)
    if by_text and isinstance(named, Trimmed):
        raise ModelError(
            f"{names[1]} has another tokenizer than {names[0]}, so it drafts by text and has no tokens of the target's "
            f"to be trimmed to; take it whole, or a drafter of the target's family."
        )
    if place.type == "cpu":
        fit_cores()
    head = (
        read_head(drafting, short_name(names[0]), config_of(names[0]), folders)
        if isinstance(drafting, Eagle3)
        else None
    )
    kind = dtype_of(dtype, place, names)
    check_fit(names, place, kind)
    models = []
    for name, span in zip(names, (LoadShare(0.1, 0.7), LoadShare(0.7, 1.0)), strict=False):
        models.append(_model(name, place, kind, Arrival(short_name(name), span, tell)))
    sizes = [_output_size(model) for model in models]
    for name, size, tokenizer in zip(names, sizes, tokenizers, strict=True):
        if size < len(tokenizer):
            raise ModelError(
                f"The vocabularies do not match: the tokenizer of {name} has {len(tokenizer)} entries, its model "
                f"scores {size}. Choose a model whose tokenizer was saved with it."
            )
    loaded = [Loaded(*each) for each in zip(models, map(short_name, names), map(revision_of, names), strict=True)]
    if by_text:
        loaded[1] = replace(loaded[1], tokenizer=tokenizers[1])
    return backend_of(
        tokenizers[0],
        loaded[0],
        head or (loaded[1] if isinstance(drafting, str) else drafting),
        trimmed=named if isinstance(named, Trimmed) else None,
        cuda_graphs=cuda_graphs,
    )


def backend_of(
    tokenizer: PreTrainedTokenizerBase,
    target: Loaded,
    drafter: Loaded | LoadedHead | NamedDrafter,
    *,
    eos_ids: frozenset[int] | None = None,
    trimmed: Trimmed | None = None,
    cuda_graphs: bool = False,
) -> Backend:
    """A backend of loaded models; None takes the end-of-text tokens that the target's configuration names. The drafter
    is `trimmed` where that says how."""
    by_text = isinstance(drafter, Loaded) and drafter.tokenizer is not None
    models = [each.model for each in (target, drafter) if isinstance(each, Loaded)][: 1 if by_text else 2]
    size, place = min(map(_output_size, models)), target.model.device
    ends = _eos_ids(target.model, tokenizer) if eos_ids is None else eos_ids
    kept = None if trimmed is None else kept_tokens(trimmed, tokenizer, size, ends)
    if isinstance(drafter, Eagle3):
        drafter = read_head(drafter, target.name, target.model.config, folders=True)
    if isinstance(drafter, Loaded) and drafter.tokenizer is not None:
        drafting = _by_text(target, drafter, drafter.tokenizer, tokenizer, ends, cuda_graphs=cuda_graphs)
    elif isinstance(drafter, LoadedHead):
        drafting = with_head(target.model, drafter, size, kept)
    elif not isinstance(drafter, Loaded | Layers):
        drafting = without_model(drafter, tokenizer, place)
    else:
        drafts = with_fewer_layers(target, drafter) if isinstance(drafter, Layers) else drafter
        drafts = drafts if kept is None else with_fewer_tokens(drafts, kept)
        passes = opener(drafts.model, size if kept is None else len(kept), cuda_graphs=cuda_graphs)
        drafting = model_drafter(passes, drafts.name, drafts.revision, None if kept is None else kept.to(place))
    if trimmed is not None:
        drafting = replace(drafting, name=replace(trimmed, of=trimmed.of and drafting.name).name)
    return Backend(
        target=model_target(opener(target.model, size, cuda_graphs=cuda_graphs), target.name, target.revision),
        drafter=drafting,
        tokenizer=TransformersTokenizer(tokenizer, target.name),
        vocabulary_size=size,
        context=min(map(_context, models)),
        eos_ids=ends,
        dtype=str(target.model.dtype).removeprefix("torch."),
        processor=_processor(place),
        place=place,
    )


def _by_text(
    target: Loaded,
    drafter: Loaded,
    own: PreTrainedTokenizerBase,
    tokenizer: PreTrainedTokenizerBase,
    ends: frozenset[int],
    *,
    cuda_graphs: bool,
) -> Part[Callable[[Settings], Drafter]]:
    """A drafter with a tokenizer of its `own`, for a target that ends texts with one of these tokens."""
    end = tokenizer.eos_token_id if tokenizer.eos_token_id in ends else min(ends, default=None)
    translation = Translation(
        TransformersTokenizer(tokenizer, target.name),
        TransformersTokenizer(own, drafter.name),
        _context(drafter.model),
        _eos_ids(drafter.model, own),
        end,
    )
    passes = opener(drafter.model, min(_output_size(drafter.model), len(own)), cuda_graphs=cuda_graphs)
    return text_drafter(passes, drafter.name, drafter.revision, translation)


def model_target(passes: Opener, name: str, revision: str = "") -> Part[Callable[[], Target]]:
    """A target that goes through these forward passes."""
    return Part(name, lambda: ModelTarget(passes()), revision, passes.batching, passes.lack, passes=passes)


def _device(name: str) -> torch.device:
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        name = next(kind for kind in ("cuda", "mps", "cpu") if available[kind])
    if not available[name]:
        raise ModelError(f"The device {name} was asked for, but PyTorch finds none here; use --device cpu or auto.")
    return torch.device(name)


def _model(name: str, device: torch.device, dtype: torch.dtype | str, arrival: Arrival) -> PreTrainedModel:
    transformers_logging.disable_progress_bar()  # the arrival is told instead
    try:
        with arrival.reading():
            folder = fetched_model(name, arrival.bars())
            model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
                folder, dtype=dtype, use_safetensors=True, trust_remote_code=False
            )
        model.to(device)
        model.requires_grad_(False)
        return model
    except MarsVizError:
        raise
    except Exception as error:  # the hub's library, its client and transformers raise what they like
        if lacks_memory(error):
            raise too_large([name], device, dtype) from error
        if is_gone(error):
            raise lost(error) from error
        raise ModelError(cannot_load(name, "model", error)) from error


def _output_size(model: PreTrainedModel) -> int:
    return int(model.get_output_embeddings().weight.shape[0])


def _context(model: PreTrainedModel) -> int:
    return int(getattr(model.config, "max_position_embeddings", None) or 1 << 20)


def _eos_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    configured = model.generation_config.eos_token_id if model.generation_config else None
    found = configured if isinstance(configured, list) else [configured, tokenizer.eos_token_id]
    return frozenset(int(token) for token in found if token is not None)


def _processor(place: torch.device) -> str:
    """In words: the GPU's or the processor's name."""
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
