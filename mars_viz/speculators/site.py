"""A loaded model, and the target that a drafter is loaded for, before and after its weights are read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from mars_viz.bounds import shortened
from mars_viz.errors import ModelError, SettingError
from mars_viz.run import Settings
from mars_viz.speculators.backend import Part
from mars_viz.speculators.devices import is_spread
from mars_viz.speculators.draft import Drafter, Target

LARGEST_TEXT = 64 << 20  # bytes of the text that a drafter is given, at most
DrafterPart = Part[Callable[[Settings], Drafter]]
TargetPart = Part[Callable[[], Target]]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A loaded model."""

    model: PreTrainedModel  # on its device
    name: str  # hub id, or folder name
    revision: str = ""  # commit on the hub, or the start of the weights' SHA-256
    tokenizer: PreTrainedTokenizerBase | None = None  # of a drafter that drafts by text
    note: str = ""  # see `Part.note`


class Origin(NamedTuple):
    """A target before its weights are read."""

    name: str  # hub id, or folder name
    config: Callable[[], PreTrainedConfig]
    is_here: bool = True  # False if its folder may be incomplete before the weights are fetched


@dataclass(frozen=True, slots=True)
class Site:
    """A target that is ready to be opened."""

    target: TargetPart
    tokenizer: PreTrainedTokenizerBase
    ends: frozenset[int]  # tokens that end a text
    size: int  # number of tokens that are scored
    place: torch.device  # where drafted tokens are expected
    cuda_graphs: bool
    drafting: Loaded | None = None  # the drafter, if it is a model
    kept: Tensor | None = None  # int64, ascending; the tokens that may be drafted; None for all

    def inside(self, drafter: str) -> PreTrainedModel:
        """Return the target's model for a drafter that reads hidden states. Raises ModelError if it is spread."""
        model: PreTrainedModel = self.target.model
        if is_spread(model):
            raise ModelError(
                f"{drafter} reads hidden states of the target, which is spread over several devices; take a drafter "
                "that is a model, or ngram:n=3."
            )
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
            raise SettingError(f"{shortened(file)} cannot be read ({error.args[-1]}). Name a text in UTF-8.") from error
        if len(data) > LARGEST_TEXT:
            raise SettingError(f"{shortened(file)} has more than {LARGEST_TEXT >> 20} MB; give the drafter less text.")
        tokens = [token for token in self.tokenizer(text, add_special_tokens=False)["input_ids"] if token < self.size]
        return tokens, hashlib.sha256(data).hexdigest()[:12]


Ready = Callable[[Site], DrafterPart]
"""Loads a drafter. Raises BadInput with a remedy."""
