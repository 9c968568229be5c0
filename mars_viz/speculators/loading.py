"""Loading of a target and a drafter, with errors that name a remedy.

Safetensors and GGUF only, and no code from a model's repository.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from mars_viz import demo
from mars_viz.bounds import shortened
from mars_viz.errors import BadInput, ModelError, SettingError
from mars_viz.run import Settings
from mars_viz.speculators.backend import Backend, Part
from mars_viz.speculators.devices import DeviceMap, check_fit, dtype_of, is_spread, layout, place_of
from mars_viz.speculators.draft import Drafter, Spent, Target
from mars_viz.speculators.drafter_names import Eagle3, Layers, NamedDrafter, Ngram, Suffix, Trimmed
from mars_viz.speculators.drafters.eagle3 import Eagle3Drafter
from mars_viz.speculators.drafters.eagle3_checkpoint import CONVERT, Checkpoint, TargetShape, read_checkpoint
from mars_viz.speculators.drafters.model import ModelDrafter, count_of, most_frequent, with_layers, with_vocabulary
from mars_viz.speculators.drafters.text import NgramDrafter, SuffixDrafter, TextBefore, TrigramDrafter
from mars_viz.speculators.drafters.universal import Translation, UniversalDrafter
from mars_viz.speculators.model_files import (
    Arrival,
    Loaded,
    cannot_load,
    check_no_folder,
    check_outputs,
    config_of,
    context_of,
    device_named,
    eos_ids_of,
    fetched,
    gguf_note,
    loaded_model,
    no_safetensors,
    note_of,
    other_added_tokens,
    output_size,
    processor_of,
    readable_ids,
    revision_of,
    short_name,
    tokenizer_of,
    vocabulary_end,
)
from mars_viz.speculators.names import (
    check_device_map,
    check_names,
    drafter_for,
    is_place,
    models_named,
    server_named,
    whole_drafter,
)
from mars_viz.speculators.networks import Opener, opener
from mars_viz.speculators.networks.eagle3_head import EagleNetwork, HeadWeights
from mars_viz.speculators.networks.small_llama import Heads
from mars_viz.speculators.targets import ModelTarget, VllmTarget, check_target
from mars_viz.speculators.threads import fit_cores
from mars_viz.speculators.token_bytes import TransformersTokenizer
from mars_viz.speculators.vllm_http import Server

LARGEST_TEXT = 64 << 20  # bytes of the text that a drafter is given, at most


@dataclass(frozen=True, slots=True)
class LoadedHead:
    """An EAGLE-3 head that is read."""

    checkpoint: Checkpoint
    name: str  # 'eagle3:' and its hub id or folder's name; 'eagle3' for the built-in one
    revision: str = ""  # commit on the hub, or the start of the weights' SHA-256


def load_backend(
    target: str | os.PathLike[str] | None = None,
    drafter: str | os.PathLike[str] | None = None,
    *,
    device: str = "auto",
    dtype: str = "auto",
    folders: bool = True,
    cuda_graphs: bool = True,
    device_map: DeviceMap | None = None,
    tell: Callable[[str, float], None] = lambda doing, share: None,
) -> Backend:
    """Load a target and a drafter by hub id or folder.

    A target may also be the address of a vLLM server, and a drafter be named by its settings, such as 'ngram:n=3'. None
    is the built-in target, and for the drafter the choice of `drafter_for`. `device` auto takes a GPU if there is one.
    `dtype` auto takes the weights' own on a GPU; on the CPU it is float32, or bfloat16 if all models are stored in it,
    the target is large and the processor has units for it (see `memory`). `cuda_graphs` goes to `opener`. A
    `device_map` spreads the target over several devices (see `devices`), with the drafter on the device of its
    input. Without `folders` models are only looked up on the hub, so that errors reveal no folders. The callback
    receives a description and the finished share from 0 to 1; an exception that it raises ends the loading. Raises
    BadInput with a remedy if the models cannot be used, TooLarge if they do not fit.
    """
    check_names(target, drafter, device=device, dtype=dtype, folders=folders)
    if device_map is not None:
        check_device_map(target, device)
    named, drafting = drafter_for(target, drafter), whole_drafter(target, drafter)
    if address := server_named(target):
        return _with_server(address, named, drafting, device, dtype, cuda_graphs=cuda_graphs, tell=tell)
    names = [str(target or demo.TARGET)]
    if isinstance(drafting, str):
        names.append(drafting or str(demo.DRAFTER))
    if not folders:
        for name in models_named(target, drafter):
            check_no_folder(name)
    place = device_named(device)
    tell("Reading the tokenizers", 0.0)
    spans = ((0.1, 0.7), (0.7, 1.0))
    arrivals = [Arrival(short_name(name), span, tell) for name, span in zip(names, spans, strict=False)]
    tokenizers = [tokenizer_of(name, arrival.bar) for name, arrival in zip(names, arrivals, strict=True)]
    apart = other_added_tokens(*tokenizers) if len(names) > 1 else []
    if apart is None and isinstance(named, Trimmed):
        raise ModelError(
            f"{names[1]} has another tokenizer than {names[0]}, so it drafts by text and has no tokens of the target's "
            f"to be trimmed to; take it whole, or a drafter of the target's family."
        )
    if place.type == "cpu":
        fit_cores()
    head = None
    if isinstance(drafting, Eagle3):
        head = read_head(drafting, short_name(names[0]), config_of(names[0]), folders)
    kind = dtype_of(dtype, place, names)
    check_fit(names if device_map is None else names[1:], place, kind)
    models = [loaded_model(names[0], place, kind, arrivals[0], device_map)]
    for name, arrival in zip(names[1:], arrivals[1:], strict=True):
        models.append(loaded_model(name, place_of(models[0]), kind, arrival))
    loaded = []
    for name, tokenizer, model in zip(names, tokenizers, models, strict=True):
        check_outputs(name, tokenizer, output_size(model))
        loaded.append(Loaded(model, short_name(name), revision_of(name), note=gguf_note(name, model)))
    if apart is None:
        loaded[1] = replace(loaded[1], tokenizer=tokenizers[1])
    elif len(loaded) > 1:
        loaded[1] = replace(loaded[1], note=_joined(loaded[1].note, note_of(apart)))
    drafts = head or (loaded[1] if isinstance(drafting, str) else drafting)
    trimmed = named if isinstance(named, Trimmed) else None
    return backend_of(tokenizers[0], loaded[0], drafts, trimmed=trimmed, cuda_graphs=cuda_graphs)


def backend_of(
    tokenizer: PreTrainedTokenizerBase,
    target: Loaded,
    drafter: Loaded | LoadedHead | NamedDrafter,
    *,
    eos_ids: frozenset[int] | None = None,
    trimmed: Trimmed | None = None,
    cuda_graphs: bool = True,
) -> Backend:
    """Return a backend of loaded models; `eos_ids` None takes the end-of-text tokens of the target's configuration.
    `trimmed` describes a trimmed drafter."""
    if is_spread(target.model) and isinstance(drafter, Eagle3 | LoadedHead | Layers):
        raise ModelError(
            f"{drafter.name} reads hidden states of the target, which is spread over several devices; take a "
            "drafter that is a model, or ngram:n=3."
        )
    by_text = isinstance(drafter, Loaded) and drafter.tokenizer is not None
    models = [each.model for each in (target, drafter) if isinstance(each, Loaded)][: 1 if by_text else 2]
    outputs, place = [output_size(model) for model in models], place_of(target.model)
    size = min(outputs) if vocabulary_end(tokenizer) <= min(outputs) else outputs[0]  # padding alone may be cut off
    ends = eos_ids_of(target.model, tokenizer) if eos_ids is None else eos_ids
    kept = None if trimmed is None else kept_tokens(trimmed, tokenizer, min(outputs), ends)
    if isinstance(drafter, Eagle3):
        drafter = read_head(drafter, target.name, target.model.config, folders=True)
    if isinstance(drafter, Loaded) and drafter.tokenizer is not None:
        drafting = _by_text(target, drafter, drafter.tokenizer, tokenizer, ends, cuda_graphs=cuda_graphs)
    elif isinstance(drafter, LoadedHead):
        drafting = with_head(target.model, drafter, size, kept)
    elif not isinstance(drafter, Loaded | Layers):
        drafting = without_model(drafter, tokenizer, size, place)
    else:
        if isinstance(drafter, Layers):
            fewer = with_layers(target.model, drafter.kept(count_of(target.model)))
            drafter = Loaded(fewer, drafter.name, target.revision)
        drafting = _by_model(drafter, size, kept, cuda_graphs=cuda_graphs)
    scoring = model_target(opener(target.model, size, cuda_graphs=cuda_graphs), target.name, target.revision)
    return Backend(
        target=replace(scoring, note=_joined(target.note, layout(target.model))),
        drafter=_called(drafting, trimmed),
        tokenizer=TransformersTokenizer(tokenizer, target.name),
        vocabulary_size=size,
        context=min(map(context_of, models)),
        eos_ids=ends,
        dtype=str(target.model.dtype).removeprefix("torch."),
        processor=processor_of(place),
        place=place,
    )


def _joined(*notes: str) -> str:
    return "; ".join(filter(None, notes))


def _by_model(
    drafter: Loaded, size: int, kept: Tensor | None, *, cuda_graphs: bool
) -> Part[Callable[[Settings], Drafter]]:
    """Return a drafting model for a target of `size` tokens; it drafts those of them that it scores, or those
    `kept`."""
    model = drafter.model if kept is None else with_vocabulary(drafter.model, kept)
    passes = opener(model, min(size, output_size(model)), cuda_graphs=cuda_graphs)
    vocabulary, readable = None if kept is None else kept.to(model.device), readable_ids(model)
    wider = readable if readable[0] < size else None
    return replace(model_drafter(passes, drafter.name, drafter.revision, vocabulary, wider), note=drafter.note)


def _called(part: Part[Callable[[Settings], Drafter]], trimmed: Trimmed | None) -> Part[Callable[[Settings], Drafter]]:
    """Return the drafter, under the name of its trimming if it is `trimmed`."""
    return part if trimmed is None else replace(part, name=replace(trimmed, of=trimmed.of and part.name).name)


def _by_text(
    target: Loaded,
    drafter: Loaded,
    own: PreTrainedTokenizerBase,
    tokenizer: PreTrainedTokenizerBase,
    ends: frozenset[int],
    *,
    cuda_graphs: bool,
) -> Part[Callable[[Settings], Drafter]]:
    """Return a drafter with tokenizer `own`, for a target that ends texts with one of the tokens `ends`."""
    end = tokenizer.eos_token_id if tokenizer.eos_token_id in ends else min(ends, default=None)
    translation = Translation(
        TransformersTokenizer(tokenizer, target.name),
        TransformersTokenizer(own, drafter.name),
        context_of(drafter.model),
        eos_ids_of(drafter.model, own),
        end,
        (output_size(target.model), readable_ids(drafter.model)[0]),
    )
    passes = opener(drafter.model, min(output_size(drafter.model), vocabulary_end(own)), cuda_graphs=cuda_graphs)
    return text_drafter(passes, drafter.name, drafter.revision, translation)


def model_target(passes: Opener, name: str, revision: str = "") -> Part[Callable[[], Target]]:
    """Return a target that uses these forward passes."""
    return Part(name, lambda: ModelTarget(passes()), revision, passes.batching, passes.lack, passes=passes)


def _with_server(
    address: str,
    named: NamedDrafter | str,
    drafting: NamedDrafter | str,
    device: str,
    dtype: str,
    *,
    cuda_graphs: bool,
    tell: Callable[[str, float], None],
) -> Backend:
    """Return a backend with a vLLM server as target and a local drafter. Raises ModelError if they do not match."""
    tell(f"Asking {address}", 0.0)
    server, place = Server.at(address), device_named(device)
    display_name = PurePath(short_name(server.model)).name if server.model.startswith("/") else server.model
    source, tokenizer = server.root, None
    with suppress(BadInput):
        tokenizer = tokenizer_of(source)
    name = source
    if isinstance(drafting, str):
        name = drafting or str(demo.DRAFTER)
        own = tokenizer_of(name)
        if tokenizer is None:
            source, tokenizer = name, own
        apart = other_added_tokens(tokenizer, own)
        if apart is None:
            raise ModelError(f"{name} has another tokenizer than {server.model}; take a drafter of its family.")
        note = note_of(apart)
    elif tokenizer is None:
        raise ModelError(
            f"{drafting.name} needs the tokenizer of {server.model}, and {server.root}, the server's own "
            "model, is not available here; name a drafter that is a model of its family."
        )
    size = int(config_of(source).get_text_config().vocab_size)
    server = check_target(server, lambda text: tokenizer(text, add_special_tokens=False)["input_ids"], size)
    context, ends = server.context - 1, _ends(server.root, name, tokenizer)  # it writes one more
    trimmed = named if isinstance(named, Trimmed) else None
    if isinstance(drafting, str):
        if place.type == "cpu":
            fit_cores()
        arrival = Arrival(short_name(name), (0.1, 1.0), tell)
        model = loaded_model(name, place, dtype_of(dtype, place, [name]), arrival)
        check_outputs(name, own, output_size(model))
        context = min(context, context_of(model))
        kept = None if trimmed is None else kept_tokens(trimmed, tokenizer, min(size, output_size(model)), ends)
        drafter = Loaded(model, short_name(name), revision_of(name), note=note)
        part = _by_model(drafter, size, kept, cuda_graphs=cuda_graphs)
    else:
        part = without_model(drafting, tokenizer, size, place)
    return Backend(
        target=Part(
            display_name,
            lambda: VllmTarget(server, place),
            f"vLLM {server.version}",
            note="a vLLM server reads a text whole in every round, since it gives a prompt's logits without its cache",
        ),
        drafter=_called(part, trimmed),
        tokenizer=TransformersTokenizer(tokenizer, display_name),
        vocabulary_size=size,
        context=context,
        eos_ids=ends,
        dtype="as served",
        processor=f"{processor_of(place)}; target on a vLLM server",
        place=place,
    )


def _ends(root: str, drafter: str, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Return the tokens that end a served model's texts, from its own settings if available, otherwise the
    drafter's."""
    for name in (root, drafter):
        with suppress(OSError, ValueError):
            configured = GenerationConfig.from_pretrained(name, local_files_only=True).eos_token_id
            ids = configured if isinstance(configured, list) else [configured, tokenizer.eos_token_id]
            return frozenset(int(token) for token in ids if token is not None)
    return frozenset() if tokenizer.eos_token_id is None else frozenset({int(tokenizer.eos_token_id)})


def model_drafter(
    passes: Opener,
    name: str,
    revision: str = "",
    vocabulary: Tensor | None = None,
    readable: tuple[int, int] | None = None,
) -> Part[Callable[[Settings], Drafter]]:
    """Return a drafter over these forward passes; `vocabulary` and `readable` are those of `ModelDrafter`."""
    return Part(
        name,
        lambda each: ModelDrafter(passes(), each, vocabulary, readable),
        revision,
        passes.batching,
        passes.lack,
        passes=passes,
        drafts_trees=True,
    )


def text_drafter(
    passes: Opener, name: str, revision: str, translation: Translation
) -> Part[Callable[[Settings], Drafter]]:
    """A drafter with a tokenizer of its own that goes through these forward passes; it says what its drafts took."""
    spent = Spent()

    def lack() -> str:
        took = f"{spent.passes:,} drafter passes for {spent.tokens:,} drafted tokens so far"
        said = ["the drafter has another tokenizer than the target", took * (spent.passes > 0), passes.lack()]
        return f"drafts by text: {'; '.join(filter(None, said))}"

    return Part(
        name,
        lambda _: UniversalDrafter(passes(), translation, spent),
        revision,
        passes.batching,
        lack,
        passes=passes,
        by_text=True,
    )


def read_head(wanted: Eagle3, target: str, config: PreTrainedConfig, folders: bool) -> LoadedHead:
    """The head that is wanted for the target of that name and configuration. Raises ModelError."""
    if not wanted.head or (folders and is_place(wanted.head)):
        folder = Path(wanted.head) if wanted.head else demo.head_for(target) or demo.EAGLE3
        named = wanted if not wanted.head else replace(wanted, head=short_name(wanted.head))
    else:
        try:
            folder = fetched(wanted.head, ["config.json", "*.safetensors"])
        except Exception as error:  # the hub's library and its client raise what they like
            raise ModelError(cannot_load(wanted.head, "head", error)) from error
        named = wanted
        if not list(folder.glob("*.safetensors")):
            fetch = f"hf download {wanted.head} --local-dir DIR"
            raise ModelError(no_safetensors(wanted.head, f"Fetch it ({fetch}), convert it in DIR: {CONVERT}"))
    config = config.get_text_config()
    shape = TargetShape(target, config.hidden_size, config.num_hidden_layers, config.vocab_size)
    return LoadedHead(read_checkpoint(folder, shape), named.name, revision_of(str(folder)))


def with_head(
    target: PreTrainedModel, head: LoadedHead, size: int, kept: Tensor | None = None
) -> Part[Callable[[Settings], Drafter]]:
    """A head that reads what enters layers of the target, and takes what it lacks from it; of its vocabulary it drafts
    the tokens that are `kept`, int64 ascending, all for None. Raises SettingError where it has none of them."""
    read, (place, kind) = head.checkpoint, (target.device, target.dtype)
    own = {name: each.to(place, kind) for name, each in read.tensors.items()}
    shared = {
        "embed_tokens.weight": target.get_input_embeddings().weight,
        "lm_head.weight": target.get_output_embeddings().weight[:size],
    }
    vocabulary = None if read.vocabulary is None else read.vocabulary.to(place)
    if kept is not None:
        tokens = rows = kept.to(place)
        if vocabulary is not None:
            rows = torch.isin(vocabulary, tokens).nonzero()[:, 0]  # of the head
            tokens = vocabulary[rows]
        if not len(rows):
            raise SettingError(f"{head.name} has none of the {len(kept):,} tokens that are to be kept; keep more.")
        vocabulary, own["lm_head.weight"] = tokens, (shared | own)["lm_head.weight"][rows]
    heads = Heads(read.shape.heads, read.shape.groups, read.shape.size)
    weights = HeadWeights.of(
        shared | own,
        heads,
        read.shape.epsilon,
        read.rotary,
        normed_residual=read.normed_residual,
        normed_output=read.normed_output,
    )
    readings = (read.reading, *read.others)
    return Part(
        head.name,
        lambda each: Eagle3Drafter(EagleNetwork(weights), readings, vocabulary, size, each),
        head.revision,
        str(weights.batching or ""),
        note=read.note,
        drafts_trees=True,
    )


def kept_tokens(wanted: Trimmed, tokenizer: PreTrainedTokenizerBase, size: int, ends: Iterable[int]) -> Tensor:
    """int64 [m], ascending; what a trimmed drafter can draft, of `size` tokens, those that end a text included. Raises
    BadInput where its text cannot be read, and for more tokens than there are."""
    text = _tokens_of(wanted.text, tokenizer, size)[0] if wanted.text else []
    return most_frequent(text, wanted.m, size, ends)


def without_model(
    wanted: NamedDrafter, tokenizer: PreTrainedTokenizerBase, size: int, place: torch.device
) -> Part[Callable[[Settings], Drafter]]:
    """Return a drafter of text alone for a target of `size` tokens. Raises BadInput if its file cannot be read."""
    if isinstance(wanted, Ngram):
        return Part(wanted.name, lambda _: NgramDrafter(wanted.n, place), wanted.name, "no model")
    tokens, revision = _tokens_of(wanted.source, tokenizer, size) if wanted.source else ([], wanted.name)
    before = TextBefore(tokens)
    if isinstance(wanted, Suffix):
        return Part(wanted.name, lambda _: SuffixDrafter(wanted.n, before, place), revision, "no model")
    return Part(wanted.name, lambda _: TrigramDrafter(before, place), revision, "no model")


def _tokens_of(file: str, tokenizer: PreTrainedTokenizerBase, size: int) -> tuple[list[int], str]:
    """Return the tokens below `size` of a drafter's text, and the start of its SHA-256. Raises BadInput."""
    try:
        with Path(file).open("rb") as source:
            data = source.read(LARGEST_TEXT + 1)
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"{shortened(file)} cannot be read as text ({error}). Save it as UTF-8.") from error
    if len(data) > LARGEST_TEXT:
        raise SettingError(f"{shortened(file)} has more than {LARGEST_TEXT >> 20} MB; give the drafter less text.")
    tokens = [token for token in tokenizer(text, add_special_tokens=False)["input_ids"] if token < size]
    return tokens, hashlib.sha256(data).hexdigest()[:12]
