"""What a model's name leads to: its configuration and tokenizer, what it is called in run files, which revision it is.

Knows hubs and folders; knows no devices and no decoding. No code from a model's repository.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from mars_viz import demo
from mars_viz.errors import ModelError
from mars_viz.speculators.names import is_folder


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model that is loaded."""

    model: PreTrainedModel
    """On its device."""
    name: str
    """Hub id, or folder name."""
    revision: str = ""
    """Commit on the hub, or the start of the weights' SHA-256."""
    tokenizer: PreTrainedTokenizerBase | None = None
    """A drafter's own, where it is another than the target's."""


def config_of(name: str) -> PreTrainedConfig:
    """A model's, before its weights are read."""
    try:
        return AutoConfig.from_pretrained(name, trust_remote_code=False)
    except Exception as error:  # the hub's library, its client and transformers raise what they like
        raise ModelError(cannot_load(name, "configuration", error)) from error


def tokenizer_of(name: str) -> PreTrainedTokenizerBase:
    """A model's. Raises ModelError."""
    if not is_folder(name):
        check_hub(name)
    try:
        return AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except Exception as error:  # the tokenizers library raises the bare class for a file it cannot read
        raise ModelError(cannot_load(name, "tokenizer", error)) from error


def check_no_folder(name: str) -> None:
    """Raise BadInput where transformers would take a folder for the model of that name. It looks where the server was
    started, and whoever asks hears of it only where the hub has the model too."""
    check_hub(name)
    if Path(name).exists():
        raise ModelError(
            f"{name} cannot be fetched here. Have the server started from another folder, or name another."
        )


def check_hub(name: str) -> None:
    """Asked once, in silence: the libraries would try for a minute, and say so each time."""
    try:
        if not isinstance(try_to_load_from_cache(name, "config.json"), str):
            get_hf_file_metadata(hf_hub_url(name, "config.json"))
    except Exception as error:  # the hub's library and its client raise what they like
        raise ModelError(cannot_load(name, "configuration", error)) from error


def cannot_load(name: str, what: str, error: Exception) -> str:
    """A sentence of why what a name leads to cannot be had."""
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return f"The {what} of {name} cannot be loaded ({reason}). Check the id or folder, and the network for a hub id."


def agree(one: PreTrainedTokenizerBase, other: PreTrainedTokenizerBase) -> bool:
    """True where these mean the same by every id."""
    return one.get_vocab() == other.get_vocab()


def short_name(name: str) -> str:
    """Paths of one machine stay out of run files."""
    folder = Path(name)
    if folder in (demo.TARGET, demo.DRAFTER):
        return f"{demo.BUILT_IN}/{folder.name}"
    return folder.resolve().name if folder.exists() else name


def revision_of(name: str) -> str:
    """The commit of a model on the hub, the start of the SHA-256 of a folder's weights, or nothing."""
    folder = Path(name)
    if not folder.exists():
        cached = try_to_load_from_cache(name, "config.json")  # …/snapshots/<commit>/config.json
        return Path(cached).parent.name if isinstance(cached, str) else ""
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as weights:
            digest.update(hashlib.file_digest(weights, "sha256").digest())
    return digest.hexdigest()[:12]
