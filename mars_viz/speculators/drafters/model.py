"""A smaller model of the same vocabulary that drafts a chain, token by token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from mars_viz.randomness import Purpose, round_uniforms
from mars_viz.run import Settings
from mars_viz.speculators.cached import CachedModel
from mars_viz.speculators.laws import draw, law, on_device


class ModelDrafter:
    """Drafts greedily at temperature 0 and draws from its law, with keyed uniforms, above."""

    def __init__(self, model: CachedModel, settings: Settings):
        self._model = model
        self._settings = settings

    def draft(self, prefixes: Sequence[tuple[int, ...]], count: int) -> tuple[Tensor, Tensor]:
        """Tokens int64 [B, count] and the raw logits float32 [B, count, V] they were drafted from, on the device.

        The last token is not read, so after a fully kept block the cache lacks it and the next call reads two.
        """
        ids = self._model.rewind(prefixes)
        uniforms = self._uniforms([len(prefix) for prefix in prefixes], count)
        tokens, rows = [], []
        for step in range(count):
            logits = self._model.logits(ids, rows=1)  # [B, 1, V]
            if uniforms is None:
                ids = logits.max(-1).indices  # much faster than argmax; the first among equals, too
            else:
                ids = draw(law(logits, self._settings), uniforms[:, step, None])
            tokens.append(ids)
            rows.append(logits)
        return torch.cat(tokens, 1), torch.cat(rows, 1)

    def committed(self, drafted: Sequence[Sequence[int]]) -> None:
        """Told what it drafted once that is on the host; the last token of each was never read."""
        self._model.remember([tokens[:-1] for tokens in drafted])

    def _uniforms(self, starts: Sequence[int], count: int) -> Tensor | None:
        if self._settings.temperature == 0:
            return None
        device = self._model.device
        keyed = np.stack([round_uniforms(self._settings.seed, start, Purpose.DRAFT, count) for start in starts])
        return on_device(keyed, device)
