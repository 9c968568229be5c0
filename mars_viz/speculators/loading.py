"""Loading a target/drafter pair and refusing one that cannot work, each time with the remedy.

Knows hubs, folders, devices and dtypes; knows no decoding. Safetensors only, and no code from a model's repository.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from mars_viz import demo
from mars_viz.errors import BadInput, MarsVizError
from mars_viz.run import WITHIN_ROUNDING, Settings
from mars_viz.speculators.arriving import Arrival, Span
from mars_viz.speculators.dtypes import dtype_of
from mars_viz.speculators.memory import check_fit, too_large
from mars_viz.speculators.names import check_names, is_folder
from mars_viz.speculators.networks import Network, Opener, opener
from mars_viz.speculators.pieces import Pieces
from mars_viz.speculators.threads import fit_cores
from mars_viz.speculators.trouble import is_gone, lacks_memory, lost
from mars_viz.walk import Ending


@dataclass(frozen=True, slots=True)
class Pair:
    """A target and a drafter that speak the same tokens, on one device."""

    target: PreTrainedModel
    """The large model whose text is wanted."""
    drafter: PreTrainedModel
    """The small one that proposes it."""
    tokenizer: PreTrainedTokenizerBase
    """The target's."""
    target_name: str
    """Hub id, or folder name."""
    drafter_name: str
    """Hub id, or folder name."""
    target_revision: str
    """Commit on the hub, or the start of the weights' SHA-256."""
    drafter_revision: str
    """Likewise."""
    vocabulary_size: int
    """The smaller of the two output sizes; what lies beyond is padding."""
    context: int
    """Positions that both models can hold."""
    eos_ids: frozenset[int]
    """Tokens that end a text."""
    open_target: Callable[[], Network]
    """A forward pass of the target with an empty cache."""
    open_drafter: Callable[[], Network]
    """Likewise of the drafter."""

    def ending(self, settings: Settings) -> Ending:
        """When a text of this pair ends."""
        return Ending.of(settings, self.eos_ids, Pieces(self.tokenizer) if settings.stop else {})

    @property
    def device(self) -> str:
        """In words: the GPU's or the processor's name."""
        kind = self.target.device.type
        if kind == "cuda":
            named: str = torch.cuda.get_device_name(self.target.device)
            return ", ".join([named, *(lack.partition(":")[0] for lack in self._lacks())])
        if kind != "cpu":
            return f"{_processor()} ({kind})"
        threads = torch.get_num_threads()
        return f"{_processor()}, {threads} thread{'s' if threads > 1 else ''}"

    @property
    def notes(self) -> tuple[str, ...]:
        """What keeps the models from being as fast here as they could be, as far as it is known by now; sentences."""
        return tuple(f"{lack}." for lack in self._lacks())

    @property
    def batching(self) -> str:
        """How texts hang on their batches; see `Provenance.batching`."""
        opened = {"target": self.open_target, "drafter": self.open_drafter}
        found = {role: one.batching for role, one in opened.items() if isinstance(one, Opener) and one.batching}
        if len(found) < len(opened):
            return WITHIN_ROUNDING
        return f"bit for bit: {'; '.join(f'{role}: {how}' for role, how in found.items())}"

    def _lacks(self) -> list[str]:
        openers = ((self.target_name, self.open_target), (self.drafter_name, self.open_drafter))
        found = ((name, opened.lack()) for name, opened in openers if isinstance(opened, Opener))
        return [f"{name} {lack}" for name, lack in found if lack]

    @property
    def dtype(self) -> str:
        """Of the target's weights: float32."""
        return str(self.target.dtype).removeprefix("torch.")


def load_pair(
    target: str | os.PathLike[str] | None = None,
    drafter: str | os.PathLike[str] | None = None,
    *,
    device: str = "auto",
    dtype: str = "auto",
    folders: bool = True,
    tell: Callable[[str, float], None] = lambda doing, share: None,
) -> Pair:
    """Load two models by hub id or folder; None takes the built-in ones.

    `device` auto takes a GPU if there is one; `dtype` auto takes the weights' own on a GPU, and on the CPU float32, or
    bfloat16 where both models are stored in it, the target is large and the processor has units for it (see `dtypes`).
    Without `folders` both are asked of the hub, and nobody learns which folders there are. `tell` hears what is being
    done and how far it is, from 0 to 1; what it raises ends the loading. Raises BadInput, with the remedy, for anything
    that keeps the pair from working, TooLarge for what does not fit.
    """
    check_names(target, drafter, device=device, dtype=dtype, folders=folders)
    if not folders:
        for name in filter(None, (target, drafter)):
            _check_no_folder(str(name))
    names = [str(name) for name in (target or demo.TARGET, drafter or demo.DRAFTER)]
    place = _device(device)
    tell("Reading the tokenizers", 0.0)
    tokenizers = [_tokenizer(name) for name in names]
    _check_tokenizers(tokenizers[0], tokenizers[1], names)
    if place.type == "cpu":
        fit_cores()
    kind = dtype_of(dtype, place, names)
    check_fit(names, place, kind)
    models = []
    for name, span in zip(names, (Span(0.1, 0.7), Span(0.7, 1.0)), strict=True):
        models.append(_model(name, place, kind, Arrival(_short(name), span, tell)))
    sizes = [_output_size(model) for model in models]
    if min(sizes) < len(tokenizers[0]):
        raise BadInput(
            f"The vocabularies do not match: the tokenizer has {len(tokenizers[0])} entries, {names[0]} scores "
            f"{sizes[0]} and {names[1]} scores {sizes[1]}. Choose a drafter made for this target's vocabulary."
        )
    return Pair(
        target=models[0],
        drafter=models[1],
        tokenizer=tokenizers[0],
        target_name=_short(names[0]),
        drafter_name=_short(names[1]),
        target_revision=_revision(names[0]),
        drafter_revision=_revision(names[1]),
        vocabulary_size=min(sizes),
        context=min(_context(model) for model in models),
        eos_ids=_eos_ids(models[0], tokenizers[0]),
        open_target=opener(models[0], min(sizes)),
        open_drafter=opener(models[1], min(sizes)),
    )


def _device(name: str) -> torch.device:
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        name = next(kind for kind in ("cuda", "mps", "cpu") if available[kind])
    if not available[name]:
        raise BadInput(f"The device {name} was asked for, but PyTorch finds none here; use --device cpu or auto.")
    return torch.device(name)


def _tokenizer(name: str) -> PreTrainedTokenizerBase:
    if not is_folder(name):
        _check_hub(name)
    try:
        return AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except Exception as error:  # the tokenizers library raises the bare class for a file it cannot read
        raise BadInput(_cannot_load(name, "tokenizer", error)) from error


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
        raise BadInput(_cannot_load(name, "model", error)) from error


def _check_no_folder(name: str) -> None:
    """Raise BadInput where transformers would take a folder for the model of that name. It looks where the server was
    started, and whoever asks hears of it only where the hub has the model too."""
    _check_hub(name)
    if Path(name).exists():
        raise BadInput(f"{name} cannot be fetched here. Have the server started from another folder, or name another.")


def _check_hub(name: str) -> None:
    """Asked once, in silence: the libraries would try for a minute, and say so each time."""
    try:
        if not isinstance(try_to_load_from_cache(name, "config.json"), str):
            get_hf_file_metadata(hf_hub_url(name, "config.json"))
    except Exception as error:  # the hub's library and its client raise what they like
        raise BadInput(_cannot_load(name, "configuration", error)) from error


def _cannot_load(name: str, what: str, error: Exception) -> str:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return f"The {what} of {name} cannot be loaded ({reason}). Check the id or folder, and the network for a hub id."


def _check_tokenizers(target: PreTrainedTokenizerBase, drafter: PreTrainedTokenizerBase, names: list[str]) -> None:
    if target.get_vocab() != drafter.get_vocab():
        raise BadInput(
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


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
