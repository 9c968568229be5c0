"""Drafting models of the target's vocabulary, and models that share most of another model's weights.

The target without some layers, skipped in the middle or after an early exit, drafts for itself: Zhang et al. 2023,
'Draft & Verify' (arXiv 2309.08168) and Xia et al. 2024, 'SWIFT' (arXiv 2410.06916) skip layers without training;
Elhoushi et al. 2024, 'LayerSkip' (arXiv 2404.16710) exit early, with the target's last norm and head.

A head that scores only the most frequent tokens makes a draft step multiply less: Zhao et al. 2025, 'FR-Spec' (arXiv
2502.14856), rank tokens by their frequency in a corpus; Goel et al. 2025, 'VocabTrim' (arXiv 2506.22694), by their
frequency in the target's own text. Nothing is trained: rows of the head are left out, so q is the drafter's law
restricted to the remaining tokens, and lossless rules stay lossless.

An EAGLE-3 head (Li et al. 2025, arXiv 2503.01840) drafts from the inputs of some of the target's layers, and layers for
multi-token prediction (DeepSeek-AI 2024, arXiv 2412.19437) from its last state. Their caches keep only rows with the
target's own states; rows with the head's own states are overwritten.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from mars_viz.errors import ModelError, SettingError
from mars_viz.randomness import Purpose, round_uniforms
from mars_viz.run import Settings
from mars_viz.shapes import LONGEST_PATH, shape_named
from mars_viz.speculators.devices import sent
from mars_viz.speculators.draft import Draft, Drafter, Target, rows_at
from mars_viz.speculators.drafters.eagle3_checkpoint import Reading
from mars_viz.speculators.drafters.token_trees import Level, tree_drafted
from mars_viz.speculators.networks import Network
from mars_viz.speculators.networks.base import TreeMask, layers_of
from mars_viz.speculators.networks.eagle3_head import HeadNetwork
from mars_viz.speculators.sampling import best, draw, law, on_device
from mars_viz.speculators.targets import UNREAD, CachedModel, ModelTarget, PrefixRows
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
        """Return the picking for these settings."""
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
        """Read the prompts."""
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
        """Receive the drafted tokens once they are on the host; the last token of a chain was never read."""
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


ALONE = 32
"""New rows of a text above which they are read separately, so that other texts need no such padding."""


class HeadDrafter(Drafter):
    """Drafts greedily at temperature 0, and by keyed draws from its law above.

    A tree has the likeliest nodes at any temperature, unless its shape has drawn paths. A text of n tokens has n - 1
    rows, the last of which predicts the next token; a text of a single token is read as if it were there twice.
    """

    reads_target = True

    def __init__(self, network: HeadNetwork, layers: tuple[int, ...], vocabulary: Tensor | None, settings: Settings):
        """Read these `layers` of the target; see `LayerInputs`. `vocabulary`, int64 [Vd], ascending, are the target's
        ids of the head's tokens; None if they are the same."""
        self.layers = layers
        self._network, self.vocabulary = network, vocabulary
        self._settings, self._pick = settings, Picking.by(settings, vocabulary)
        self._shape = shape_named(settings.tree)
        self._rows = PrefixRows(network.copy)
        self._target: ModelTarget | None = None
        self.device = network.device

    def follow(self, target: Target) -> None:
        """Draft for this target. Raises TypeError for one that cannot keep its layers' inputs."""
        if not isinstance(target, ModelTarget):
            raise TypeError("a head needs a target that keeps what enters its layers")
        target.keep(self.layers)
        self._target = target

    def prefill(self, prompts: Sequence[Prefix]) -> None:
        """Read the prompts, which the target has read."""
        if not prompts:
            return
        cached = self._rows.settle([(*prompt, UNREAD) for prompt in prompts])
        self._read(prompts, cached, prompts)
        self._rows.note(prompts)

    def draft(self, prefixes: Sequence[Prefix], count: int) -> Draft:
        """Return `count` tokens after each prefix."""
        if not count:
            return Draft(torch.zeros(len(prefixes), 0, dtype=torch.int64, device=self.device))
        starts = [len(prefix) for prefix in prefixes]
        prefixes = [prefix if len(prefix) > 1 else prefix * 2 for prefix in prefixes]
        cached = self._rows.settle(prefixes)
        states = self._read(prefixes, cached, [prefix[:-1] for prefix in prefixes])  # [B, E]
        lengths, slots = [len(prefix) for prefix in prefixes], self._rows.slots
        if not self._shape.is_chain:
            return self._tree(starts, lengths, states, count)
        uniforms = keyed_uniforms(self._settings, starts, count, self.device)
        tokens, rows = [], []
        for step in range(count):
            logits = self._network.logits(states, step).unsqueeze(1)  # [B, 1, Vd]
            luck = None if uniforms is None else uniforms[:, step, None]
            ids = self._pick(logits, luck)
            tokens.append(ids)
            rows.append(logits)
            if step + 1 < count:
                places = [length - 1 + step for length in lengths]
                states = self._network.read(ids, states.unsqueeze(1), places, slots, None, step + 1)[:, 0]
        return Draft(torch.cat(tokens, 1), torch.cat(rows, 1), self.vocabulary)

    def _tree(self, starts: Sequence[int], lengths: Sequence[int], made: Tensor, nodes: int) -> Draft:
        """Return trees that begin at `starts`, from the outputs [B, E] for the last row of texts of these lengths."""
        begins, states = [length - 1 for length in lengths], made.unsqueeze(1)  # [B, k, E] of the level before

        def deeper(level: Level) -> Tensor:
            nonlocal states
            b, k = level.ids.shape
            above = rows_at(states, sent(level.parents, self.device))
            mask = TreeMask.of(begins, level.sees, [[level.depth - 1] * k] * b, self.device)
            places = [begin + len(level.sees[0][0]) - k for begin in begins]
            states = self._network.read(level.ids, above, places, self._rows.slots, mask, level.depth)
            return self._network.logits(states.flatten(0, 1), level.depth).view(b, k, -1)

        first = self._network.logits(made)
        return tree_drafted(first, deeper, self._shape, self._settings, starts, nodes, self.vocabulary)

    def _read(self, texts: Sequence[Prefix], known: Sequence[int], read: Sequence[Prefix]) -> Tensor:
        """Compute the missing rows of the texts, of which `known` tokens are cached; `read` is the part the target has
        read. Returns the outputs for each text's last row, [B, E]."""
        assert self._target is not None, "a drafter follows a target before it drafts"
        starts, slots = [max(0, cached - 1) for cached in known], self._rows.slots  # row j is that of token j + 1
        ids, states = [], []
        for i, features in enumerate(self._target.inputs(read, starts)):
            new = sent([texts[i][starts[i] + 1 :]], self.device)  # [1, n]
            states_new = self._network.states(features[None, : new.shape[1]])  # [1, n, H]
            if new.shape[1] > ALONE:
                self._network.read(new[:, :-1], states_new[:, :-1], starts[i : i + 1], slots[i : i + 1])
                starts[i], new, states_new = starts[i] + new.shape[1] - 1, new[:, -1:], states_new[:, -1:]
            ids.append(new[0])
            states.append(states_new[0])
        lengths = [len(each) for each in ids]
        if not any(lengths):
            return torch.cat(states)
        # padding behind a text's end is never seen
        tokens, inputs = pad_sequence(ids, batch_first=True), pad_sequence(states, batch_first=True)
        outputs = self._network.read(tokens, inputs, starts, slots)
        return outputs[range(len(texts)), [length - 1 for length in lengths]]


class Eagle3Drafter(HeadDrafter):
    """Drafts with an EAGLE-3 head."""

    def __init__(
        self, network: HeadNetwork, readings: Sequence[Reading], vocabulary: Tensor | None, settings: Settings
    ):
        """Read the first of the target's `readings`."""
        super().__init__(network, readings[0].layers, vocabulary, settings)
        self.readings = tuple(readings)
