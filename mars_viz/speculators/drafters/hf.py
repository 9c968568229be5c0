"""Any drafter that transformers can make, through its own candidate generators.

The options are those of `generate`, so a kind of drafter that transformers gains can be tried at once. It drafts
greedily and reads the whole text again in every round: its acceptance is right, its speed is too low. It drafts
neither trees nor draws; above temperature 0 its drafts are certain, with q = 1.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, LogitsProcessorList, PreTrainedModel
from transformers.utils import logging as transformers_logging

from mars_viz.errors import ModelError, SettingError
from mars_viz.speculators import model_files as files
from mars_viz.speculators import names
from mars_viz.speculators.backend import Part
from mars_viz.speculators.devices import inference
from mars_viz.speculators.draft import Draft, Drafter, Spent
from mars_viz.speculators.drafters import Transformers
from mars_viz.speculators.site import DrafterPart, Origin, Ready, Site
from mars_viz.walk import Prefix


class TransformersDrafter(Drafter):
    """Drafts with a new candidate generator after each prefix."""

    def __init__(
        self,
        target: PreTrainedModel,
        assistant: PreTrainedModel | None,
        options: Mapping[str, Any],
        size: int,
        *,
        greedy: bool,
    ):
        """`options` go to `generate`'s configuration, `assistant` is its assistant model. Tokens from `size` on end a
        draft. `greedy` is True at temperature 0, at which drafts have logits."""
        self._target, self._assistant, self._options = target, assistant, options
        self._size, self._greedy = size, greedy
        self.spent: Spent = Spent()

    def draft(self, prefixes: Sequence[Prefix], count: int) -> Draft:
        """Return at most `count` tokens after each prefix. Raises SettingError if transformers cannot draft so."""
        if not count:
            return Draft.of_chains([()] * len(prefixes), self._target.device)
        chains, logits = zip(*(self._continued(prefix, count) for prefix in prefixes), strict=True)
        self.spent.tokens += sum(map(len, chains))
        self.spent.passes += sum(map(len, chains))
        draft = Draft.of_chains(chains, self._target.device)
        if not self._greedy or any(each is None for each in logits):
            return draft
        rows = torch.nn.utils.rnn.pad_sequence([each for each in logits if each is not None], batch_first=True)
        return Draft(draft.tokens, rows[:, : draft.tokens.shape[1]], lengths=draft.lengths)

    def _continued(self, prefix: Prefix, count: int) -> tuple[list[int], torch.Tensor | None]:
        """Return at most `count` tokens after a prefix, and their raw logits [n, V'] if the generator has any."""
        target, assistant = self._target, self._assistant
        ids = torch.tensor([prefix], device=target.device)
        length = {"max_length": len(prefix) + count + 2, "do_sample": False, "use_cache": True}
        arguments = {"attention_mask": torch.ones_like(ids), "position_ids": torch.arange(len(prefix))[None].to(ids)}
        try:
            with _quiet():
                (assistant or target).generation_config.update(
                    num_assistant_tokens=count,
                    num_assistant_tokens_schedule="constant",
                    assistant_confidence_threshold=0.0,
                )
                config, unknown = target._prepare_generation_config(None, **self._options, **length)
                if unknown:
                    raise ValueError(f"generate has no option {', '.join(unknown)}")
                target._prepare_special_tokens(config, kwargs_has_attention_mask=True, device=ids.device)
                generator = target._get_candidate_generator(
                    config, ids, None, LogitsProcessorList(), arguments | {"use_cache": True}, assistant
                )
                needed = {}
                if generator.requires_model_outputs:
                    outputs = target(ids[:, :-1], use_cache=False, **generator.model_kwargs_overrides)
                    needed = {"model_kwargs": arguments, "model_outputs": outputs}
                    needed |= {"is_first_iteration": False, "n_last_matches": 0}
                candidates, logits = generator.get_candidates(ids, **needed)
        except (ValueError, TypeError, AttributeError, RuntimeError, KeyError, NotImplementedError) as error:
            given = ", ".join(f"{key}={value}" for key, value in self._options.items()) or "these models"
            raise SettingError(f"transformers cannot draft with {given} ({error}). Take other options.") from error
        tokens = candidates[0, len(prefix) :][:count].tolist()
        known = next((i for i, token in enumerate(tokens) if token >= self._size), len(tokens))
        return tokens[:known], None if logits is None else logits[0, :known].float()


def ready(named: Transformers, _: Origin) -> Ready:
    """Return the function that loads its assistant model, if it has one, and makes a first draft."""

    def load(site: Site) -> DrafterPart:
        model, name = site.inside(named.name), named.model
        shared = model, _assistant(name, model) if name else None, named.options, site.size
        with inference():
            TransformersDrafter(*shared, greedy=True).draft([tuple(range(8))], 1)  # refused at once if at all
        return Part(
            replace(named, head=named.head.replace(name, files.short_name(name))).name if name else named.name,
            lambda settings: TransformersDrafter(*shared, greedy=settings.temperature == 0),
            files.revision_of(name) if name else site.target.revision,
            note="reads the whole text in every round",
        )

    return load


def _assistant(name: str, target: PreTrainedModel) -> PreTrainedModel:
    """Load an assistant model of any class for a target, by folder or hub id. Raises ModelError."""
    with files.refusals(name, "model"), _quiet():
        folder = Path(name) if names.is_place(name) else files.fetched(name, ["*.json", "*.safetensors"])
        config = AutoConfig.from_pretrained(folder)
        kind = getattr(transformers, (config.architectures or [""])[0], None)
        if kind is None:
            raise ModelError(f"{name} names no class of transformers in its config.json; take another model.")
        model: PreTrainedModel = kind.from_pretrained(folder, dtype=target.dtype, use_safetensors=True)
        return model.to(target.device).requires_grad_(False)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers from warning about options at every draft."""
    before = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        transformers_logging.set_verbosity(before)
