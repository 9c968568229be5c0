"""Drafters from what a user named: a model, the target with layers left out, an EAGLE-3 head, or text alone.

Knows drafters and where they come from; loads no target.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from mars_viz import demo
from mars_viz.bounds import shortened
from mars_viz.errors import ModelError, SettingError
from mars_viz.run import Settings
from mars_viz.speculators.backend import Part
from mars_viz.speculators.draft import Drafter, Spent
from mars_viz.speculators.drafter_names import Eagle3, Layers, NamedDrafter, Ngram, Suffix, Trimmed
from mars_viz.speculators.drafters.eagle3 import Eagle3Drafter
from mars_viz.speculators.drafters.eagle3_checkpoint import CONVERT, Checkpoint, read_checkpoint
from mars_viz.speculators.drafters.eagle3_shapes import TargetShape
from mars_viz.speculators.drafters.layers import count_of, with_layers
from mars_viz.speculators.drafters.model import ModelDrafter
from mars_viz.speculators.drafters.ngram import NgramDrafter
from mars_viz.speculators.drafters.suffix import SuffixDrafter
from mars_viz.speculators.drafters.text import TextBefore
from mars_viz.speculators.drafters.translation import Translation
from mars_viz.speculators.drafters.trigram import TrigramDrafter
from mars_viz.speculators.drafters.trimmed import most_frequent, with_vocabulary
from mars_viz.speculators.drafters.universal import UniversalDrafter
from mars_viz.speculators.model_files import Loaded, cannot_load, fetched, no_safetensors, revision_of, short_name
from mars_viz.speculators.names import is_place
from mars_viz.speculators.networks import Opener
from mars_viz.speculators.networks.eagle3_head import EagleNetwork, HeadWeights
from mars_viz.speculators.networks.row_invariance import Heads

LARGEST_TEXT = 64 << 20
"""Bytes of the text that a drafter is given, at most."""


@dataclass(frozen=True, slots=True)
class LoadedHead:
    """An EAGLE-3 head that is read."""

    checkpoint: Checkpoint
    """The head."""
    name: str
    """'eagle3:' and its hub id or folder's name; 'eagle3' for the built-in one."""
    revision: str = ""
    """Commit on the hub, or the start of the weights' SHA-256."""


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
        vocabulary, rows = _both(vocabulary, kept.to(place), head.name)
        own["lm_head.weight"] = (shared | own)["lm_head.weight"][rows]
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


def _both(own: Tensor | None, kept: Tensor, head: str) -> tuple[Tensor, Tensor]:
    """int64; the tokens that a head has and that are kept, and their rows in the head. Raises SettingError."""
    if own is None:
        return kept, kept
    rows = torch.isin(own, kept).nonzero()[:, 0]
    if not len(rows):
        raise SettingError(f"{head} has none of the {len(kept):,} tokens that are to be kept; keep more.")
    return own[rows], rows


def kept_tokens(wanted: Trimmed, tokenizer: PreTrainedTokenizerBase, size: int, ends: Iterable[int]) -> Tensor:
    """int64 [m], ascending; what a trimmed drafter can draft, of `size` tokens, those that end a text included. Raises
    BadInput where its text cannot be read, and for more tokens than there are."""
    text = _tokens_of(wanted.text, tokenizer, size)[0] if wanted.text else []
    return most_frequent(text, wanted.m, size, ends)


def with_fewer_tokens(drafter: Loaded, vocabulary: Tensor) -> Loaded:
    """A drafting model that scores these tokens alone."""
    return Loaded(with_vocabulary(drafter.model, vocabulary), drafter.name, drafter.revision)


def with_fewer_layers(target: Loaded, wanted: Layers) -> Loaded:
    """The target with layers left out. Raises BadInput where that cannot be done."""
    return Loaded(with_layers(target.model, wanted.kept(count_of(target.model))), wanted.name, target.revision)


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
