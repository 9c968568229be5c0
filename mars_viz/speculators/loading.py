"""Loading of a target and a drafter, with errors that name a remedy.

Safetensors and GGUF only, and no code from a model's repository.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePath

import torch
from torch import Tensor
from torch.nn.functional import embedding
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from mars_viz import demo
from mars_viz.bounds import shortened
from mars_viz.errors import BadInput, ModelError, SettingError
from mars_viz.run import Settings
from mars_viz.speculators import model_files as files
from mars_viz.speculators import names
from mars_viz.speculators.backend import Backend, Part
from mars_viz.speculators.devices import (
    DeviceMap,
    check_fit,
    dtype_of,
    fit_cores,
    inference,
    is_spread,
    layout,
    place_of,
)
from mars_viz.speculators.draft import Drafter, Spent, Target
from mars_viz.speculators.drafter_names import (
    Dflash,
    Eagle3,
    Layers,
    Mixed,
    Model,
    Mtp,
    NamedDrafter,
    Ngram,
    Suffix,
    Transformers,
    Trigram,
    Trimmed,
)
from mars_viz.speculators.drafters.dflash import BlockCheckpoint, DflashDrafter, read_block_checkpoint
from mars_viz.speculators.drafters.eagle3_checkpoint import CONVERT, Checkpoint, TargetShape, read_checkpoint
from mars_viz.speculators.drafters.hf import TransformersDrafter, assistant_model
from mars_viz.speculators.drafters.mixed import MixedDrafter
from mars_viz.speculators.drafters.model import (
    Eagle3Drafter,
    HeadDrafter,
    ModelDrafter,
    most_frequent,
    with_layers,
    with_vocabulary,
)
from mars_viz.speculators.drafters.mtp import MtpLayers, find_layers, load_heads
from mars_viz.speculators.drafters.text import NgramDrafter, SuffixDrafter, TextDrafter, TrigramDrafter
from mars_viz.speculators.drafters.universal import Translation, UniversalDrafter
from mars_viz.speculators.model_files import Arrival
from mars_viz.speculators.networks import Opener, opener
from mars_viz.speculators.networks.base import NORMED, layers_of
from mars_viz.speculators.networks.dflash import Block, BlockNetwork, BlockWeights
from mars_viz.speculators.networks.eagle3_head import EagleNetwork, HeadWeights
from mars_viz.speculators.networks.mtp_head import MtpNetwork
from mars_viz.speculators.targets import ModelTarget, VllmTarget, check_target
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
    for name in () if folders else pair.models:
        files.check_no_folder(name)
    place = files.device_named(device)
    if place.type == "cpu":
        fit_cores()
    tell(f"Asking {pair.server}" if pair.server else "Reading the tokenizers", 0.0)
    server, drafting = Server.at(pair.server) if pair.server else None, pair.whole
    owner = server.root if server else str(target or demo.TARGET)  # of the target's tokenizer and configuration
    to_load = [] if server else [owner]
    if isinstance(drafting, Model):
        to_load.append(drafting.name or str(demo.DRAFTER))
    spans = ((0.1, 0.7), (0.7, 1.0))
    arrivals = [Arrival(files.short_name(name), span, tell) for name, span in zip(to_load, spans, strict=False)]
    tokenizers = [files.tokenizer_of(name, arrival.bar) for name, arrival in zip(to_load, arrivals, strict=True)]
    if server:
        with suppress(BadInput):
            tokenizers.insert(0, files.tokenizer_of(server.root))
        if not tokenizers:
            raise ModelError(
                f"{drafting.name} needs the tokenizer of {server.model}, and {server.root}, the server's own model, is "
                "not available here; name a drafter that is a model of its family."
            )
        owner = owner if len(tokenizers) > len(to_load) else to_load[0]
    tokenizer = tokenizers[0]
    source: Loaded | Checkpoint | BlockCheckpoint | MtpLayers | NamedDrafter = drafting
    apart = files.other_added_tokens(tokenizer, tokenizers[-1]) if isinstance(drafting, Model) else ""
    if apart is None and (server or pair.drafter != pair.whole):
        raise ModelError(
            f"{to_load[-1]} has another tokenizer than {owner}, so it can only draft by text, for a target of this "
            "machine, with its whole vocabulary and by itself; take a drafter of the target's family."
        )
    if isinstance(drafting, Eagle3 | Dflash):  # refused before the target's weights are read
        source = read_head(drafting, files.short_name(owner), files.config_of(owner), folders)
    elif isinstance(drafting, Mtp) and (drafting.head or files.is_local(owner)):
        source = read_layers(drafting, files.short_name(owner), files.config_of(owner), folders)
    kind = dtype_of(dtype, place, to_load)
    check_fit(to_load if device_map is None else to_load[1:], place, kind)
    loaded: list[Loaded] = []
    for name, own, arrival in zip(to_load, tokenizers[len(tokenizers) - len(to_load) :], arrivals, strict=True):
        there, spread = (place_of(loaded[0].model), None) if loaded else (place, device_map)
        loaded.append(_loaded(name, own, partial(files.loaded_model, name, there, kind, arrival, spread)))
    if isinstance(drafting, Model):
        note = "; ".join(filter(None, (loaded[-1].note, apart)))
        source = replace(loaded[-1], note=note, tokenizer=tokenizers[-1] if apart is None else None)
    if server is None:
        return backend_of(tokenizer, loaded[0], source, pair=pair, cuda_graphs=cuda_graphs)
    size, ends = int(files.config_of(owner).get_text_config().vocab_size), _ends([server.root, *to_load], tokenizer)
    checked = check_target(server, tokenizer, size)
    name = PurePath(files.short_name(server.model)).name if server.model.startswith("/") else server.model
    note = "a vLLM server reads a text whole in every round, since it gives a prompt's logits without its cache"
    part: Part[Callable[[], Target]] = Part(
        name, lambda: VllmTarget(checked, place), f"vLLM {server.version}", note=note
    )
    site = Site(part, tokenizer, ends, size, place, cuda_graphs)
    context = min([server.context - 1, *(files.context_of(each.model) for each in loaded)])  # it writes one more
    processor = f"{files.processor_of(place)}; target on a vLLM server"
    return site.backend(source, pair, [each.model for each in loaded], context, "as served", processor)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A loaded model."""

    model: PreTrainedModel  # on its device
    name: str  # hub id, or folder name
    revision: str = ""  # commit on the hub, or the start of the weights' SHA-256
    tokenizer: PreTrainedTokenizerBase | None = None  # of a drafter that drafts by text
    note: str = ""  # see `Part.note`


def _loaded(name: str, tokenizer: PreTrainedTokenizerBase, read: Callable[[], PreTrainedModel]) -> Loaded:
    """Read a model while its weights are hashed. Raises BadInput if its tokenizer has tokens that it does not score."""
    with ThreadPoolExecutor(1) as background:
        local = background.submit(files.revision_of, name) if files.is_local(name) else None
        model = read()
        revision = files.revision_of(name) if local is None else local.result()
    files.check_outputs(name, tokenizer, files.output_size(model))
    return Loaded(model, files.short_name(name), revision, note=files.gguf_note(name, model))


@dataclass(frozen=True, slots=True)
class Site:
    """The target that a drafter is loaded for."""

    target: Part[Callable[[], Target]]
    tokenizer: PreTrainedTokenizerBase
    ends: frozenset[int]  # tokens that end a text
    size: int  # number of tokens that are scored
    place: torch.device  # where drafted tokens are expected
    cuda_graphs: bool
    kept: Tensor | None = None  # int64, ascending; the tokens that may be drafted; None for all

    def inside(self, drafter: str) -> PreTrainedModel:
        """Return the target's model for a drafter that reads hidden states. Raises ModelError if it is spread."""
        if is_spread(self.target.model):
            raise ModelError(
                f"{drafter} reads hidden states of the target, which is spread over several devices; take a drafter "
                "that is a model, or ngram:n=3."
            )
        model: PreTrainedModel = self.target.model
        return model

    def read(self, file: str) -> tuple[list[int], str]:
        """Return the tokens of a drafter's text, and the start of its SHA-256; nothing without a file. Raises
        SettingError if it cannot be read."""
        if not file:
            return [], ""
        try:
            with Path(file).open("rb") as source:
                data = source.read(LARGEST_TEXT + 1)
            text = data.decode()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingError(f"{shortened(file)} cannot be read as text ({error}). Save it as UTF-8.") from error
        if len(data) > LARGEST_TEXT:
            raise SettingError(f"{shortened(file)} has more than {LARGEST_TEXT >> 20} MB; give the drafter less text.")
        tokens = [token for token in self.tokenizer(text, add_special_tokens=False)["input_ids"] if token < self.size]
        return tokens, hashlib.sha256(data).hexdigest()[:12]

    def backend(
        self,
        source: Loaded | Checkpoint | BlockCheckpoint | MtpLayers | NamedDrafter,
        pair: names.Pair | None,
        models: Iterable[PreTrainedModel],
        context: int,
        dtype: str,
        processor: str,
    ) -> Backend:
        """Load a drafter and return it with the target. If the `pair` names it so, it is trimmed to tokens that all
        `models` score, or mixed with another."""
        site, main, mixed = self, pair and pair.main, pair and pair.drafter
        trimmed = main if isinstance(main, Trimmed) else None
        if trimmed is not None:
            outputs = min([self.size, *map(files.output_size, models)])
            text = [token for token in self.read(trimmed.text)[0] if token < outputs]
            site = replace(self, kept=most_frequent(text, trimmed.m, outputs, self.ends))
        part = load(source, site)
        if trimmed is not None:
            part = replace(part, name=replace(trimmed, of=trimmed.of and part.name).name)
        if isinstance(mixed, Mixed):
            part = _mixed(load(mixed.first, self), part)
        return Backend(
            target=self.target,
            drafter=part,
            tokenizer=TransformersTokenizer(self.tokenizer, self.target.name),
            vocabulary_size=self.size,
            context=context,
            eos_ids=self.ends,
            dtype=dtype,
            processor=processor,
            place=self.place,
        )


def backend_of(
    tokenizer: PreTrainedTokenizerBase,
    target: Loaded,
    drafter: Loaded | Checkpoint | BlockCheckpoint | MtpLayers | NamedDrafter,
    *,
    eos_ids: frozenset[int] | None = None,
    pair: names.Pair | None = None,
    cuda_graphs: bool = True,
) -> Backend:
    """Return a backend of loaded models; `eos_ids` None takes the end-of-text tokens of the target's configuration. A
    `pair` names a drafter that is trimmed or mixed."""
    by_text = isinstance(drafter, Loaded) and drafter.tokenizer is not None
    models = [each.model for each in (target, drafter) if isinstance(each, Loaded)][: 1 if by_text else 2]
    outputs, place = [files.output_size(model) for model in models], place_of(target.model)
    size = (
        min(outputs) if files.vocabulary_end(tokenizer) <= min(outputs) else outputs[0]
    )  # padding alone may be cut off
    ends = files.eos_ids_of(target.model, tokenizer) if eos_ids is None else eos_ids
    part = model_target(opener(target.model, size, cuda_graphs=cuda_graphs), target.name, target.revision)
    part = replace(part, note="; ".join(filter(None, (target.note, layout(target.model)))))
    site, dtype = Site(part, tokenizer, ends, size, place, cuda_graphs), str(target.model.dtype)
    context, processor = min(map(files.context_of, models)), files.processor_of(place)
    return site.backend(drafter, pair, models, context, dtype.removeprefix("torch."), processor)


def load(source: Loaded | Checkpoint | BlockCheckpoint | MtpLayers | NamedDrafter, site: Site) -> DrafterPart:
    """Load a drafter for a target. Raises BadInput with a remedy."""
    match source:
        case Loaded(tokenizer=None):
            model = source.model if site.kept is None else with_vocabulary(source.model, site.kept)
            passes = opener(model, min(site.size, files.output_size(model)), cuda_graphs=site.cuda_graphs)
            kept, readable = None if site.kept is None else site.kept.to(model.device), files.readable_ids(model)
            wider = readable if readable[0] < site.size else None
            part = model_drafter(passes, source.name, source.revision, kept, wider)
            return replace(part, note=source.note)
        case Loaded():
            return _by_text(source, source.tokenizer, site)
        case Checkpoint():
            return _by_head(source, site)
        case BlockCheckpoint():
            return _by_block(source, site)
        case MtpLayers():
            return _by_layers(source, site)
        case Ngram():
            return Part(source.name, lambda _: NgramDrafter(source.n, site.place, source.min or 1), source.name)
        case Suffix() | Trigram():
            tokens, revision = site.read(source.text)
            place, name = site.place, revision or source.name
            if isinstance(source, Trigram):
                return Part(source.name, lambda _: TrigramDrafter(tokens, place), name)
            n, least = source.n, source.min or 1
            return Part(source.name, lambda _: SuffixDrafter(n, tokens, place, least), name)
        case Layers():
            model = site.inside(source.name)
            fewer = with_layers(model, source.kept(len(layers_of(model)[1])))
            return load(Loaded(fewer, source.name, site.target.revision), site)
        case Transformers():
            model = site.inside(source.name)
            assistant = assistant_model(source.assistant, model) if source.assistant else None
            shared = model, assistant, source.options, site.size
            opened = lambda settings: TransformersDrafter(*shared, greedy=settings.temperature == 0)  # noqa: E731
            with inference():
                TransformersDrafter(*shared, greedy=True).draft([tuple(range(8))], 1)  # refused at once if at all
            revision = files.revision_of(source.assistant) if source.assistant else site.target.revision
            name = replace(source, head=source.head.replace(source.assistant, files.short_name(source.assistant))).name
            return Part(name, opened, revision, note="reads the whole text in every round")
        case Eagle3() | Dflash():
            config = site.inside(source.name).config
            return load(read_head(source, site.target.name, config, folders=True), site)
        case Mtp():
            config = site.inside(source.name).config
            return _by_layers(read_layers(source, site.target.name, config, folders=True), site)
    raise TypeError(source)


def _mixed(first: DrafterPart, second: DrafterPart) -> DrafterPart:
    """Return the second drafter with the first one before it."""

    def opened(settings: Settings) -> Drafter:
        text = first.open(settings)
        assert isinstance(text, TextDrafter)
        return MixedDrafter(text, second.open(settings))

    name, revision = f"{first.name}+{second.name}", f"{first.revision}+{second.revision}"
    return replace(second, name=name, revision=revision, open=opened, drafts_trees=False)


def _by_text(drafter: Loaded, own: PreTrainedTokenizerBase, site: Site) -> DrafterPart:
    """Return a drafter with a tokenizer of its own."""
    end = site.tokenizer.eos_token_id if site.tokenizer.eos_token_id in site.ends else min(site.ends, default=None)
    translation = Translation(
        TransformersTokenizer(site.tokenizer, site.target.name),
        TransformersTokenizer(own, drafter.name),
        files.context_of(drafter.model),
        files.eos_ids_of(drafter.model, own),
        end,
        (site.size, files.readable_ids(drafter.model)[0]),
    )
    outputs = min(files.output_size(drafter.model), files.vocabulary_end(own))
    passes, spent = opener(drafter.model, outputs, cuda_graphs=site.cuda_graphs), Spent()

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
    passes: Opener,
    name: str,
    revision: str = "",
    vocabulary: Tensor | None = None,
    readable: tuple[int, int] | None = None,
) -> DrafterPart:
    """Return a drafter over these forward passes; `vocabulary` and `readable` are those of `ModelDrafter`."""
    opened = lambda settings: ModelDrafter(passes(), settings, vocabulary, readable)  # noqa: E731
    return Part(name, opened, revision, passes.lack, passes=passes, drafts_trees=True)


def _ends(sources: Iterable[str], tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Return the tokens that end a served model's texts, from the first of these models with settings here."""
    for name in sources:
        with suppress(OSError, ValueError):
            configured = GenerationConfig.from_pretrained(name, local_files_only=True).eos_token_id
            ids = configured if isinstance(configured, list) else [configured, tokenizer.eos_token_id]
            return frozenset(int(token) for token in ids if token is not None)
    return frozenset() if tokenizer.eos_token_id is None else frozenset({int(tokenizer.eos_token_id)})


def read_head(
    wanted: Eagle3 | Dflash, target: str, config: PreTrainedConfig, folders: bool
) -> Checkpoint | BlockCheckpoint:
    """Return the head for the target of this name and configuration. Raises ModelError."""
    if not wanted.head or (folders and names.is_place(wanted.head)):
        own = demo.DFLASH if isinstance(wanted, Dflash) else demo.head_for(target) or demo.EAGLE3
        folder = Path(wanted.head) if wanted.head else own
        named = wanted if not wanted.head else replace(wanted, head=files.short_name(wanted.head))
    else:
        with files.refusals(wanted.head, "head"):
            folder = files.fetched(wanted.head, ["config.json", "*.safetensors"])
        named = wanted
        if not list(folder.glob("*.safetensors")):
            raise ModelError(
                f"{wanted.head} holds no *.safetensors; only that format is loaded. Fetch it (hf download "
                f"{wanted.head} --local-dir DIR), convert it in DIR, and name DIR: {CONVERT}"
            )
    config = config.get_text_config()
    shape = TargetShape(target, config.hidden_size, config.num_hidden_layers, config.vocab_size)
    checkpoint = (read_block_checkpoint if isinstance(wanted, Dflash) else read_checkpoint)(folder, shape)
    return replace(checkpoint, name=named.name, revision=files.revision_of(str(folder)))


def _by_head(head: Checkpoint, site: Site) -> DrafterPart:
    """Return a head that reads inputs of the target's layers, and shares the tensors that it lacks."""
    tensors, vocabulary = _with_shared(head, site)
    weights = HeadWeights(
        tensors,
        head.heads,
        head.epsilon,
        head.rotary,
        normed_residual=head.normed_residual,
        normed_output=head.normed_output,
    )
    opened = lambda settings: Eagle3Drafter(EagleNetwork(weights), (head.reading,), vocabulary, settings)  # noqa: E731
    return Part(head.name, opened, head.revision, note=head.note, drafts_trees=True)


def _by_block(head: BlockCheckpoint, site: Site) -> DrafterPart:
    """Return a DFlash drafter, which shares the tensors that it lacks."""
    tensors, vocabulary = _with_shared(head, site)
    embeddings, rows = tensors.pop("embed_tokens.weight"), tensors.pop("lm_head.weight")
    shared: Callable[[Tensor], Tensor] = site.inside(head.name).get_input_embeddings()  # may scale them
    embed = partial(embedding, weight=embeddings) if "embed_tokens.weight" in head.tensors else shared
    with torch.device("meta"):
        block = Block(head.config, len(head.layers))
    block.load_state_dict(tensors, assign=True)
    weights = BlockWeights(block.requires_grad_(False), head.rotary, head.sights, head.slots, head.mask, embed, rows)
    opened = lambda settings: DflashDrafter(BlockNetwork(weights), head.layers, vocabulary, settings)  # noqa: E731
    return Part(head.name, opened, head.revision, note=head.note, drafts_trees=True, longest=head.longest)


def _with_shared(head: Checkpoint | BlockCheckpoint, site: Site) -> tuple[dict[str, Tensor], Tensor | None]:
    """Return the tensors of a head, with embeddings and output rows of the target if it has none, and the target's ids
    of the tokens that it drafts: those of its vocabulary that the site keeps. Raises SettingError if there are none."""
    target, size, kept = site.inside(head.name), site.size, site.kept
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
    elif vocabulary is None and "lm_head.weight" in own:
        own["lm_head.weight"] = own["lm_head.weight"][:size]
    return shared | own, vocabulary


def read_layers(wanted: Mtp, target: str, config: PreTrainedConfig, folders: bool) -> MtpLayers:
    """Return the MTP layers of this name, else those in the folder of the target. Raises ModelError."""
    name = wanted.name
    if not wanted.head:
        built_in = demo.is_built_in(target)
        folder = demo.MTP if built_in else Path(config.name_or_path)
        name = name if built_in else target
    elif folders and names.is_place(wanted.head):
        folder, name = Path(wanted.head), replace(wanted, head=files.short_name(wanted.head)).name
    else:
        with files.refusals(wanted.head, "MTP layers"):
            folder = files.fetched(wanted.head, ["config.json", "*.safetensors"])
    found = find_layers(folder, name, config.get_text_config().num_hidden_layers)
    revision = files.revision_of(str(folder)) if wanted.head or folder == demo.MTP else ""
    return replace(found, name=name if wanted.head else wanted.name, revision=revision)


def _by_layers(found: MtpLayers, site: Site) -> DrafterPart:
    """Return MTP layers that draft the tokens that the site keeps."""
    target, vocabulary = site.inside(found.name), None if site.kept is None else site.kept.to(site.place)
    heads = load_heads(found, target, site.size)
    if vocabulary is not None:
        heads = replace(heads, outputs=[rows[vocabulary] for rows in heads.outputs])
    opened = lambda settings: HeadDrafter(MtpNetwork(heads), (NORMED,), vocabulary, settings)  # noqa: E731
    revision = found.revision or site.target.revision
    return Part(found.name, opened, revision, note=found.note, drafts_trees=True)
