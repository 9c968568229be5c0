"""Models by name: their configuration and tokenizer, their weights on a device, progress, name in run files, and facts.

Safetensors and GGUF only, and no code from a model's repository. Some names of transformers for GGUF are imported when
a file is read, since older versions lack them.
"""

from __future__ import annotations

import hashlib
import json
import platform
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import get_hf_file_metadata, hf_hub_url, snapshot_download, try_to_load_from_cache
from tqdm import tqdm
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMultimodalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers import modeling_gguf_pytorch_utils as gguf_loading
from transformers.utils import logging as transformers_logging

from mars_viz import demo
from mars_viz.bounds import shortened
from mars_viz.errors import MarsVizError, ModelError
from mars_viz.speculators import devices
from mars_viz.speculators.devices import DeviceMap
from mars_viz.speculators.names import gguf_here, header_of, hub_gguf, local_gguf, local_place

_FETCHING = 0.8  # part of a loading with a download that is assigned to the download


class Arrival:
    """One model's loading: reports its libraries' progress bars, of bytes and then of tensors, as sentences."""

    def __init__(self, name: str, span: tuple[float, float], tell: Callable[[str, float], None]) -> None:
        """`span` are the shares of the complete loading at its start and its end. A description and a share from 0 to 1
        are reported; an exception that the function raises ends the loading."""
        self._name, self._span, self._tell = name, span, tell
        self._files: list[_Bar] = []
        self._share = 0.0  # of this model; never taken back
        self._lock = threading.Lock()

    def bar(self, *args: Any, **settings: Any) -> _Bar:
        """Return a replacement of a tqdm for the hub's library: `tqdm_class` of `snapshot_download`."""
        if settings.get("unit") != "B":
            return _Bar()
        bar = _Bar(**settings)
        bar.tell = self._fetched
        with self._lock:
            self._files.append(bar)
        return bar

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Report transformers' progress while it reads the weights. For one thread at a time."""

        def of_gguf(tensors: Sequence[Any], **settings: Any) -> Iterator[Any]:
            return self._reported(tensors)  # as they are dequantised; they are added to the model afterwards

        def of_transformers(factory: Callable[..., Any], args: Any, settings: Any) -> Any:
            is_of_weights = bool(args) and hasattr(args[0], "__len__") and settings.get("desc") == "Loading weights"
            return self._reported(args[0]) if is_of_weights else factory(*args, **settings)

        self._report("Reading {name}", 0.0)
        before, gguf_loading.tqdm = gguf_loading.tqdm, of_gguf
        hook = transformers_logging.set_tqdm_hook(of_transformers)
        try:
            yield
        finally:
            transformers_logging.set_tqdm_hook(hook)
            gguf_loading.tqdm = before

    def _report(self, doing: str, share: float) -> None:
        first, last = self._span
        self._share = max(self._share, share)
        self._tell(doing.format(name=self._name), first + self._share * (last - first))

    def _reported(self, tensors: Sequence[Any]) -> Iterator[Any]:
        count, begun = len(tensors), self._share
        for done, tensor in enumerate(tensors):
            self._report(f"Reading {{name}}: {done} of {count} tensors", begun + (1 - begun) * done / count)
            yield tensor

    def _fetched(self) -> None:
        """Report the largest count: the library counts a byte twice, when it arrives packed and when it is unpacked."""
        with self._lock:
            done, total = max(file.n for file in self._files), max(file.total or 0 for file in self._files)
        if total:  # a file may be whole before the library knows of the next
            share = _FETCHING * min(1.0, done / total)
            self._report(f"Fetching {{name}}: {devices.in_words(done)} of {devices.in_words(total)}", share)


class _Bar(tqdm):  # type: ignore[misc]
    """A progress bar that draws nothing and counts."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings | {"disable": True})
        self.tell: Callable[[], None] = lambda: None

    def update(self, n: float | None = 1) -> None:
        self.n += int(n or 0)
        self.tell()


def config_in(file: Path) -> PreTrainedConfig:
    """Return the configuration, with end tokens and scaled rotary positions, which transformers leaves out."""
    values = header_of(file).values
    config = AutoConfig.from_pretrained(file.parent, gguf_file=str(file.absolute()), trust_remote_code=False)
    ends = [
        values.get(f"tokenizer.ggml.{each}_token_id") for each in ("eos", "eot", "eom")
    ]  # of a text, a turn, a message
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


def gguf_note(name: str, model: PreTrainedModel) -> str:
    """Return a note about the cost of dequantising a GGUF file; empty for other models."""
    if (file := gguf_here(name)) is None:
        return ""
    size, kind = devices.in_words(file.stat().st_size), header_of(file).quantisation
    memory = devices.in_words(devices.bytes_of(model))
    return f"its weights are dequantised from {kind}: {size} in the file, {memory} in memory"


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


SMALL = ("*.json", "*.jinja", "*.model", "*.tiktoken", "*.txt")
"""Files fetched from a repository before its weights: configuration, tokenizer, and the index of weights."""
NAMED = 4  # maximum number of tokens in a note
WEIGHTS, WEIGHTS_INDEX = "model.safetensors", "model.safetensors.index.json"
CONVERT = (
    'python -c "from transformers import AutoModelForCausalLM as M, AutoTokenizer as T; '
    "[each.from_pretrained('{name}').save_pretrained('DIR') for each in (M, T)]\""
)


def fetched(name: str, patterns: Sequence[str], bars: Callable[..., Any] = _Bar) -> Path:
    """Return the cache folder with these files from the top of a hub repository; without a network, with files fetched
    before. Raises the errors of the hub's library and its client."""
    drawn: Any = bars
    return Path(snapshot_download(name, allow_patterns=[*patterns], ignore_patterns="*/*", tqdm_class=drawn))


def fetched_model(name: str, bars: Callable[..., Any]) -> Path:
    """Return a model's folder or GGUF file, fetched from the hub if needed. Raises ModelError for a repository without
    safetensors, and the errors of `fetched`."""
    folder = _place(name, bars)
    if folder.is_file() or local_place(name) is not None:
        return folder
    index = folder / WEIGHTS_INDEX
    files = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values())) if index.is_file() else [WEIGHTS]
    folder = fetched(name, files, bars)
    if not any((folder / file).is_file() for file in files):
        raise ModelError(
            f"{name} holds no {WEIGHTS}; only that format is loaded. Name a repository that has it, or convert its "
            f"weights, {CONVERT.format(name=name)}, and name DIR."
        )
    return folder


def _place(name: str, bars: Callable[..., Any] = _Bar) -> Path:
    """Return a folder with configuration and tokenizer, or a complete GGUF file."""
    if (place := local_place(name)) is not None:
        return place
    if (of_hub := hub_gguf(name)) is None:
        return fetched(name, SMALL)
    repository, file = of_hub
    return fetched(repository, [file], bars) / file


@contextmanager
def refusals(name: str, what: str) -> Iterator[None]:
    """Raise ModelError, with a remedy, for errors while this part of a model is fetched and read."""
    try:
        yield
    except MarsVizError:
        raise
    except Exception as error:  # the hub's library, its client, tokenizers and transformers raise many kinds
        raise ModelError(
            f"The {what} of {name} cannot be loaded ({devices.first_line(error)}). Check the id or folder, and the "
            "network for a hub id. Only safetensors are loaded, and GGUF files that transformers can read."
        ) from error


def config_of(name: str, place: Path | None = None) -> PreTrainedConfig:
    """Return a model's configuration, before its weights are read; `place` is its folder or file if it was fetched."""
    with refusals(name, "configuration"):
        place = place or _place(name)
        return config_in(place) if place.is_file() else AutoConfig.from_pretrained(place, trust_remote_code=False)


def tokenizer_of(name: str, bars: Callable[..., Any] = _Bar) -> PreTrainedTokenizerBase:
    """Return a model's tokenizer. Raises ModelError. For a GGUF file on the hub, which also contains the weights,
    `bars` report the download."""
    if local_place(name) is None:
        check_hub(name)
    with refusals(name, "tokenizer"):
        place = _place(name, bars)
        if place.is_file():
            return tokenizer_in(place)
        try:
            return AutoTokenizer.from_pretrained(place, trust_remote_code=False)
        except Exception as error:  # the tokenizers library raises the bare class for a file it cannot read
            if not list(place.glob("*.model")) or (place / "tokenizer.json").is_file():
                raise
            raise ModelError(
                f"The tokenizer of {name} is in an older format ({devices.first_line(error)}). Run: pip install "
                "sentencepiece tiktoken"
            ) from error


def check_no_folder(name: str) -> None:
    """Raise BadInput if transformers would use a folder in the working directory for the model of this name. The error
    appears only if the hub also has the model."""
    if name == demo.SMOLLM2:
        return
    check_hub(name)
    if Path(name.partition(":")[0]).exists():
        raise ModelError(
            f"{name} cannot be fetched here. Have the server started from another folder, or name another."
        )


def check_hub(name: str) -> None:
    """Check the hub once, silently, because the libraries would retry for a minute with messages."""
    repository, file = hub_gguf(name) or (name, "config.json")
    with refusals(name, "configuration"):
        if not isinstance(try_to_load_from_cache(repository, file), str):
            get_hf_file_metadata(hf_hub_url(repository, file))


def vocabulary_end(tokenizer: PreTrainedTokenizerBase) -> int:
    """Return one more than the largest id."""
    return max(tokenizer.get_vocab().values(), default=-1) + 1


def check_outputs(name: str, tokenizer: PreTrainedTokenizerBase, outputs: int) -> None:
    """Raise ModelError if a model with this many outputs lacks some for tokens that were not added to the tokenizer."""
    if outputs >= vocabulary_end(tokenizer):
        return
    beyond = {token_id for token_id in tokenizer.get_vocab().values() if token_id >= outputs}
    if not beyond <= tokenizer.added_tokens_decoder.keys():
        raise ModelError(
            f"The vocabularies do not match: the tokenizer of {name} has {len(tokenizer)} entries, its model scores "
            f"{outputs}. Choose a model whose tokenizer was saved with it."
        )


def other_added_tokens(target: PreTrainedTokenizerBase, drafter: PreTrainedTokenizerBase) -> str | None:
    """Return a note if a drafter's tokenizer differs from the target's in added tokens; may be empty. None if it
    differs in other tokens as well, or in most: its ids are then not the target's."""
    if target.get_vocab() == drafter.get_vocab():
        return ""
    ours, theirs = _entries(target), _entries(drafter)
    apart = {token_id for token_id in ours.keys() | theirs.keys() if ours.get(token_id) != theirs.get(token_id)}
    added = target.added_tokens_decoder.keys() | drafter.added_tokens_decoder.keys()
    if not added >= apart or len(apart) > len(ours.keys() & theirs.keys()) // 2:
        return None
    tokens = ", ".join(shortened(theirs.get(token_id) or ours[token_id]) for token_id in sorted(apart)[:NAMED])
    return f"its added tokens are not all the target's ({len(apart)} differ: {tokens})" if apart else ""


def _entries(tokenizer: PreTrainedTokenizerBase) -> dict[int, str]:
    """Return the token of each id; an added token replaces an entry of the same id."""
    entries = {token_id: token for token, token_id in tokenizer.get_vocab().items()}
    return entries | {token_id: token.content for token_id, token in tokenizer.added_tokens_decoder.items()}


def short_name(name: str) -> str:
    """Return a name for run files, without local paths."""
    if name == demo.SMOLLM2:
        return name
    if (file := local_gguf(name)) is not None:
        return file.name
    folder = Path(name)
    if folder in (demo.TARGET, demo.DRAFTER):
        return f"{demo.BUILT_IN}/{folder.name}"
    return folder.resolve().name if folder.exists() else name


def is_local(name: str) -> bool:
    """Return True for a folder or file of this machine."""
    return local_gguf(name) is not None or Path(name).exists()


def revision_of(name: str) -> str:
    """Return a model's commit on the hub, or the start of its weights' SHA-256; may be empty."""
    if not is_local(name):
        cached = try_to_load_from_cache(*(hub_gguf(name) or (name, "config.json")))  # …/snapshots/<commit>/config.json
        return Path(cached).parent.name if isinstance(cached, str) else ""
    digest, gguf = hashlib.sha256(), local_gguf(name)
    for file in [gguf] if gguf else sorted(Path(name).glob("*.safetensors")):
        with file.open("rb") as weights:
            digest.update(hashlib.file_digest(weights, "sha256").digest())
    return digest.hexdigest()[:12]


def device_named(name: str) -> torch.device:
    """Return the device of this name; auto takes a GPU if there is one. Raises ModelError for a missing device."""
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
    transformers_logging.disable_progress_bar()  # the arrival reports instead
    with refusals(name, "model"):
        try:
            with arrival.reading():
                place = fetched_model(name, arrival.bar)
                with parsed_once() if place.is_file() else nullcontext():
                    load = partial(_read_model, name, place, dtype)
                    model: PreTrainedModel = load() if device_map is None else devices.loaded_over(device_map, load)
            if device_map is None:
                model.to(device)
            return model.requires_grad_(False)
        except Exception as error:
            if devices.lacks_memory(error):
                raise devices.too_large([name], device, dtype) from error
            if devices.is_gone(error):
                raise devices.lost(error) from error
            raise


def _read_model(name: str, place: Path, dtype: torch.dtype | str, **layout: Any) -> PreTrainedModel:
    config = config_of(name, place)
    what: dict[str, Any] = {"pretrained_model_name_or_path": place, "dtype": dtype, "use_safetensors": True}
    if place.is_file():
        from transformers import GgufConfig

        what = {
            "pretrained_model_name_or_path": place.parent,
            "gguf_file": str(place.absolute()),  # a bare name would be looked for in the working directory first
            "config": config,
            "dtype": devices.DTYPES[header_of(place).computed] if dtype == "auto" else dtype,
            "quantization_config": GgufConfig(dequantize=True),
        }
    auto = AutoModelForCausalLM if type(config) in MODEL_FOR_CAUSAL_LM_MAPPING else AutoModelForMultimodalLM
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
    factors = header_of(place).tensors.get("rope_freqs.weight") if place.is_file() else None
    rotary = getattr(model.base_model, "rotary_emb", None)
    if factors is not None and rotary is not None and rotary.inv_freq.numel() == factors.n_elements:
        # Llama 3's factors, which transformers' reader leaves out
        rotary.inv_freq = rotary.inv_freq / torch.from_numpy(factors.data.copy()).to(rotary.inv_freq)
    return model


def output_size(model: PreTrainedModel) -> int:
    """Return the number of tokens that it scores."""
    return int(model.get_output_embeddings().weight.shape[0])


def context_of(model: PreTrainedModel) -> int:
    """Return the maximum number of positions."""
    return int(getattr(model.config.get_text_config(), "max_position_embeddings", None) or 1 << 20)


def readable_ids(model: PreTrainedModel) -> tuple[int, int]:
    """Return the number of readable ids, and one that can replace others: padding, the end of a text, or the last."""
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
    info = Path("/proc/cpuinfo")
    lines = info.read_text(errors="replace").splitlines() if info.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    name = next(names, platform.processor() or platform.machine())
    if place.type != "cpu":
        return f"{name} ({place.type})"
    threads = torch.get_num_threads()
    return f"{name}, {threads} thread{'s' if threads > 1 else ''}"
