"""Loading a target and a drafter, and refusing what cannot work, each time with the remedy.

Knows hubs, folders, devices and dtypes; knows no decoding. Safetensors only, and no code from a model's repository.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from huggingface_hub import get_hf_file_metadata, hf_hub_url, snapshot_download, try_to_load_from_cache
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as transformers_logging

from mars_viz import demo
from mars_viz.bounds import shortened
from mars_viz.errors import MarsVizError, ModelError, SettingError
from mars_viz.run import Settings
from mars_viz.speculators.backend import Backend, Part
from mars_viz.speculators.device_errors import is_gone, lacks_memory, lost
from mars_viz.speculators.download_progress import Arrival, LoadShare
from mars_viz.speculators.draft import Drafter, Target
from mars_viz.speculators.drafters.eagle3 import Eagle3Drafter
from mars_viz.speculators.drafters.eagle3_checkpoint import Checkpoint, read_checkpoint
from mars_viz.speculators.drafters.eagle3_shapes import TargetShape
from mars_viz.speculators.drafters.layers import count_of, with_layers
from mars_viz.speculators.drafters.model import ModelDrafter
from mars_viz.speculators.drafters.ngram import NgramDrafter
from mars_viz.speculators.drafters.suffix import SuffixDrafter
from mars_viz.speculators.drafters.trigram import TrigramDrafter
from mars_viz.speculators.dtypes import dtype_of
from mars_viz.speculators.memory import check_fit, too_large
from mars_viz.speculators.names import check_names, drafter_for, is_folder, is_place, models_named
from mars_viz.speculators.networks import Opener, opener
from mars_viz.speculators.networks.eagle3_head import EagleNetwork, HeadWeights
from mars_viz.speculators.networks.row_invariance import Heads
from mars_viz.speculators.targets.model import ModelTarget
from mars_viz.speculators.threads import fit_cores
from mars_viz.speculators.token_bytes import TransformersTokenizer
from mars_viz.speculators.untrained import Eagle3, Layers, Ngram, Suffix, Trigram, Untrained

LARGEST_TEXT = 64 << 20
"""Bytes of the text that a drafter is given, at most."""


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
    drafting = drafter_for(target, drafter)
    names = [str(target or demo.TARGET)]
    if isinstance(drafting, str):
        names.append(drafting or str(demo.DRAFTER))
    if not folders:
        for name in models_named(target, drafter):
            _check_no_folder(name)
    place = _device(device)
    tell("Reading the tokenizers", 0.0)
    tokenizers = [_tokenizer(name) for name in names]
    for other, name in zip(tokenizers[1:], names[1:], strict=True):
        _check_tokenizers(tokenizers[0], other, [names[0], name])
    if place.type == "cpu":
        fit_cores()
    head = _head(drafting, _short(names[0]), _config(names[0]), folders) if isinstance(drafting, Eagle3) else None
    kind = dtype_of(dtype, place, names)
    check_fit(names, place, kind)
    models = []
    for name, span in zip(names, (LoadShare(0.1, 0.7), LoadShare(0.7, 1.0)), strict=False):
        models.append(_model(name, place, kind, Arrival(_short(name), span, tell)))
    sizes = [_output_size(model) for model in models]
    if min(sizes) < len(tokenizers[0]):
        scored = " and ".join(f"{name} scores {size}" for name, size in zip(names, sizes, strict=True))
        raise ModelError(
            f"The vocabularies do not match: the tokenizer has {len(tokenizers[0])} entries, {scored}. "
            "Choose a drafter made for this target's vocabulary."
        )
    loaded = [Loaded(*each) for each in zip(models, map(_short, names), map(_revision, names), strict=True)]
    return backend_of(
        tokenizers[0],
        loaded[0],
        head or (loaded[1] if isinstance(drafting, str) else drafting),
        cuda_graphs=cuda_graphs,
    )


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model that is loaded."""

    model: PreTrainedModel
    """On its device."""
    name: str
    """Hub id, or folder name."""
    revision: str = ""
    """Commit on the hub, or the start of the weights' SHA-256."""


@dataclass(frozen=True, slots=True)
class LoadedHead:
    """An EAGLE-3 head that is read."""

    checkpoint: Checkpoint
    """The head."""
    name: str
    """'eagle3:' and its hub id or folder's name; 'eagle3' for the built-in one."""
    revision: str = ""
    """Commit on the hub, or the start of the weights' SHA-256."""


def backend_of(
    tokenizer: PreTrainedTokenizerBase,
    target: Loaded,
    drafter: Loaded | LoadedHead | Untrained,
    *,
    eos_ids: frozenset[int] | None = None,
    cuda_graphs: bool = False,
) -> Backend:
    """A backend of loaded models; None takes the end-of-text tokens that the target's configuration names."""
    models = [each.model for each in (target, drafter) if isinstance(each, Loaded)]
    size, place = min(map(_output_size, models)), target.model.device
    if isinstance(drafter, Eagle3):
        drafter = _head(drafter, target.name, target.model.config, folders=True)
    if isinstance(drafter, LoadedHead):
        drafting = _with_head(target.model, drafter, size)
    elif not isinstance(drafter, Loaded | Layers):
        drafting = _without_model(drafter, tokenizer, place)
    else:
        drafts = _with_layers(target, drafter) if isinstance(drafter, Layers) else drafter
        drafting = model_drafter(opener(drafts.model, size, cuda_graphs=cuda_graphs), drafts.name, drafts.revision)
    return Backend(
        target=model_target(opener(target.model, size, cuda_graphs=cuda_graphs), target.name, target.revision),
        drafter=drafting,
        tokenizer=TransformersTokenizer(tokenizer, target.name),
        vocabulary_size=size,
        context=min(map(_context, models)),
        eos_ids=_eos_ids(target.model, tokenizer) if eos_ids is None else eos_ids,
        dtype=str(target.model.dtype).removeprefix("torch."),
        processor=_processor(place),
        place=place,
    )


def model_target(passes: Opener, name: str, revision: str = "") -> Part[Callable[[], Target]]:
    """A target that goes through these forward passes."""
    return Part(name, lambda: ModelTarget(passes()), revision, passes.batching, passes.lack, passes=passes)


def model_drafter(passes: Opener, name: str, revision: str = "") -> Part[Callable[[Settings], Drafter]]:
    """A drafter that does."""
    return Part(name, lambda each: ModelDrafter(passes(), each), revision, passes.batching, passes.lack, passes=passes)


def _config(name: str) -> PreTrainedConfig:
    """A model's, before its weights are read."""
    try:
        return AutoConfig.from_pretrained(name, trust_remote_code=False)
    except Exception as error:  # the hub's library, its client and transformers raise what they like
        raise ModelError(_cannot_load(name, "configuration", error)) from error


def _head(wanted: Eagle3, target: str, config: PreTrainedConfig, folders: bool) -> LoadedHead:
    """The head that is wanted for the target of that name and configuration. Raises ModelError."""
    if not wanted.head or (folders and is_place(wanted.head)):
        folder = Path(wanted.head or demo.EAGLE3)
        named = wanted if not wanted.head else replace(wanted, head=_short(wanted.head))
    else:
        try:
            folder = Path(snapshot_download(wanted.head, allow_patterns=["config.json", "*.safetensors"]))
        except Exception as error:  # the hub's library and its client raise what they like
            raise ModelError(_cannot_load(wanted.head, "head", error)) from error
        named = wanted
    config = config.get_text_config()
    shape = TargetShape(target, config.hidden_size, config.num_hidden_layers, config.vocab_size)
    return LoadedHead(read_checkpoint(folder, shape), named.name, _revision(str(folder)))


def _with_head(target: PreTrainedModel, head: LoadedHead, size: int) -> Part[Callable[[Settings], Drafter]]:
    """A head that reads what enters layers of the target, and takes what it lacks from it."""
    read, (place, kind) = head.checkpoint, (target.device, target.dtype)
    own = {name: each.to(place, kind) for name, each in read.tensors.items()}
    shared = {
        "embed_tokens.weight": target.get_input_embeddings().weight,
        "lm_head.weight": target.get_output_embeddings().weight[:size],
    }
    heads = Heads(read.shape.heads, read.shape.groups, read.shape.size)
    weights = HeadWeights.of(shared | own, heads, read.shape.epsilon, read.rotary, normed_residual=read.normed_residual)
    vocabulary = None if read.vocabulary is None else read.vocabulary.to(place)
    return Part(
        head.name,
        lambda each: Eagle3Drafter(EagleNetwork(weights), read.layers, vocabulary, size, each),
        head.revision,
        str(weights.batching or ""),
        note=read.note,
    )


def _with_layers(target: Loaded, wanted: Layers) -> Loaded:
    """The target with layers left out. Raises BadInput where that cannot be done."""
    return Loaded(with_layers(target.model, wanted.kept(count_of(target.model))), wanted.name, target.revision)


def _without_model(
    wanted: Ngram | Suffix | Trigram, tokenizer: PreTrainedTokenizerBase, place: torch.device
) -> Part[Callable[[Settings], Drafter]]:
    if isinstance(wanted, Ngram):
        return Part(wanted.name, lambda _: NgramDrafter(wanted.n, place), wanted.name, "no model")
    before, revision = _read(wanted.text, tokenizer) if wanted.text else ([], wanted.name)
    if isinstance(wanted, Suffix):
        return Part(wanted.name, lambda _: SuffixDrafter(wanted.n, before, place), revision, "no model")
    return Part(wanted.name, lambda _: TrigramDrafter(before, place), revision, "no model")


def _read(file: str, tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], str]:
    """The tokens of a drafter's text, and the start of its SHA-256. Raises BadInput."""
    try:
        with Path(file).open("rb") as source:
            data = source.read(LARGEST_TEXT + 1)
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"{shortened(file)} cannot be read as text ({error}). Save it as UTF-8.") from error
    if len(data) > LARGEST_TEXT:
        raise SettingError(f"{shortened(file)} has more than {LARGEST_TEXT >> 20} MB; give the drafter less text.")
    return tokenizer(text, add_special_tokens=False)["input_ids"], hashlib.sha256(data).hexdigest()[:12]


def _device(name: str) -> torch.device:
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        name = next(kind for kind in ("cuda", "mps", "cpu") if available[kind])
    if not available[name]:
        raise ModelError(f"The device {name} was asked for, but PyTorch finds none here; use --device cpu or auto.")
    return torch.device(name)


def _tokenizer(name: str) -> PreTrainedTokenizerBase:
    if not is_folder(name):
        _check_hub(name)
    try:
        return AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except Exception as error:  # the tokenizers library raises the bare class for a file it cannot read
        raise ModelError(_cannot_load(name, "tokenizer", error)) from error


def _model(name: str, device: torch.device, dtype: torch.dtype | str, arrival: Arrival) -> PreTrainedModel:
    transformers_logging.disable_progress_bar()  # the arrival is told instead
    try:
        with arrival.reading():
            model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
                name, dtype=dtype, use_safetensors=True, trust_remote_code=False, tqdm_class=arrival.bars()
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
        raise ModelError(_cannot_load(name, "model", error)) from error


def _check_no_folder(name: str) -> None:
    """Raise BadInput where transformers would take a folder for the model of that name. It looks where the server was
    started, and whoever asks hears of it only where the hub has the model too."""
    _check_hub(name)
    if Path(name).exists():
        raise ModelError(
            f"{name} cannot be fetched here. Have the server started from another folder, or name another."
        )


def _check_hub(name: str) -> None:
    """Asked once, in silence: the libraries would try for a minute, and say so each time."""
    try:
        if not isinstance(try_to_load_from_cache(name, "config.json"), str):
            get_hf_file_metadata(hf_hub_url(name, "config.json"))
    except Exception as error:  # the hub's library and its client raise what they like
        raise ModelError(_cannot_load(name, "configuration", error)) from error


def _cannot_load(name: str, what: str, error: Exception) -> str:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return f"The {what} of {name} cannot be loaded ({reason}). Check the id or folder, and the network for a hub id."


def _check_tokenizers(target: PreTrainedTokenizerBase, drafter: PreTrainedTokenizerBase, names: list[str]) -> None:
    if target.get_vocab() != drafter.get_vocab():
        raise ModelError(
            f"The tokenizers of {names[0]} and {names[1]} differ, so their token ids do not mean the same. "
            "Choose a drafter from the target's family."
        )


def _output_size(model: PreTrainedModel) -> int:
    return int(model.get_output_embeddings().weight.shape[0])


def _context(model: PreTrainedModel) -> int:
    return int(getattr(model.config, "max_position_embeddings", None) or 1 << 20)


def _eos_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    configured = model.generation_config.eos_token_id if model.generation_config else None
    found = configured if isinstance(configured, list) else [configured, tokenizer.eos_token_id]
    return frozenset(int(token) for token in found if token is not None)


def _short(name: str) -> str:
    """Paths of one machine stay out of run files."""
    folder = Path(name)
    if folder in (demo.TARGET, demo.DRAFTER):
        return f"{demo.BUILT_IN}/{folder.name}"
    return folder.resolve().name if folder.exists() else name


def _revision(name: str) -> str:
    folder = Path(name)
    if not folder.exists():
        cached = try_to_load_from_cache(name, "config.json")  # …/snapshots/<commit>/config.json
        return Path(cached).parent.name if isinstance(cached, str) else ""
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as weights:
            digest.update(hashlib.file_digest(weights, "sha256").digest())
    return digest.hexdigest()[:12]


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
