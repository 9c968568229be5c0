"""Drafting models of the target's vocabulary, and models that share most of another model's weights.

The target without some layers, skipped in the middle or after an early exit, drafts for itself: Zhang et al. 2023,
'Draft & Verify' (arXiv 2309.08168) and Xia et al. 2024, 'SWIFT' (arXiv 2410.06916) skip layers without training;
Elhoushi et al. 2024, 'LayerSkip' (arXiv 2404.16710) exit early, with the target's last norm and head.

A head that scores only the most frequent tokens makes a draft step multiply less: Zhao et al. 2025, 'FR-Spec' (arXiv
2502.14856), rank tokens by their frequency in a corpus; Goel et al. 2025, 'VocabTrim' (arXiv 2506.22694), by their
frequency in the target's own text. Nothing is trained: rows of the head are left out, so q is the drafter's law
restricted to the remaining tokens, and lossless rules stay lossless.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from mars_viz.errors import ModelError, SettingError
from mars_viz.randomness import Purpose, round_uniforms
from mars_viz.run import Settings
from mars_viz.shapes import LONGEST_PATH, shape_named
from mars_viz.speculators import model_files as files
from mars_viz.speculators.backend import Part
from mars_viz.speculators.draft import Draft, Drafter
from mars_viz.speculators.drafters import Layers, Model, Trimmed
from mars_viz.speculators.drafters.token_trees import Level, tree_drafted
from mars_viz.speculators.drafters.universal import by_text
from mars_viz.speculators.networks import Network, Opener, opener
from mars_viz.speculators.networks.base import TreeMask, layers_of
from mars_viz.speculators.sampling import best, draw, law, on_device
from mars_viz.speculators.site import DrafterPart, Loaded, Origin, Ready, Site
from mars_viz.speculators.targets import CachedModel
from mars_viz.walk import Prefix


@dataclass(frozen=True, slots=True)
class Picking:
    """Picks the next token from its logits. Equal if it picks in the same way."""

    law: Settings  # temperature, top-p and top-k; the rest is at its default
    vocabulary: Tensor | None = field(default=None, compare=False)
    """int64 [V']; the target's token of each logit, ascending; None if they are the same."""
    tokens: int = 0  # V' with such a vocabulary; constant for one drafter

    @classmethod
    def by(cls, settings: Settings, vocabulary: Tensor | None = None) -> Picking:
        return cls(settings.law, vocabulary, 0 if vocabulary is None else len(vocabulary))

    def __call__(self, logits: Tensor, uniforms: Tensor | None) -> Tensor:
        """Return token ids [B, 1]: the largest of the logits [B, 1, V'], or the draws of the uniforms [B, 1] from their
        law."""
        picked = best(logits) if uniforms is None else draw(law(logits, self.law), uniforms)
        return picked if self.vocabulary is None else self.vocabulary[picked]


class ModelDrafter(Drafter):
    """Drafts greedily at temperature 0, and by keyed draws from its law above. A tree has the likeliest nodes at any
    temperature, unless its shape has drawn paths."""

    def __init__(
        self,
        network: Network,
        settings: Settings,
        vocabulary: Tensor | None = None,
        readable: tuple[int, int] | None = None,
    ):
        """`vocabulary` int64 [V'], ascending, are the target's ids of the tokens that the network scores; None for the
        first V'. `readable` are the number of ids that it reads, and the replacement of others; None for all."""
        self._model, self._readable = CachedModel(network), readable
        self._settings, self.vocabulary = settings, vocabulary
        self._pick = Picking.by(settings, vocabulary)
        self._shape = shape_named(settings.tree)

    def prefill(self, prompts: Sequence[Prefix]) -> None:
        self._model.prefill(self._read(prompts))

    def draft(self, prefixes: Sequence[Prefix], count: int) -> Draft:
        """Return `count` tokens after each prefix. After a fully accepted block two tokens are unread, because the last
        one is not read while drafting."""
        prefixes = self._read(prefixes)
        if not self._shape.is_chain:
            return self._tree(prefixes, count)
        ids = self._model.rewind(prefixes)
        uniforms = keyed_uniforms(self._settings, [len(prefix) for prefix in prefixes], count, self._model.device)
        if not count:
            return Draft(ids[:, :0])
        return Draft(*self._model.chain(ids, count, self._pick, uniforms), self.vocabulary)

    def _tree(self, prefixes: Sequence[Prefix], nodes: int) -> Draft:
        """Return a tree after each prefix; its nodes are not cached."""
        first = self._model.logits(self._model.rewind(prefixes, LONGEST_PATH), rows=1)[:, 0]
        lengths = [*map(len, prefixes)]

        def deeper(level: Level) -> Tensor:
            b, width = level.ids.shape
            mask = TreeMask.of(lengths, level.sees, [[level.depth - 1] * width] * b, self._model.device)
            return self._model.logits(level.ids, width, mask)

        return tree_drafted(first, deeper, self._shape, self._settings, lengths, nodes, self.vocabulary)

    def _read(self, prefixes: Sequence[Prefix]) -> Sequence[Prefix]:
        if self._readable is None:
            return prefixes
        count, other = self._readable
        return [tuple(token if token < count else other for token in prefix) for prefix in prefixes]

    def observe(self, drafted: Sequence[Sequence[int]]) -> None:
        self._model.observe([tokens[:-1] if self._shape.is_chain else () for tokens in drafted])


def keyed_uniforms(settings: Settings, starts: Sequence[int], count: int, device: torch.device) -> Tensor | None:
    """Return the draws of drafts that begin at these positions, float64 [B, count]; None at temperature 0."""
    if settings.temperature == 0:
        return None
    keyed = np.stack([round_uniforms(settings.seed, start, Purpose.DRAFT, count) for start in starts])
    return on_device(keyed, device)


def with_layers(model: PreTrainedModel, kept: Sequence[int]) -> PreTrainedModel:
    """Return the model with only these of its layers, counted from 0, in this order; all weights are shared. Raises
    ModelError for a model with unknown layers."""
    shared = {id(each): each for each in chain(model.parameters(), model.buffers())}
    fewer: PreTrainedModel = copy.deepcopy(model, shared)
    name, layers = layers_of(fewer)
    chosen = nn.ModuleList([layers[i] for i in kept])
    for place, layer in enumerate(chosen):
        for part in layer.modules():
            if hasattr(part, "layer_idx"):
                part.layer_idx = place  # type: ignore[assignment]  # of its cache
    fewer.set_submodule(name, chosen)
    config = fewer.config.get_text_config()
    config.num_hidden_layers = len(chosen)
    if kinds := vars(config).get("layer_types"):  # others derive theirs from the number of layers
        config.layer_types = [kinds[i] for i in kept]
    try:
        with torch.inference_mode():
            fewer(input_ids=torch.zeros(1, 2, dtype=torch.int64, device=model.device), use_cache=False)
    except (RuntimeError, ValueError, IndexError) as error:  # such as inputs for each of all the layers
        raise ModelError(
            f"No layers of {model.config.model_type} can be left out here; take another drafter."
        ) from error
    return fewer


def most_frequent(text: Iterable[int], count: int, size: int, always: Iterable[int]) -> Tensor:
    """Return `count` of `size` tokens, ascending, int64: those in `always`, then the text's most frequent, then lowest
    ids. Raises SettingError if that is all of them, or fewer than those in `always`."""
    always = sorted(each for each in always if each < size)
    if not len(always) < count < size:
        raise SettingError(
            f"A vocabulary of {size:,} tokens cannot be trimmed to {count:,}; take m from {len(always) + 1:,} to "
            f"{size - 1:,}."
        )
    often = (token for token, _ in sorted(Counter(text).items(), key=lambda each: (-each[1], each[0])) if token < size)
    kept = dict.fromkeys(chain(always, often, range(size)))  # in this order, each once
    return torch.tensor(sorted(list(kept)[:count]), dtype=torch.int64)


def with_vocabulary(model: PreTrainedModel, vocabulary: Tensor) -> PreTrainedModel:
    """Return the model with a head of only these tokens, [V']; everything else is shared."""
    shared = {id(each): each for each in chain(model.parameters(), model.buffers())}
    trimmed: PreTrainedModel = copy.deepcopy(model, shared)
    head = model.get_output_embeddings()
    rows = vocabulary.to(head.weight.device)
    kept = nn.Linear(head.in_features, len(rows), bias=False, device="meta")
    kept.weight = nn.Parameter(head.weight[rows].clone(), requires_grad=False)
    if getattr(head, "bias", None) is not None:
        kept.bias = nn.Parameter(head.bias[rows].clone(), requires_grad=False)
    trimmed.config.tie_word_embeddings = False
    trimmed.set_output_embeddings(kept)
    return trimmed


def ready(named: Model | Layers, _: Origin) -> Ready:
    """Return the function that drafts with the site's model, or with the target's layers."""

    def load(site: Site) -> DrafterPart:
        if isinstance(named, Layers):
            model = site.inside(named.name)
            fewer = with_layers(model, named.kept(len(layers_of(model)[1])))
            return _loaded_drafter(Loaded(fewer, named.name, site.target.revision), site)
        assert site.drafting is not None, "a model is loaded with the target"
        return (_loaded_drafter if site.drafting.tokenizer is None else by_text)(site.drafting, site)

    return load


def _loaded_drafter(drafter: Loaded, site: Site) -> DrafterPart:
    model = drafter.model if site.kept is None else with_vocabulary(drafter.model, site.kept)
    passes = opener(model, min(site.size, files.output_size(model)), cuda_graphs=site.cuda_graphs)
    kept, readable = None if site.kept is None else site.kept.to(model.device), files.readable_ids(model)
    wider = readable if readable[0] < site.size else None
    return replace(model_drafter(passes, drafter.name, drafter.revision, kept, wider), note=drafter.note)


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


def trimmed(named: Trimmed, whole: Ready) -> Ready:
    """Return the function that loads a drafter for the most frequent tokens only."""

    def load(site: Site) -> DrafterPart:
        models = [site.target.model] * (site.target.passes is not None)  # a server's model is not here
        models += [site.drafting.model] if site.drafting else []
        outputs = min([site.size, *map(files.output_size, models)])
        text = [token for token in site.read(named.text)[0] if token < outputs]
        part = whole(replace(site, kept=most_frequent(text, named.m, outputs, site.ends)))
        return replace(part, name=replace(named, of=named.of and part.name).name)

    return load
