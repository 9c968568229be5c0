"""A smaller model of the same vocabulary that drafts a chain, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from mars_viz.randomness import Purpose, round_uniforms
from mars_viz.run import Settings
from mars_viz.speculators.cached import CachedModel
from mars_viz.speculators.largest import best
from mars_viz.speculators.laws import draw, law, on_device


@dataclass(frozen=True, slots=True)
class Picking:
    """Picks the next token from its logits. Equal where it picks alike."""

    law: Settings
    """Temperature, top-p and top-k; all else as by default."""

    @classmethod
    def by(cls, settings: Settings) -> Picking:
        """As these settings say."""
        return cls(Settings(temperature=settings.temperature, top_p=settings.top_p, top_k=settings.top_k))

    def __call__(self, logits: Tensor, uniforms: Tensor | None) -> Tensor:
        """Token ids [B, 1]: the largest of the logits [B, 1, V], or what the uniforms [B, 1] draw from their law."""
        if uniforms is None:
            return best(logits)
        return draw(law(logits, self.law), uniforms)


@dataclass(frozen=True, slots=True)
class Drafted:
    """What was drafted after each of B prefixes, on the device; the parts come to N tokens each."""

    tokens: Sequence[Tensor]
    """int64 [B, n] each."""
    logits: Sequence[Tensor]
    """float32 [B, n, V] each; raw, each row what its token was drafted from."""


class ModelDrafter:
    """Drafts greedily at temperature 0 and draws from its law, with keyed uniforms, above."""

    def __init__(self, model: CachedModel, settings: Settings):
        self._model = model
        self._settings = settings
        self._pick = Picking.by(settings)

    def rewind(self, prefixes: Sequence[tuple[int, ...]]) -> int:
        """See `CachedModel.rewind`; after a fully kept block there are two tokens to read, since the last is not read
        while drafting."""
        return self._model.rewind(prefixes)

    def draft(self, ids: Tensor, starts: Sequence[int], count: int) -> Drafted:
        """Draft so many tokens from the places `starts` on, after the ids [B, n] that `rewind` has left to read."""
        uniforms = self._uniforms(starts, count)
        chain = self._model.chain(ids, count, self._pick, uniforms)
        if chain is not None:
            return Drafted([chain.tokens], [chain.logits])
        tokens, rows = [], []
        for step in range(count):
            logits = self._model.logits(ids, rows=1)  # [B, 1, V]
            ids = self._pick(logits, None if uniforms is None else uniforms[:, step, None])
            tokens.append(ids)
            rows.append(logits)
        return Drafted(tokens, rows)

    def committed(self, drafted: Sequence[Sequence[int]]) -> None:
        """Told what it drafted once that is on the host; the last token of each was never read."""
        self._model.remember([tokens[:-1] for tokens in drafted])

    def _uniforms(self, starts: Sequence[int], count: int) -> Tensor | None:
        if self._settings.temperature == 0:
            return None
        device = self._model.device
        keyed = np.stack([round_uniforms(self._settings.seed, start, Purpose.DRAFT, count) for start in starts])
        return on_device(keyed, device)
