"""Loading of a target and a drafter, with errors that name a remedy.

Safetensors and GGUF only, and no code from a model's repository.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePath

import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from mars_viz import demo
from mars_viz.bounds import shortened
from mars_viz.errors import BadInput, ModelError, SettingError
from mars_viz.run import Settings
from mars_viz.speculators import model_files as files
from mars_viz.speculators import names
from mars_viz.speculators.backend import Backend, Part
from mars_viz.speculators.devices import DeviceMap, check_fit, dtype_of, is_spread, layout, place_of
from mars_viz.speculators.draft import Drafter, Spent, Target
from mars_viz.speculators.drafter_names import Eagle3, Layers, NamedDrafter, Ngram, Suffix, Trimmed
from mars_viz.speculators.drafters.eagle3_checkpoint import CONVERT, Checkpoint, TargetShape, read_checkpoint
from mars_viz.speculators.drafters.model import (
    Eagle3Drafter,
    ModelDrafter,
    Readable,
    most_frequent,
    with_layers,
    with_vocabulary,
)
from mars_viz.speculators.drafters.text import NgramDrafter, SuffixDrafter, TextBefore, TrigramDrafter
from mars_viz.speculators.drafters.universal import Translation, UniversalDrafter
from mars_viz.speculators.model_files import Arrival, Loaded
from mars_viz.speculators.networks import Opener, opener
from mars_viz.speculators.networks.base import layers_of
from mars_viz.speculators.networks.eagle3_head import EagleNetwork, HeadWeights
from mars_viz.speculators.targets import ModelTarget, VllmTarget, check_target
from mars_viz.speculators.threads import fit_cores
from mars_viz.speculators.token_bytes import TransformersTokenizer
from mars_viz.speculators.vllm_http import Server

LARGEST_TEXT = 64 << 20  # bytes of the text that a drafter is given, at most
DrafterPart = Part[Callable[[Settings], Drafter]]
Tell = Callable[[str, float], None]  # receives a description and the finished share


def load_backend(
    target: str | os.PathLike[str] | None = None,
    drafter: str | os.PathLike[str] | None = None,
    *,
    device: str = "auto",
    dtype: str = "auto",
    folders: bool = True,
    cuda_graphs: bool = True,
    device_map: DeviceMap | None = None,
    tell: Tell = lambda doing, share: None,
) -> Backend:
    """Load a target and a drafter by hub id or folder.

    A target may also be the address of a vLLM server, and a drafter be named by its settings, such as 'ngram:n=3'. None
    is the built-in target, and for the drafter the choice of `drafter_for`. `device` auto takes a GPU if there is one.
    `dtype` auto takes the weights' own on a GPU; on the CPU it is float32, or bfloat16 if all models are stored in it,
    the target is large and the processor has units for it (see `devices`). `cuda_graphs` goes to `opener`. A
    `device_map` spreads the target over several devices (see `devices`), with the drafter on the device of its
    input. Without `folders` models are only looked up on the hub, so that errors reveal no folders. The callback
    receives a description and the finished share from 0 to 1; an exception that it raises ends the loading. Raises
    BadInput with a remedy if the models cannot be used, TooLarge if they do not fit.
    """
    pair = names.check_names(target, drafter, device=device, dtype=dtype, folders=folders)
    if device_map is not None:
        names.check_device_map(target, device)
    drafting = pair.whole
    if pair.server:
        return _with_server(pair, device, dtype, cuda_graphs=cuda_graphs, tell=tell)
    model_names = [str(target or demo.TARGET)]
    if isinstance(drafting, str):
        model_names.append(drafting or str(demo.DRAFTER))
    if not folders:
        for name in pair.models:
            files.check_no_folder(name)
    place = files.device_named(device)
    tell("Reading the tokenizers", 0.0)
    spans = ((0.1, 0.7), (0.7, 1.0))
    arrivals = [Arrival(files.short_name(name), span, tell) for name, span in zip(model_names, spans, strict=False)]
    tokenizers = [files.tokenizer_of(name, arrival.bar) for name, arrival in zip(model_names, arrivals, strict=True)]
    apart = files.other_added_tokens(*tokenizers) if len(model_names) > 1 else []
    if apart is None and pair.trimmed:
        raise ModelError(
            f"{model_names[1]} has another tokenizer than {model_names[0]}, so it drafts by text and has no tokens of "
            "the target's to be trimmed to; take it whole, or a drafter of the target's family."
        )
    if place.type == "cpu":
        fit_cores()
    head = None
    if isinstance(drafting, Eagle3):
        head = _read_head(drafting, files.short_name(model_names[0]), files.config_of(model_names[0]), folders)
    kind = dtype_of(dtype, place, model_names)
    check_fit(model_names if device_map is None else model_names[1:], place, kind)
    loaded: list[Loaded] = []
    for name, tokenizer, arrival in zip(model_names, tokenizers, arrivals, strict=True):
        there, spread = (place_of(loaded[0].model), None) if loaded else (place, device_map)
        model = files.loaded_model(name, there, kind, arrival, spread)
        files.check_outputs(name, tokenizer, files.output_size(model))
        loaded.append(Loaded(model, files.short_name(name), files.revision_of(name), note=files.gguf_note(name, model)))
    if apart is None:
        loaded[1] = replace(loaded[1], tokenizer=tokenizers[1])
    elif len(loaded) > 1:
        loaded[1] = replace(loaded[1], note=_joined(loaded[1].note, files.note_of(apart)))
    drafter_loaded = head or (loaded[1] if isinstance(drafting, str) else drafting)
    return backend_of(tokenizers[0], loaded[0], drafter_loaded, trimmed=pair.trimmed, cuda_graphs=cuda_graphs)


def backend_of(
    tokenizer: PreTrainedTokenizerBase,
    target: Loaded,
    drafter: Loaded | Checkpoint | NamedDrafter,
    *,
    eos_ids: frozenset[int] | None = None,
    trimmed: Trimmed | None = None,
    cuda_graphs: bool = True,
) -> Backend:
    """Return a backend of loaded models; `eos_ids` None takes the end-of-text tokens of the target's configuration.
    `trimmed` describes a trimmed drafter."""
    if is_spread(target.model) and isinstance(drafter, Eagle3 | Checkpoint | Layers):
        raise ModelError(
            f"{drafter.name} reads hidden states of the target, which is spread over several devices; take a "
            "drafter that is a model, or ngram:n=3."
        )
    by_text = isinstance(drafter, Loaded) and drafter.tokenizer is not None
    models = [each.model for each in (target, drafter) if isinstance(each, Loaded)][: 1 if by_text else 2]
    outputs, place = [files.output_size(model) for model in models], place_of(target.model)
    size = (
        min(outputs) if files.vocabulary_end(tokenizer) <= min(outputs) else outputs[0]
    )  # padding alone may be cut off
    ends = files.eos_ids_of(target.model, tokenizer) if eos_ids is None else eos_ids
    kept = None if trimmed is None else _kept_tokens(trimmed, tokenizer, min(outputs), ends)
    if isinstance(drafter, Eagle3):
        drafter = _read_head(drafter, target.name, target.model.config, folders=True)
    if isinstance(drafter, Loaded) and drafter.tokenizer is not None:
        drafting = _by_text(target, drafter, tokenizer, ends, cuda_graphs=cuda_graphs)
    elif isinstance(drafter, Checkpoint):
        drafting = _with_head(target.model, drafter, size, kept)
    elif not isinstance(drafter, Loaded | Layers):
        drafting = _without_model(drafter, tokenizer, size, place)
    else:
        if isinstance(drafter, Layers):
            fewer = with_layers(target.model, drafter.kept(len(layers_of(target.model)[1])))
            drafter = Loaded(fewer, drafter.name, target.revision)
        drafting = _by_model(drafter, size, kept, cuda_graphs=cuda_graphs)
    scoring = model_target(opener(target.model, size, cuda_graphs=cuda_graphs), target.name, target.revision)
    return Backend(
        target=replace(scoring, note=_joined(target.note, layout(target.model))),
        drafter=_called(drafting, trimmed),
        tokenizer=TransformersTokenizer(tokenizer, target.name),
        vocabulary_size=size,
        context=min(map(files.context_of, models)),
        eos_ids=ends,
        dtype=str(target.model.dtype).removeprefix("torch."),
        processor=files.processor_of(place),
        place=place,
    )


def _joined(*notes: str) -> str:
    return "; ".join(filter(None, notes))


def _by_model(drafter: Loaded, size: int, kept: Tensor | None, *, cuda_graphs: bool) -> DrafterPart:
    """Return a model that drafts, of a target's `size` tokens, those that it scores, or those `kept`."""
    model = drafter.model if kept is None else with_vocabulary(drafter.model, kept)
    passes = opener(model, min(size, files.output_size(model)), cuda_graphs=cuda_graphs)
    vocabulary, readable = None if kept is None else kept.to(model.device), files.readable_ids(model)
    wider = readable if readable[0] < size else None
    return replace(model_drafter(passes, drafter.name, drafter.revision, vocabulary, wider), note=drafter.note)


def _called(part: DrafterPart, trimmed: Trimmed | None) -> DrafterPart:
    return part if trimmed is None else replace(part, name=replace(trimmed, of=trimmed.of and part.name).name)


def _by_text(
    target: Loaded, drafter: Loaded, tokenizer: PreTrainedTokenizerBase, ends: frozenset[int], *, cuda_graphs: bool
) -> DrafterPart:
    """Return a drafter with a tokenizer of its own, for a target that ends texts with one of the tokens `ends`."""
    own = drafter.tokenizer
    assert own is not None
    end = tokenizer.eos_token_id if tokenizer.eos_token_id in ends else min(ends, default=None)
    translation = Translation(
        TransformersTokenizer(tokenizer, target.name),
        TransformersTokenizer(own, drafter.name),
        files.context_of(drafter.model),
        files.eos_ids_of(drafter.model, own),
        end,
        (files.output_size(target.model), files.readable_ids(drafter.model)[0]),
    )
    passes = opener(
        drafter.model, min(files.output_size(drafter.model), files.vocabulary_end(own)), cuda_graphs=cuda_graphs
    )
    spent = Spent()

    def lack() -> str:
        spending = f"{spent.passes:,} drafter passes for {spent.tokens:,} drafted tokens so far"
        clauses = ["the drafter has another tokenizer than the target", spending * (spent.passes > 0), passes.lack()]
        return f"drafts by text: {'; '.join(filter(None, clauses))}"

    opened = lambda _: UniversalDrafter(passes(), translation, spent)  # noqa: E731
    return Part(drafter.name, opened, drafter.revision, lack, passes=passes, by_text=True)


def model_target(passes: Opener, name: str, revision: str = "") -> Part[Callable[[], Target]]:
    """Return a target that uses these forward passes."""
    return Part(name, lambda: ModelTarget(passes()), revision, passes.lack, passes=passes)


def model_drafter(
    passes: Opener, name: str, revision: str = "", vocabulary: Tensor | None = None, readable: Readable = None
) -> DrafterPart:
    """Return a drafter over these forward passes; `vocabulary` and `readable` are those of `ModelDrafter`."""
    opened = lambda settings: ModelDrafter(passes(), settings, vocabulary, readable)  # noqa: E731
    return Part(name, opened, revision, passes.lack, passes=passes, drafts_trees=True)


def _with_server(pair: names.Pair, device: str, dtype: str, *, cuda_graphs: bool, tell: Tell) -> Backend:
    """Return a backend with a vLLM server as target and a local drafter. Raises ModelError if they do not match."""
    tell(f"Asking {pair.server}", 0.0)
    drafting, trimmed = pair.whole, pair.trimmed
    server, place = Server.at(pair.server), files.device_named(device)
    display_name = PurePath(files.short_name(server.model)).name if server.model.startswith("/") else server.model
    source, tokenizer = server.root, None
    with suppress(BadInput):
        tokenizer = files.tokenizer_of(source)
    name = source
    if isinstance(drafting, str):
        name = drafting or str(demo.DRAFTER)
        own = files.tokenizer_of(name)
        if tokenizer is None:
            source, tokenizer = name, own
        apart = files.other_added_tokens(tokenizer, own)
        if apart is None:
            raise ModelError(f"{name} has another tokenizer than {server.model}; take a drafter of its family.")
        note = files.note_of(apart)
    elif tokenizer is None:
        raise ModelError(
            f"{drafting.name} needs the tokenizer of {server.model}, and {server.root}, the server's own "
            "model, is not available here; name a drafter that is a model of its family."
        )
    size = int(files.config_of(source).get_text_config().vocab_size)
    server = check_target(server, tokenizer, size)
    context, ends = server.context - 1, _ends(server.root, name, tokenizer)  # it writes one more
    if isinstance(drafting, str):
        if place.type == "cpu":
            fit_cores()
        arrival = Arrival(files.short_name(name), (0.1, 1.0), tell)
        model = files.loaded_model(name, place, dtype_of(dtype, place, [name]), arrival)
        files.check_outputs(name, own, files.output_size(model))
        context = min(context, files.context_of(model))
        kept = None if trimmed is None else _kept_tokens(trimmed, tokenizer, min(size, files.output_size(model)), ends)
        drafter = Loaded(model, files.short_name(name), files.revision_of(name), note=note)
        part = _by_model(drafter, size, kept, cuda_graphs=cuda_graphs)
    else:
        part = _without_model(drafting, tokenizer, size, place)
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
        processor=f"{files.processor_of(place)}; target on a vLLM server",
        place=place,
    )


def _ends(root: str, drafter: str, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Return the tokens that end a served model's texts, from its own settings if available, or the drafter's."""
    for name in (root, drafter):
        with suppress(OSError, ValueError):
            configured = GenerationConfig.from_pretrained(name, local_files_only=True).eos_token_id
            ids = configured if isinstance(configured, list) else [configured, tokenizer.eos_token_id]
            return frozenset(int(token) for token in ids if token is not None)
    return frozenset() if tokenizer.eos_token_id is None else frozenset({int(tokenizer.eos_token_id)})


def _read_head(wanted: Eagle3, target: str, config: PreTrainedConfig, folders: bool) -> Checkpoint:
    """Return the head for the target of this name and configuration. Raises ModelError."""
    if not wanted.head or (folders and names.is_place(wanted.head)):
        folder = Path(wanted.head) if wanted.head else demo.head_for(target) or demo.EAGLE3
        named = wanted if not wanted.head else replace(wanted, head=files.short_name(wanted.head))
    else:
        with files.refusals(wanted.head, "head"):
            folder = files.fetched(wanted.head, ["config.json", "*.safetensors"])
        named = wanted
        if not list(folder.glob("*.safetensors")):
            fetch = f"hf download {wanted.head} --local-dir DIR"
            raise ModelError(files.no_safetensors(wanted.head, f"Fetch it ({fetch}), convert it in DIR: {CONVERT}"))
    config = config.get_text_config()
    shape = TargetShape(target, config.hidden_size, config.num_hidden_layers, config.vocab_size)
    return replace(read_checkpoint(folder, shape), name=named.name, revision=files.revision_of(str(folder)))


def _with_head(target: PreTrainedModel, head: Checkpoint, size: int, kept: Tensor | None) -> DrafterPart:
    """Return a head that reads inputs of the target's layers, and shares the tensors that it lacks. It drafts the
    tokens of its vocabulary that are `kept`, int64 ascending; None for all. Raises SettingError if it has none."""
    place = target.device
    own = {name: each.to(place, target.dtype) for name, each in head.tensors.items()}
    shared = {
        "embed_tokens.weight": target.get_input_embeddings().weight,
        "lm_head.weight": target.get_output_embeddings().weight[:size],
    }
    vocabulary = None if head.vocabulary is None else head.vocabulary.to(place)
    if kept is not None:
        tokens = rows = kept.to(place)
        if vocabulary is not None:
            rows = torch.isin(vocabulary, tokens).nonzero()[:, 0]  # of the head
            tokens = vocabulary[rows]
        if not len(rows):
            raise SettingError(f"{head.name} has none of the {len(kept):,} tokens that are to be kept; keep more.")
        vocabulary, own["lm_head.weight"] = tokens, (shared | own)["lm_head.weight"][rows]
    weights = HeadWeights(
        shared | own,
        head.shape.heads,
        head.shape.epsilon,
        head.rotary,
        normed_residual=head.normed_residual,
        normed_output=head.normed_output,
    )
    readings = head.reading, *head.others
    opened = lambda settings: Eagle3Drafter(EagleNetwork(weights), readings, vocabulary, size, settings)  # noqa: E731
    return Part(head.name, opened, head.revision, note=head.note, drafts_trees=True)


def _kept_tokens(wanted: Trimmed, tokenizer: PreTrainedTokenizerBase, size: int, ends: Iterable[int]) -> Tensor:
    """Return the tokens of a trimmed drafter, int64 [m], ascending, out of `size`, those that end a text included.
    Raises BadInput if its text cannot be read, and for more tokens than there are."""
    text = _tokens_of(wanted.text, tokenizer, size)[0] if wanted.text else []
    return most_frequent(text, wanted.m, size, ends)


def _without_model(
    wanted: NamedDrafter, tokenizer: PreTrainedTokenizerBase, size: int, place: torch.device
) -> DrafterPart:
    """Return a drafter of text alone for a target of `size` tokens. Raises BadInput if its file cannot be read."""
    if isinstance(wanted, Ngram):
        return Part(wanted.name, lambda _: NgramDrafter(wanted.n, place), wanted.name)
    tokens, revision = _tokens_of(wanted.source, tokenizer, size) if wanted.source else ([], wanted.name)
    before = TextBefore(tokens)
    if isinstance(wanted, Suffix):
        return Part(wanted.name, lambda _: SuffixDrafter(wanted.n, before, place), revision)
    return Part(wanted.name, lambda _: TrigramDrafter(before, place), revision)


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
