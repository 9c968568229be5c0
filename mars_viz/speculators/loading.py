"""Loading of a target and a drafter, with errors that name a remedy.

Safetensors and GGUF only, and no code from a model's repository.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import PurePath

from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from mars_viz import demo
from mars_viz.errors import BadInput, ModelError
from mars_viz.speculators import model_files as files
from mars_viz.speculators import names
from mars_viz.speculators.backend import Backend, Part
from mars_viz.speculators.devices import DeviceMap, check_fit, dtype_of, fit_cores, layout, place_of
from mars_viz.speculators.drafters import Mixed, Model, NamedDrafter, Trimmed
from mars_viz.speculators.drafters.model import trimmed
from mars_viz.speculators.drafters.text import mixed
from mars_viz.speculators.model_files import Arrival
from mars_viz.speculators.networks import Opener, opener
from mars_viz.speculators.site import Loaded, Origin, Ready, Site, TargetPart
from mars_viz.speculators.targets import ModelTarget, VllmTarget, check_target
from mars_viz.speculators.token_bytes import TransformersTokenizer
from mars_viz.speculators.vllm_http import Server

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
        to_load.append(drafting.head or str(demo.DRAFTER))
    spans = ((0.1, 0.7), (0.7, 1.0))
    arrivals = [Arrival(files.short_name(name), span, tell) for name, span in zip(to_load, spans, strict=False)]
    tokenizers = [files.tokenizer_of(name, arrival.bar) for name, arrival in zip(to_load, arrivals, strict=True)]
    own = tokenizers[:]  # of the models to load
    if server:
        with suppress(BadInput):
            tokenizers.insert(0, files.tokenizer_of(server.root))
        if not tokenizers:
            raise ModelError(
                f"{drafting.name} needs the tokenizer of {server.model}, and {server.root}, the server's own model, is "
                "not available here; name a drafter that is a model of its family."
            )
        owner = owner if len(tokenizers) > len(to_load) else to_load[0]
    apart = files.other_added_tokens(tokenizers[0], tokenizers[-1]) if isinstance(drafting, Model) else ""
    if apart is None and (server or pair.drafter != drafting):
        raise ModelError(
            f"{to_load[-1]} has another tokenizer than {owner}, so it can only draft by text, for a target of this "
            "machine, with its whole vocabulary and by itself; take a drafter of the target's family."
        )
    ready = _ready(pair, Origin(files.short_name(owner), partial(files.config_of, owner), files.is_local(owner)))
    kind = dtype_of(dtype, place, to_load)
    check_fit(to_load if device_map is None else to_load[1:], place, kind)
    loaded: list[Loaded] = []
    for name, tokenizer, arrival in zip(to_load, own, arrivals, strict=True):
        there, spread = (place_of(loaded[0].model), None) if loaded else (place, device_map)
        loaded.append(_loaded(name, tokenizer, partial(files.loaded_model, name, there, kind, arrival, spread)))
    model = None
    if isinstance(drafting, Model):
        note = "; ".join(filter(None, (loaded[-1].note, apart)))
        model = replace(loaded[-1], note=note, tokenizer=tokenizers[-1] if apart is None else None)
    if server is None:
        return backend_of(tokenizers[0], loaded[0], model or drafting, ready=ready, cuda_graphs=cuda_graphs)
    size = int(files.config_of(owner).get_text_config().vocab_size)
    checked, ends = check_target(server, tokenizers[0], size), _ends([server.root, *to_load], tokenizers[0])
    part: TargetPart = Part(
        PurePath(files.short_name(server.model)).name if server.model.startswith("/") else server.model,
        lambda: VllmTarget(checked, place),
        f"vLLM {server.version}",
        note="a vLLM server reads a text whole in every round, since it gives a prompt's logits without its cache",
    )
    site = Site(part, tokenizers[0], ends, size, place, cuda_graphs, model)
    context = min([server.context - 1, *(files.context_of(each.model) for each in loaded)])  # it writes one more
    return _backend(site, ready, context, "as served", f"{files.processor_of(place)}; target on a vLLM server")


def _ready(pair: names.Pair, target: Origin) -> Ready:
    """Return the function that loads the pair's drafter, after whatever can be refused before the weights are read."""
    ready: Ready = pair.whole.ready(target)
    if isinstance(pair.main, Trimmed):
        ready = trimmed(pair.main, ready)
    if isinstance(pair.drafter, Mixed):
        first, second = pair.drafter.first.ready(target), ready
        return lambda site: mixed(first(site), second(site))
    return ready


def _loaded(name: str, tokenizer: PreTrainedTokenizerBase, read: Callable[[], PreTrainedModel]) -> Loaded:
    """Read a model while its weights are hashed. Raises BadInput if its tokenizer has tokens that it does not score."""
    with ThreadPoolExecutor(1) as background:
        local = background.submit(files.revision_of, name) if files.is_local(name) else None
        model = read()
        revision = files.revision_of(name) if local is None else local.result()
    files.check_outputs(name, tokenizer, files.output_size(model))
    return Loaded(model, files.short_name(name), revision, note=files.gguf_note(name, model))


def backend_of(
    tokenizer: PreTrainedTokenizerBase,
    target: Loaded,
    drafter: Loaded | NamedDrafter,
    *,
    ready: Ready | None = None,
    eos_ids: frozenset[int] | None = None,
    cuda_graphs: bool = True,
) -> Backend:
    """Return a backend of loaded models, with a drafter that is one of them, or that `ready` loads; None loads the
    named one. `eos_ids` None takes the end-of-text tokens of the target's configuration."""
    model = drafter if isinstance(drafter, Loaded) else None
    if ready is None:
        named = drafter if isinstance(drafter, NamedDrafter) else Model()
        ready = _ready(names.Pair(target.name, named), Origin(target.name, lambda: target.model.config))
    models = [target.model, *([model.model] if model and model.tokenizer is None else [])]
    outputs, place = [files.output_size(each) for each in models], place_of(target.model)
    size = (
        min(outputs) if files.vocabulary_end(tokenizer) <= min(outputs) else outputs[0]
    )  # padding alone may be cut off
    ends = files.eos_ids_of(target.model, tokenizer) if eos_ids is None else eos_ids
    part = model_target(opener(target.model, size, cuda_graphs=cuda_graphs), target.name, target.revision)
    part = replace(part, note="; ".join(filter(None, (target.note, layout(target.model)))))
    site, dtype = Site(part, tokenizer, ends, size, place, cuda_graphs, model), str(target.model.dtype)
    context, processor = min(map(files.context_of, models)), files.processor_of(place)
    return _backend(site, ready, context, dtype.removeprefix("torch."), processor)


def _backend(site: Site, ready: Ready, context: int, dtype: str, processor: str) -> Backend:
    return Backend(
        target=site.target,
        drafter=ready(site),
        tokenizer=TransformersTokenizer(site.tokenizer, site.target.name),
        vocabulary_size=site.size,
        context=context,
        eos_ids=site.ends,
        dtype=dtype,
        processor=processor,
        place=site.place,
    )


def model_target(passes: Opener, name: str, revision: str = "") -> TargetPart:
    """Return a target that uses these forward passes."""
    return Part(name, lambda: ModelTarget(passes()), revision, passes.lack, passes=passes)


def _ends(sources: Iterable[str], tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Return the tokens that end a served model's texts, from the first of these models with settings here."""
    for name in sources:
        with suppress(OSError, ValueError):
            configured = GenerationConfig.from_pretrained(name, local_files_only=True).eos_token_id
            ids = configured if isinstance(configured, list) else [configured, tokenizer.eos_token_id]
            return frozenset(int(token) for token in ids if token is not None)
    return frozenset() if tokenizer.eos_token_id is None else frozenset({int(tokenizer.eos_token_id)})
